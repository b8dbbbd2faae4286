// SPDX-License-Identifier: GPL-2.0

//! The receiving half: order, acknowledgements and requests.
//!
//! Packets are taken in order only. The sender goes back to the first missing
//! one, or retransmits those that are named: see [`out_of_order`]. Choices beyond the theses:
//!
//! * An acknowledgement has one of three urgencies. It leaves *now* if it opens a
//!   window that the sender waits for (announcement, `packets_to_ack`) or answers
//!   a packet (duplicate, FIN). The last one of a transmission opens no window: it
//!   is *delayed*, for data to carry it, until the reader is about to sleep or
//!   [`ACK_DELAY`] is over. So a dialogue needs no acknowledgements of its own.
//!   While the receiver is congested (R3), both are *withheld*.
//! * While a transmission is announced, an acknowledgement that opens its window
//!   needs a *turn*, which the caller gives ([`ack_queue`](super::ack_queue)).
//!   Data carries new numbers as long as the connection does not wait for a turn.
//!   They do not replace one: the connection asks for the next turn all the same.
//! * Receipt and permission are two things. A *hold* reports packets whose
//!   acknowledgement is withheld or waits for its turn: at the start and the end
//!   of a transmission, which the sender would otherwise retransmit, and in
//!   answer to duplicates.
//! * The receiver keeps what it has granted: it does not drop a packet within a
//!   burst of the last advertised number for want of room. So a receive queue exceeds
//!   its limit by one burst at most, and by 64 packets of it or as
//!   many as the limit takes: a burst must not outgrow the socket's memory. The
//!   receiver drops other packets if there is no room, and requests them later.
//! * A sender's window is its own `burst_length`, which no packet states and which
//!   may be larger than ours. So only a packet farther from the last advertised number
//!   than any window reaches is beyond it: numbers there could not be told from
//!   earlier ones.
//! * A request for a hole is withheld and waits for its turn like any
//!   acknowledgement, since the number it must name opens a window.
//! * An empty packet carries the number of the next packet that takes one. If that
//!   shows a new hole, the receiver requests it as well.

use super::ack_queue::{Samples, SHORT};
use super::config::{Config, LARGEST_WINDOW};
use super::masks::Wrapped;
use super::options::Options;
use super::outcome::{DropReason, Room};
use super::peer_window::PeerWindow;
use super::rtt::Rtt;
use super::seq::Seq;
use super::timers::{Nanos, ACK_DELAY};
use super::wire::{flags, Grant, Header, HOLD};
use grants::Grants;
use out_of_order::OutOfOrder;
use probing::{Probing, Timed};

mod delay_based;
mod grants;
mod numbers;
mod out_of_order;
mod probing;
mod turns;

/// A transmission of more packets is a long one.
const LONG: u16 = 256;

/// When an acknowledgement is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Due {
    Not,
    At(Nanos),
    Now,
}

/// Whether a request is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Request {
    Not,
    /// For packets that a later one has shown to be missing.
    Hole,
    /// For a packet that a probe has shown to be lost; its sender has the turn.
    Probed,
    /// None: the answer to a skip is to leave.
    Skipped,
}

/// The turn in the ACK queue, in which the window opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Turn {
    /// Not needed, or not asked for yet.
    Not,
    Waiting,
    Granted,
}

/// In what kind of packet an acknowledgement number leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckKind {
    /// A packet that leaves for another reason.
    Carried,
    Ack,
    /// Confirms receipt and opens no window.
    Hold,
    Request,
}

impl AckKind {
    /// The flags of an empty packet of this kind.
    #[inline]
    pub(super) fn flags(self) -> u8 {
        match self {
            Self::Carried | Self::Ack => flags::ACK,
            Self::Hold => HOLD,
            Self::Request => flags::ACK | flags::RRQ,
        }
    }
}

/// The other side's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Incoming {
    /// No transmission is announced.
    Idle,
    /// Between TXS and TXF.
    Transmission,
    /// The FIN has been taken.
    Ended,
}

/// A packet that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It takes no number.
    Empty,
    /// It is to be kept: packets before it are missing.
    Kept,
    /// Data packets, behind some that were received before.
    Data {
        skip: u16,
        taken: u16,
    },
    Fin,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Receiver {
    /// The number of the other side's SYN.
    irs: Seq,
    /// The number taken next.
    expected: Seq,
    /// How often numbers have wrapped there.
    wrapped: Wrapped,
    /// The acknowledgement number that left last and opened a window.
    last_advertised: Seq,
    /// OutOfOrder the last number that the sender may use by all that it was given.
    allowed: Seq,
    /// OutOfOrder the highest number known to be in use.
    seen: Seq,
    incoming: Incoming,
    /// R3: due acknowledgements are withheld.
    congested: bool,
    /// Packets taken since an acknowledgement left in its turn.
    since_ack: u16,
    /// Packets taken of the transmission before that.
    before_ack: u16,
    due: Due,
    turn: Turn,
    /// It came at once: no other connection of the device waited for one.
    immediate_turn: bool,
    /// So many connections of the device had announced a transmission when it was asked for.
    senders: u16,
    /// What [`take_samples`](Self::take_samples) returns next.
    samples: Samples,
    /// The start or the end of a transmission has come and no acknowledgement
    /// has left since.
    unreported: bool,
    /// The number of a packet with TXS, until it is acknowledged.
    announced: Option<Seq>,
    /// That packet was a short one, which nothing follows unscheduled.
    short_announcement: bool,
    /// An answer is due, congested or not.
    answer: bool,
    request: Request,
    /// The expected number when a hole was requested.
    requested_at: Option<Seq>,
    /// The numbers that were skipped last, until a packet is taken: the first of them, and the one
    /// behind.
    skipped: Option<(Seq, Seq)>,
    /// A packet was dropped for want of room.
    dropped_for_room: bool,
    /// When the request timer started.
    last_progress: Nanos,
    /// Its expirations since a round trip was measured.
    probes: u8,
    /// Until a probe's answer arrives, or the packet that was probed for.
    probing: Option<Probing>,
    /// When a packet of any connection last arrived at the device.
    last_device_rx: Nanos,
    timed: Option<Timed>,
    /// From acknowledgements to the packets that they let go.
    turnaround: Rtt,
    peer: PeerWindow,
    grants: Grants,
    out_of_order: OutOfOrder,
}

impl Receiver {
    /// A receiver that has taken the SYN with the number `irs`.
    pub(super) fn new(irs: Seq, now: Nanos) -> Self {
        let expected = irs.add(1);
        Self {
            irs,
            expected,
            wrapped: Wrapped::default().advanced(irs, expected),
            last_advertised: expected,
            allowed: expected,
            seen: expected,
            incoming: Incoming::Idle,
            congested: false,
            since_ack: 0,
            before_ack: 0,
            due: Due::Not,
            turn: Turn::Not,
            immediate_turn: false,
            senders: 0,
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

    /// The number of the other side's SYN.
    #[inline]
    pub(super) fn irs(&self) -> Seq {
        self.irs
    }

    /// Whether a transmission is announced and not finished.
    #[inline]
    pub(super) fn is_receiving(&self) -> bool {
        self.incoming == Incoming::Transmission
    }

    /// Whether the FIN has been taken.
    #[inline]
    fn has_ended(&self) -> bool {
        self.incoming == Incoming::Ended
    }

    /// Whether a packet with this number has not been taken.
    #[inline]
    pub(super) fn is_new(&self, seq: Seq) -> bool {
        !seq.before(self.expected)
    }

    /// An acknowledgement is to leave, congested or not.
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

    /// Nothing is received any more.
    pub(super) fn end(&mut self) {
        self.drop_kept();
        if self.is_receiving() {
            self.incoming = Incoming::Idle;
        }
        self.leave_ack_queue();
    }

    /// The sender's SYN had these options.
    pub(super) fn take_options(&mut self, options: &Options) {
        if let Some(window) = options.window {
            self.peer.set_advertised(window);
        }
        self.grants.take_options(options);
    }

    /// When a packet of any connection last arrived at the device.
    #[inline]
    pub(super) fn note_arrival(&mut self, at: Nanos) {
        self.last_device_rx = at;
    }

    /// Whether a number that leaves now may open the window.
    #[inline]
    fn is_open(&self) -> bool {
        !self.congested && self.turn != Turn::Waiting
    }

    /// Decides what becomes of the `count` packets with `header` (R1 to R3), which are in
    /// the order of their numbers and, but for the last, full. All come at once: an
    /// acknowledgement that several of them make due leaves once. `lost` counts the
    /// numbers that they newly show to be missing.
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
            // Nothing can follow, so there is no window to withhold.
            self.congested = false;
            self.leave_ack_queue();
            self.answer = true;
            return Ok(Taken::Fin);
        }
        self.take_data(header, count, skip, room, config, now)
    }

    /// Takes the `count` data packets with `header` that are next in order, behind the first `skip`
    /// ones, which were received before.
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
        let mut flags = header.flags;
        if skip > 0 {
            flags &= !flags::TXS;
        }
        if taken < new {
            flags &= !flags::TXF;
        }
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
        // The sender has got the answer: a skip with the same number would be one of another wrap.
        self.skipped = None;
        if self.has_hole() {
            self.close_hole(packets, now);
        } else if self.turn != Turn::Waiting || !self.expected.before(self.seen) {
            // One that waits for its turn asks for the rest of the hole then.
            self.request = Request::Not;
        }
        self.dropped_for_room = false;
        if let Some(probing) = self.probing {
            self.end_probing();
            self.on_late_packet(probing, now);
        }
        self.last_progress = now;
    }

    /// Decides when data just taken is acknowledged (R2).
    #[inline]
    fn schedule_ack(
        &mut self,
        header: &Header,
        count: u16,
        flags: u8,
        measured: bool,
        config: &Config,
        now: Nanos,
    ) {
        let starts = flags & flags::TXS != 0;
        let ends = flags & flags::TXF != 0;
        if ends {
            self.incoming = Incoming::Idle;
            // The next transmission's packets may not be written yet.
            self.timed = None;
            if starts && count > 1 {
                self.forget_samples(measured);
            }
        } else if starts {
            self.forget_samples(measured);
            self.begin(header);
        }
        self.unreported |= starts || ends;
        // Packets behind the end of this message are missing: the sender goes on at
        // once when this one is acknowledged.
        let out_of_order = ends && self.expected.before(self.seen);
        let filled = self.take_hole_filled();
        if (starts && !ends)
            || out_of_order
            || filled
            || self.since_ack >= self.packets_to_ack(config)
        {
            self.due = Due::Now;
        } else if ends && self.due == Due::Not {
            self.due = Due::At(now.saturating_add(ACK_DELAY));
        }
    }

    /// A transmission of more than this packet is announced.
    #[inline(never)]
    fn begin(&mut self, header: &Header) {
        self.before_ack = 0;
        self.incoming = Incoming::Transmission;
        self.announced = Some(header.seq);
        self.short_announcement = self.grants.are_short() && usize::from(header.len) <= SHORT;
        self.allowed = self.last_advertised;
    }

    /// How many packets make an acknowledgement due.
    #[inline]
    fn packets_to_ack(&self, config: &Config) -> u16 {
        let near = || self.immediate_turn && self.senders <= 1 && self.grants.is_near();
        let least = self.peer.packets_to_ack(near, config);
        if !self.is_long() {
            return least;
        }
        self.grants.packets_to_ack(self.peer.window(config), least)
    }

    /// A packet that takes no number: one with an earlier number is a probe, a later
    /// number shows that packets are missing.
    #[inline]
    fn on_empty(&mut self, seq: Seq, config: &Config, now: Nanos, lost: &mut u32) {
        if seq.before(self.expected) {
            self.answer = true;
        } else if self.has_ended() {
            // Nothing can be missing.
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

    /// A packet has arrived again: its acknowledgement may have been lost.
    fn on_old(&mut self, room: Room, config: &Config) {
        if !self.has_ended() {
            self.congested = is_congested(room, 0, || self.grants.window(config));
            self.leave_ack_queue();
        }
        self.answer = true;
    }

    /// None of the `count` packets has the expected number.
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
            return self.keep(header, count, room, now);
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

    /// Requests the packets before `seq`: once (R1), and after each probe.
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
        // The packets that fill the hole answer the request.
        self.timed = None;
    }

    /// How many of `count` packets need not be dropped for want of room: those that fit,
    /// and those that were granted. The first one's number is `distance` from the one given
    /// last, and each adds `each` bytes to the queue.
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

    /// The reader took data.
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
            self.flush();
        }
    }

    /// Whether reading can make something leave.
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

    /// Whether an acknowledgement waits for data to carry it.
    #[inline]
    pub(super) fn waits_for_data(&self) -> bool {
        self.due != Due::Not
    }

    /// A delayed acknowledgement need not wait for data any longer.
    #[inline]
    pub(super) fn flush(&mut self) {
        if self.due != Due::Not {
            self.due = Due::Now;
        }
    }

    /// Whether neither an acknowledgement, nor a request or a probe is to leave now.
    #[inline]
    pub(super) fn has_nothing_to_send(&self) -> bool {
        self.due != Due::Now
            && !self.answer
            && self.request == Request::Not
            && self.turn != Turn::Granted
            && self.probing.is_none()
    }

    /// The acknowledgement number that a packet leaving now carries.
    #[inline]
    pub(super) fn ack_number(&self, kind: AckKind) -> Seq {
        if kind == AckKind::Carried && !self.is_open() {
            self.last_advertised
        } else {
            self.expected
        }
    }

    /// Whether a request is to leave now.
    #[inline]
    pub(super) fn has_request_to_send(&self) -> bool {
        match self.request {
            Request::Not => false,
            Request::Probed => self.is_open(),
            Request::Skipped => true,
            Request::Hole => self.is_open() && !self.wants_turn(),
        }
    }

    /// The acknowledgement that is to leave now, in a packet of its own if no other
    /// carries it.
    #[inline]
    pub(super) fn ack_to_send(&self) -> Option<AckKind> {
        let due = self.due == Due::Now;
        if self.is_open() {
            let leaves = self.answer || (due && !self.wants_turn());
            leaves.then_some(AckKind::Ack)
        } else {
            (self.answer || (due && self.unreported)).then_some(AckKind::Hold)
        }
    }

    /// An acknowledgement of this kind leaves now: returns the grant that it carries.
    #[inline]
    pub(super) fn grant(&mut self, kind: AckKind, config: &Config) -> Option<Grant> {
        if kind != AckKind::Ack || !self.is_open() {
            return None;
        }
        if self.turn == Turn::Granted {
            self.grants.adapt(
                self.announced.is_some(),
                self.immediate_turn,
                self.senders,
                config,
            );
        }
        let (grant, window) = self.grants.grant(config)?;
        if config.is_adaptive() {
            self.peer.grant(window);
        } else {
            self.peer.end_grants(window);
        }
        Some(grant)
    }

    /// A packet left with [`ack_number`](Self::ack_number).
    #[inline(always)]
    pub(super) fn on_ack_sent(&mut self, kind: AckKind, config: &Config, now: Nanos) {
        if kind == AckKind::Request {
            self.request = Request::Not;
        }
        if kind == AckKind::Hold {
            self.answer = false;
            self.unreported = false;
            return;
        }
        if !self.is_open() {
            return;
        }
        self.answer = false;
        self.unreported = false;
        self.last_progress = now;
        self.time(kind, config, now);
        self.last_advertised = self.expected;
        self.announced = None;
        if self.is_receiving() {
            let allowed = self.last_advertised.add(self.peer.window(config));
            if self.allowed.before(allowed) {
                self.allowed = allowed;
            }
        }
        if !self.is_receiving() || self.turn == Turn::Granted || kind == AckKind::Request {
            self.before_ack = self.before_ack.saturating_add(self.since_ack);
            self.since_ack = 0;
            self.due = Due::Not;
            self.turn = Turn::Not;
        }
    }

    /// The delayed acknowledgement's timer.
    #[inline]
    pub(super) fn ack_timer(&self) -> Option<Nanos> {
        match self.due {
            Due::At(at) if !self.congested || self.unreported => Some(at),
            _ => None,
        }
    }

    /// The delayed acknowledgement's timer has expired.
    pub(super) fn on_ack_timer(&mut self) {
        self.due = Due::Now;
    }
}

/// R3: whether the receive queue, with `more` bytes added, cannot take another
/// burst of full packets and more than a quarter of it is in use. An empty queue
/// is not congested, whatever its limit.
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
