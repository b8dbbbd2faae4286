// SPDX-License-Identifier: GPL-2.0

//! The receiving half: order, acknowledgements and requests.
//!
//! R1 to R4 in the comments are the receiver's rules in `docs/protocol.md`. The receiver takes
//! packets in order only. The sender goes back to the first missing packet, or retransmits the
//! packets that a request names: see [`out_of_order`]. Choices beyond Reinhardt 2006 and Treydte
//! 2007:
//!
//! * An acknowledgement has one of three urgencies. It is sent *now* if it opens a window that the
//!   sender waits for (announcement, `packets_to_ack`) or answers a packet (duplicate, FIN). The
//!   last acknowledgement of a transmission opens no window. It is *delayed*, so that data can
//!   carry it, until the reader is about to sleep or [`ACK_DELAY`](super::timers::ACK_DELAY) has
//!   passed. In a *dialogue*, where data has answered each transmission in time, the delay does not
//!   end when the reader sleeps, because another thread will send the next answer. So a dialogue
//!   needs no empty acknowledgements. While the receiver is congested (R3), acknowledgements of
//!   either kind are *withheld*.
//! * While a transmission is announced, an acknowledgement needs a *turn* to open the
//!   transmission's window. The caller gives the turn ([`ack_queue`](super::ack_queue)). Data
//!   packets carry new acknowledgement numbers unless the connection waits for a turn. Such a
//!   number does not replace a turn: the connection still asks for its next turn.
//! * Receipt and permission are separate. A *hold* reports packets whose acknowledgement is
//!   withheld or waits for its turn. The receiver sends a hold for the first and the last packet of
//!   a transmission, because the sender would otherwise retransmit these packets. It also sends a
//!   hold in answer to duplicates.
//! * The receiver never drops a packet within one burst of the last advertised number for lack of
//!   room. So a receive queue exceeds its limit by at most one burst. Of a larger burst, the
//!   receiver keeps 64 packets, or as many as the limit holds if these are more. It keeps no more,
//!   because a burst must not outgrow the socket's memory. The receiver drops other packets if
//!   there is no room, and requests them later.
//! * A sender's window is its own `burst_length`, which may be larger than ours. So the receiver
//!   treats a packet as out of the window only if it is farther from the last advertised number
//!   than any window reaches. A number beyond that distance could not be told from an earlier one.
//! * A request for a hole is withheld and waits for its turn like any acknowledgement, since the
//!   request's acknowledgement number opens a window.
//! * An empty packet takes no number. It carries the number that the sender will use next. If this
//!   number reveals a new hole, the receiver also requests the packets in that hole.

use super::ack_queue::Samples;
use super::config::{Config, LARGEST_WINDOW};
use super::masks::Wrapped;
use super::options::Options;
use super::outcome::{DropReason, Room};
use super::peer_window::PeerWindow;
use super::rtt::Rtt;
use super::seq::Seq;
use super::timers::Nanos;
use super::wire::{flags, Header, HOLD};
use grants::Grants;
use out_of_order::OutOfOrder;
use probing::{Probing, Timed};

mod acks;
mod delay_based;
mod grants;
mod numbers;
mod out_of_order;
mod probing;
mod turns;

/// A transmission of more packets than this is long.
const LONG: u16 = 256;

/// The time at which an acknowledgement is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Due {
    Not,
    At(Nanos),
    Now,
}

/// The kind of request that is due, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Request {
    Not,
    /// A request for missing packets is due, because a later one has arrived.
    Hole,
    /// A request is due for a packet that a probe has shown to be lost. The request needs no turn,
    /// because the packet's sender still has its turn.
    Probed,
    /// No request is due, but the answer to a skip is.
    Skipped,
}

/// The state of the connection's turn in the ACK queue. In its turn, the connection opens the
/// sender's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Turn {
    /// The turn is not needed, or not yet requested.
    Not,
    Waiting,
    Granted,
}

/// The kind of packet that carries an acknowledgement number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckKind {
    /// The packet is sent for a different reason, and also carries the number.
    Carried,
    Ack,
    /// The packet confirms receipt and opens no window.
    Hold,
    Request,
}

impl AckKind {
    /// Returns the flags of an empty packet of this kind.
    #[inline]
    pub(super) fn flags(self) -> u8 {
        match self {
            Self::Carried | Self::Ack => flags::ACK,
            Self::Hold => HOLD,
            Self::Request => flags::ACK | flags::RRQ,
        }
    }
}

/// The state of the peer's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Incoming {
    /// No transmission is announced.
    Idle,
    /// A packet with TXS has begun a transmission, and no packet with TXF has ended it.
    Transmission,
    /// The FIN was taken.
    Ended,
}

/// The way in which packets were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The packet takes no number.
    Empty,
    /// The caller keeps the packets, because earlier ones are missing.
    Kept,
    /// The packets are a run of data packets. The first `skip` of them were received before, and
    /// the next `taken` are in order.
    Data {
        skip: u16,
        taken: u16,
    },
    Fin,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Receiver {
    /// The number of the peer's SYN.
    irs: Seq,
    /// The next expected number.
    expected: Seq,
    /// The number of times that numbers have wrapped at `expected`.
    wrapped: Wrapped,
    /// The most recent acknowledgement number that was sent and opened a window.
    last_advertised: Seq,
    /// The first number that no window advertised so far allows.
    allowed: Seq,
    /// The number after the highest number that the sender is known to have used.
    seen: Seq,
    incoming: Incoming,
    /// Whether due acknowledgements are withheld (R3).
    congested: bool,
    /// Number of packets taken since the last acknowledgement that used a turn.
    since_ack: u16,
    /// Number of the transmission's packets that were taken before the last acknowledgement that
    /// used a turn.
    before_ack: u16,
    due: Due,
    /// Until this time, data that is sent counts as the answer to the last transmission; 0 if data
    /// was sent since.
    answer_until: Nanos,
    /// A bit for each of the last eight transmissions that were answered, the last one in the
    /// lowest bit: whether the answer came in time. Zero after a transmission that ended before the
    /// one before it was answered.
    answered: u8,
    turn: Turn,
    /// Whether the turn came at once, because no other connection of the device waited.
    immediate_turn: bool,
    /// Number of the device's connections that had an announced transmission when the turn was
    /// requested.
    senders: u16,
    /// Whether all others of these connections were overdue then.
    alone: bool,
    /// The samples for the next [`take_samples`](Self::take_samples).
    samples: Samples,
    /// Whether a transmission has started or ended since the last acknowledgement.
    unreported: bool,
    /// The number of the packet with TXS, until it is acknowledged.
    announced: Option<Seq>,
    /// Whether the packet `announced` was a short announcement, which no unscheduled packets
    /// follow.
    short_announcement: bool,
    /// Whether an acknowledgement is due even if the receiver is congested.
    answer: bool,
    request: Request,
    /// The value of `expected` when a hole was last requested.
    requested_at: Option<Seq>,
    /// The range of numbers that was skipped last: the first skipped number, and the number after
    /// the last one. `None` again once a packet is taken.
    skipped: Option<(Seq, Seq)>,
    /// Whether a packet was dropped for lack of room.
    dropped_for_room: bool,
    /// The time when the request timer was last started.
    last_progress: Nanos,
    /// Number of expirations of the request timer since the last measured round trip.
    probes: u8,
    /// The current probe, until its answer or the missing packet arrives.
    probing: Option<Probing>,
    /// The time when a packet of any connection last arrived at the device.
    last_device_rx: Nanos,
    timed: Option<Timed>,
    /// The measured time from an acknowledgement to the first packet that it allowed.
    turnaround: Rtt,
    peer: PeerWindow,
    grants: Grants,
    out_of_order: OutOfOrder,
}

impl Receiver {
    /// Creates a receiver that has taken the SYN with the number `irs`.
    pub(super) fn new(irs: Seq, now: Nanos) -> Self {
        let (expected, wrapped) = Wrapped::behind_syn(irs);
        Self {
            irs,
            expected,
            wrapped,
            last_advertised: expected,
            allowed: expected,
            seen: expected,
            incoming: Incoming::Idle,
            congested: false,
            since_ack: 0,
            before_ack: 0,
            due: Due::Not,
            answer_until: 0,
            answered: 0,
            turn: Turn::Not,
            immediate_turn: false,
            senders: 0,
            alone: false,
            samples: Samples::default(),
            unreported: false,
            announced: None,
            short_announcement: false,
            answer: false,
            request: Request::Not,
            requested_at: None,
            skipped: None,
            dropped_for_room: false,
            last_progress: now,
            probes: 0,
            probing: None,
            last_device_rx: 0,
            timed: None,
            turnaround: Rtt::default(),
            peer: PeerWindow::default(),
            grants: Grants::default(),
            out_of_order: OutOfOrder::default(),
        }
    }

    /// Returns whether no packet has arrived in order after the SYN.
    pub(super) fn is_unused(&self) -> bool {
        (self.expected, self.wrapped) == Wrapped::behind_syn(self.irs)
    }

    /// Returns the number of the peer's SYN.
    #[inline]
    pub(super) fn irs(&self) -> Seq {
        self.irs
    }

    /// Returns whether a transmission is announced and not finished.
    #[inline]
    pub(super) fn is_receiving(&self) -> bool {
        self.incoming == Incoming::Transmission
    }

    /// Returns whether the FIN was taken.
    #[inline]
    fn has_ended(&self) -> bool {
        self.incoming == Incoming::Ended
    }

    /// Returns whether no packet with this number was taken yet.
    #[inline]
    pub(super) fn is_new(&self, seq: Seq) -> bool {
        !seq.before(self.expected)
    }

    /// Makes an acknowledgement due, even if the receiver is congested.
    #[inline]
    pub(super) fn answer(&mut self) {
        self.answer = true;
    }

    /// Cancels all acknowledgements, requests and probes that are due.
    pub(super) fn cancel(&mut self) {
        self.due = Due::Not;
        self.turn = Turn::Not;
        self.unreported = false;
        self.answer = false;
        self.probing = None;
        self.request = Request::Not;
    }

    /// Ends the receiving half.
    pub(super) fn end(&mut self) {
        self.drop_kept();
        if self.is_receiving() {
            self.incoming = Incoming::Idle;
        }
        self.leave_ack_queue();
    }

    /// Takes the options of the sender's SYN.
    pub(super) fn take_options(&mut self, options: &Options) {
        if let Some(window) = options.window {
            self.peer.set_advertised(window);
        }
        self.grants.take_options(options);
    }

    /// Sets whether forged packets cannot pass for the sender's.
    pub(super) fn set_safe(&mut self, safe: bool) {
        self.grants.set_safe(safe);
    }

    /// Notes the time when a packet of any connection last arrived at the device.
    #[inline]
    pub(super) fn note_arrival(&mut self, at: Nanos) {
        self.last_device_rx = at;
    }

    /// Returns whether an acknowledgement sent now may open the window.
    #[inline]
    fn is_open(&self) -> bool {
        !self.congested && self.turn != Turn::Waiting
    }

    /// Processes `count` packets with `header`, by the rules R1 to R3. The packets are in order,
    /// and all except the last one are full. Because the packets arrive together, one
    /// acknowledgement covers all of them. Sets `lost` to the number of packets newly found
    /// missing.
    #[inline]
    pub(super) fn on_packets(
        &mut self,
        header: &Header,
        count: u16,
        room: Room,
        config: &Config,
        now: Nanos,
        lost: &mut u32,
    ) -> Result<Taken, DropReason> {
        if !header.takes_number() {
            if header.is_skip() {
                self.on_skip(Seq(header.len), header.seq);
            } else {
                self.on_empty(header.seq, config, now, lost);
            }
            return Ok(Taken::Empty);
        }
        let mut skip = 0;
        if header.seq != self.expected {
            skip = header.seq.distance(self.expected);
            if skip >= count || !header.seq.before(self.expected) {
                return self.on_other(header, count, room, config, now, lost);
            }
            if !self.is_delivering() {
                self.on_old(room, config);
            }
        }
        if self.has_ended() {
            return Err(DropReason::BadState);
        }
        if header.has(flags::FIN) {
            self.advance(1, now);
            self.drop_kept();
            self.incoming = Incoming::Ended;
            // Nothing follows a FIN, so there is no window to withhold.
            self.congested = false;
            self.leave_ack_queue();
            self.answer = true;
            return Ok(Taken::Fin);
        }
        self.take_data(header, count, skip, room, config, now)
    }

    /// Takes `count` data packets with `header`. The first `skip` of them were received before, and
    /// the others are next in order.
    #[inline(always)]
    fn take_data(
        &mut self,
        header: &Header,
        count: u16,
        skip: u16,
        room: Room,
        config: &Config,
        now: Nanos,
    ) -> Result<Taken, DropReason> {
        let distance = self.last_advertised.distance(self.expected);
        if distance >= LARGEST_WINDOW {
            return Err(DropReason::BeyondWindow);
        }
        let each = if count > 1 {
            room.arriving.div_ceil(count.into())
        } else {
            room.arriving
        };
        let new = count.saturating_sub(skip);
        let most = new.min(LARGEST_WINDOW.saturating_sub(distance));
        let taken = self.fitting(most, distance, each, room, config);
        if taken < most {
            self.drop_kept();
        } else if self.has_hole() {
            self.make_room(room);
        }
        if taken == 0 {
            return Err(DropReason::NoRoom);
        }
        self.advance(taken, now);
        self.dropped_for_room = taken < most;
        self.since_ack = self.since_ack.saturating_add(taken);
        let more = if taken == 1 {
            each
        } else {
            each.saturating_mul(taken.into())
        };
        self.congested = is_congested(room, more, || self.grants.window(config));
        self.peer
            .take(self.last_advertised.distance(self.expected), taken);
        let mut measured = false;
        if let Some(timed) = self.timed.filter(|t| t.seq.before(self.expected)) {
            measured = self.measure(timed, now);
        }
        let flags = flags_of_part(header.flags, skip > 0, taken < new);
        self.schedule_ack(header, count, flags, measured, config, now);
        if self.is_receiving() && !self.is_delivering() {
            let payload = if taken == count {
                header.len
            } else {
                header.len / count.max(1) * taken
            };
            self.grants.take(taken, payload, room, now);
        }
        self.leave_ack_queue();
        Ok(Taken::Data { skip, taken })
    }

    #[inline]
    fn advance(&mut self, packets: u16, now: Nanos) {
        let next = self.expected.add(packets);
        self.wrapped = self.wrapped.advanced(self.expected, next);
        self.expected = next;
        self.note_seen(self.expected);
        self.requested_at = None;
        // The sender has the answer to its skip. Forget the skip, because a further skip with the
        // same number would belong to a different wrap of the numbers.
        self.skipped = None;
        if self.has_hole() {
            self.close_hole(packets, now);
        } else if self.turn != Turn::Waiting || !self.expected.before(self.seen) {
            // Cancel the request. A request that still waits for its turn is kept, because it will
            // ask for what is then left of the hole.
            self.request = Request::Not;
        }
        self.dropped_for_room = false;
        if let Some(probing) = self.probing {
            self.end_probing();
            self.on_late_packet(probing, now);
        }
        self.last_progress = now;
    }

    /// Processes a packet that takes no number. A packet with an earlier number than the expected
    /// one is a probe; a later number shows that packets are missing.
    #[inline]
    fn on_empty(&mut self, seq: Seq, config: &Config, now: Nanos, lost: &mut u32) {
        if seq.before(self.expected) {
            self.answer = true;
        } else if self.has_ended() {
            // Nothing follows a FIN, so nothing can be missing.
        } else if seq == self.expected {
            self.end_probing();
        } else if self.is_selective() {
            self.note_seen(seq);
            if self.probing.is_some() {
                self.end_probing();
                self.mark_lost_before(seq);
            }
            self.find_missing(now);
        } else if seq.after(self.seen) || self.probing.is_some() {
            self.request_hole(seq, config, lost);
            self.note_seen(seq);
        }
    }

    /// Makes an acknowledgement due in answer to a duplicate, because the earlier acknowledgement
    /// of the packet may have been lost.
    fn on_old(&mut self, room: Room, config: &Config) {
        if !self.has_ended() {
            self.congested = is_congested(room, 0, || self.grants.window(config));
            self.leave_ack_queue();
        }
        self.answer = true;
    }

    /// Processes `count` packets, none of which has the expected number.
    fn on_other(
        &mut self,
        header: &Header,
        count: u16,
        room: Room,
        config: &Config,
        now: Nanos,
        lost: &mut u32,
    ) -> Result<Taken, DropReason> {
        if header.seq.before(self.expected) {
            self.on_old(room, config);
            return Err(DropReason::Duplicate);
        }
        if self.has_ended() {
            return Err(DropReason::BadState);
        }
        if self.is_selective() {
            let kept = self.keep(header, count, room, now);
            *lost = lost.saturating_add(self.count_unnamed(config).into());
            return kept;
        }
        let distance = self.last_advertised.distance(header.seq);
        let known = self.fitting(count, distance, 0, room, config);
        if known == 0 {
            return Err(DropReason::NoRoom);
        }
        self.request_hole(header.seq, config, lost);
        self.note_seen(header.seq.add(known));
        Err(DropReason::OutOfSequence)
    }

    /// Requests the packets before `seq`, once for each hole (R1) and again after each probe.
    fn request_hole(&mut self, seq: Seq, config: &Config, lost: &mut u32) {
        let probed = self.probing.is_some();
        self.end_probing();
        let known = self.requested_at == Some(self.expected);
        if known && !probed {
            return;
        }
        if !known {
            self.requested_at = Some(self.expected);
            *lost = u32::from(self.expected.distance(seq));
            self.samples.lost = true;
            self.grants.note_missing();
            self.grants.on_loss(config);
        }
        self.request = if probed {
            Request::Probed
        } else {
            Request::Hole
        };
        // The packets that fill the hole will answer the request. They will not answer the
        // acknowledgement for which `timed` measures the round trip, so this measurement ends.
        self.timed = None;
    }

    /// Returns how many of `count` packets the receive queue takes. The queue takes the granted
    /// packets, and further packets as far as they fit. The first packet's number is `distance`
    /// after the last advertised one, and each packet adds `each` bytes to the queue.
    #[inline]
    fn fitting(
        &mut self,
        count: u16,
        distance: u16,
        each: u32,
        room: Room,
        config: &Config,
    ) -> u16 {
        let mut before_last = room.queued;
        if count > 1 {
            let others = u32::from(count.saturating_sub(1));
            before_last = before_last.saturating_add(each.saturating_mul(others));
        }
        if before_last < room.limit {
            return count;
        }
        let free = room.limit.saturating_sub(room.queued);
        let fit = u16::try_from(free.div_ceil(each.max(1))).unwrap_or(u16::MAX);
        let granted = room
            .kept(self.grants.max_in_flight(config))
            .saturating_sub(distance);
        let fitting = fit.max(granted).min(count);
        self.dropped_for_room |= fitting < count;
        fitting
    }

    /// Handles a read. `room` describes the receive queue after the read.
    #[inline]
    pub(super) fn on_read(&mut self, room: Room, config: &Config, now: Nanos) {
        if self.has_ended() {
            return;
        }
        let was_congested = self.congested;
        self.congested = is_congested(room, 0, || self.grants.window(config));
        self.leave_ack_queue();
        if self.congested {
            return;
        }
        if self.dropped_for_room {
            self.dropped_for_room = false;
            if !self.keeps() {
                self.requested_at = Some(self.expected);
                self.request = Request::Hole;
            }
        }
        if was_congested {
            self.last_progress = now;
            self.end_delay();
        }
    }

    /// Returns whether a read may cause packets to be sent.
    #[inline]
    pub(super) fn waits_for_room(&self) -> bool {
        self.congested || self.dropped_for_room
    }

    /// See [`Connection::wanted_room`](super::Connection::wanted_room).
    #[inline]
    pub(super) fn wanted_room(&self) -> Option<u32> {
        self.grants.wanted_room()
    }

    /// See [`Connection::granted`](super::Connection::granted).
    #[inline]
    pub(super) fn granted(&self, config: &Config) -> u16 {
        self.grants.max_in_flight(config)
    }

    /// Returns whether no acknowledgement, request or probe is due.
    #[inline]
    pub(super) fn has_nothing_to_send(&self) -> bool {
        self.due != Due::Now
            && !self.answer
            && self.request == Request::Not
            && self.turn != Turn::Granted
            && self.probing.is_none()
    }
}

/// Returns the flags of a part of a run. They lack TXS if the part lacks the run's first packet,
/// and TXF if the part lacks the last one.
#[inline(always)]
const fn flags_of_part(mut flags: u8, lacks_first: bool, lacks_last: bool) -> u8 {
    if lacks_first {
        flags &= !flags::TXS;
    }
    if lacks_last {
        flags &= !flags::TXF;
    }
    flags
}

/// Returns whether the receiver is congested (R3) once `more` bytes are added to the receive queue.
/// It is congested if the queue has no room for another burst of full packets, and more than a
/// quarter of the queue is in use. While the queue is empty, the receiver is never congested,
/// whatever the queue's limit.
#[inline]
fn is_congested(room: Room, more: u32, window: impl FnOnce() -> u16) -> bool {
    let queued = room.queued.saturating_add(more);
    if queued <= room.limit / 4 {
        return false;
    }
    let burst = u32::from(window()).saturating_mul(room.packet);
    let needed = burst.min(room.limit / 4 * 3);
    room.limit.saturating_sub(queued) < needed
}
