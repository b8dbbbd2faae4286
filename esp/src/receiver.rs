// SPDX-License-Identifier: GPL-2.0

//! The receiving half: order, acknowledgements and requests.
//!
//! Packets are taken in order only; the sender goes back to the first missing
//! one. Choices beyond the theses:
//!
//! * An acknowledgement has one of three urgencies. It leaves *now* when it
//!   opens a window the sender waits for (announcement, `packets_to_ack`) or
//!   answers something (duplicate, FIN). The final one of a transmission opens
//!   none: it is *delayed*, for data to carry it, until the reader is about to
//!   sleep or [`ACK_DELAY`] is over; a dialogue then needs no packet of its own
//!   for it. While the receiver is congested (R3) both are *withheld*.
//! * While a transmission is announced, what opens its window needs a *turn*,
//!   which the caller gives ([`turns`](super::turns)). Data carries new numbers
//!   meanwhile only as long as no turn is being waited for, and does not stand
//!   for one: the next turn is asked for as if the data had not carried any.
//! * Receipt and permission are two things. What arrives while its
//!   acknowledgement is withheld or waits for its turn is reported by a *hold*:
//!   at the start and the end of a transmission, which the sender would
//!   otherwise send again, and in answer to what comes twice.
//! * What was granted is kept: a packet within a burst of the number given last
//!   is not dropped for want of room, so the receive queue's limit is exceeded by at
//!   most one burst, and of that by [`LEAST_KEPT`] packets or as many as the limit
//!   takes: a burst is not to outgrow the memory that the socket was given. Others
//!   are dropped when there is no room, and asked for when there is.
//! * A sender's window is its own `burst_length`, which no packet states and which
//!   may be larger than ours. So a packet is only beyond it if it is farther from
//!   the number given last than any window may reach: no sender sends such, and
//!   numbers beyond could not be told from earlier ones.
//! * A request for a hole is withheld and waits for its turn like any
//!   acknowledgement, since the number it must name opens a window.
//! * The request timer (R4) does not ask for what has not come, since that may
//!   stand in a queue, which a burst sent again makes longer: it *probes*, with an
//!   empty packet of an earlier number. The answer has left behind all that was
//!   sent before, and Ethernet does not reorder: what it shows to be missing is
//!   lost, and is requested. What comes before the answer was late, and lengthens
//!   the measured round trip.
//! * The request timer's round trip is the time from an acknowledgement to the
//!   first packet that it let go, or from a request to the packet asked for. Each
//!   probe doubles the time, up to [`REQUEST_MAX`] or what was measured, and it
//!   stays so until the next measurement. A probe carries an acknowledgement: if
//!   that opens the window, the next packet may have been late, or let go by the
//!   probe, and the round trip took something between the time from the probe and
//!   the whole wait.
//! * A sender may have a smaller window than `packets_to_ack`. If probes find it at
//!   the same distance from the number given twice, that is its window, and it is
//!   acknowledged in time from then on ([`PeerWindow`]).
//! * While packets of others come by the same
//!   device, one's own may stand behind them in the port: the timer counts from
//!   the last of them, [`PORT_DELAY`] at most.
//! * An empty packet carries the number of the next one that takes one. If that
//!   reveals a hole nobody knew of, it is asked for as well.

use super::config::{Config, LARGEST_WINDOW};
use super::outcome::{DropReason, Room};
use super::peer_window::PeerWindow;
use super::rtt::{doubled, Rtt};
use super::seq::Seq;
use super::timers::{
    from_micros, is_due, Nanos, ACK_DELAY, PORT_DELAY, REQUEST_INITIAL, REQUEST_MAX, RETRANSMIT_MAX,
};
use super::wire::{flags, Header, HOLD};

/// A burst of so many packets is kept in the smallest receive queue.
const LEAST_KEPT: u16 = 64;

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
    /// For what a later packet showed to be missing.
    Hole,
    /// For what was probed for and is lost; its sender has the turn.
    Probed,
}

/// The turn in which the window opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Turn {
    /// None is needed, or none asked for yet.
    Not,
    Waiting,
    Granted,
}

/// How an acknowledgement number leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Saying {
    /// In a packet that leaves for another reason.
    Carried,
    Ack,
    /// Receipt without permission.
    Hold,
    Request,
}

impl Saying {
    /// The flags of an empty packet that says this.
    #[inline]
    pub(super) fn flags(self) -> u8 {
        match self {
            Self::Carried | Self::Ack => flags::ACK,
            Self::Hold => HOLD,
            Self::Request => flags::ACK | flags::RRQ,
        }
    }
}

/// The first packet that an acknowledgement lets go, and when that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Timed {
    seq: Seq,
    left: Nanos,
    /// When a probe that may have let it go instead left last, or `left`.
    probed: Nanos,
}

/// The expected packet has not come, and its sender is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Probing {
    /// Since when it has not come.
    since: Nanos,
    /// If a probe has opened the window: how far from the number given before
    /// the sender had come, and when the last probe left.
    opened: Option<(u16, Nanos)>,
}

/// A packet that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Its number was not used up: it takes none.
    Empty,
    Data,
    Fin,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Receiver {
    /// The number of the other side's SYN.
    irs: Seq,
    /// The number taken next.
    expected: Seq,
    /// The acknowledgement number that left last and opened a window.
    given: Seq,
    /// Behind the highest number known to be in use.
    seen: Seq,
    /// The FIN has been taken.
    fin: bool,
    /// Between TXS and TXF.
    receiving: bool,
    /// R3: due acknowledgements are withheld.
    congested: bool,
    /// Packets taken since an acknowledgement left in its turn.
    since: u16,
    due: Due,
    turn: Turn,
    /// The start or the end of a transmission has come and no acknowledgement
    /// has left since.
    unreported: bool,
    /// The number of a packet with TXS, until it is acknowledged.
    announced: Option<Seq>,
    /// An answer is due, congested or not.
    answer: bool,
    request: Request,
    /// The expected number as which a hole was asked for.
    asked: Option<Seq>,
    /// A packet was dropped for want of room.
    starved: bool,
    /// When the request timer started.
    quiet: Nanos,
    /// Its expirations since a round trip was measured.
    tries: u8,
    /// Until a probe's answer comes, or what was probed for.
    probing: Option<Probing>,
    /// A probe is to leave.
    probe: bool,
    /// When others' packets came by the same device.
    busy: Nanos,
    timed: Option<Timed>,
    /// From acknowledgements to the packets that they let go.
    turnaround: Rtt,
    peer: PeerWindow,
}

impl Receiver {
    /// A receiver that has taken the SYN with the number `irs`.
    pub(super) fn new(irs: Seq, now: Nanos) -> Self {
        let expected = irs.add(1);
        Self {
            irs,
            expected,
            given: expected,
            seen: expected,
            fin: false,
            receiving: false,
            congested: false,
            since: 0,
            due: Due::Not,
            turn: Turn::Not,
            unreported: false,
            announced: None,
            answer: false,
            request: Request::Not,
            asked: None,
            starved: false,
            quiet: now,
            tries: 0,
            probing: None,
            probe: false,
            busy: 0,
            timed: None,
            turnaround: Rtt::default(),
            peer: PeerWindow::default(),
        }
    }

    /// The number of the other side's SYN.
    #[inline]
    pub(super) fn irs(&self) -> Seq {
        self.irs
    }

    /// Whether data is coming: a transmission was announced and not finished.
    #[inline]
    pub(super) fn is_receiving(&self) -> bool {
        self.receiving
    }

    /// Whether a packet's number lies behind all that was taken.
    #[inline]
    pub(super) fn is_new(&self, seq: Seq) -> bool {
        !seq.before(self.expected)
    }

    /// Whether a RST may bear this number: from the number given last, which a
    /// host without a socket repeats, to the end of the window.
    #[inline]
    pub(super) fn in_window(&self, seq: Seq, config: &Config) -> bool {
        let open = self.given.distance(self.expected);
        self.given.distance(seq) < open.saturating_add(config.window())
    }

    /// An acknowledgement is to leave, congested or not.
    #[inline]
    pub(super) fn answer(&mut self) {
        self.answer = true;
    }

    /// Nothing is to be said any more.
    pub(super) fn silence(&mut self) {
        self.due = Due::Not;
        self.turn = Turn::Not;
        self.unreported = false;
        self.answer = false;
        self.probe = false;
        self.request = Request::Not;
    }

    /// Nothing comes in any more.
    pub(super) fn end(&mut self) {
        self.receiving = false;
        self.leave_turns();
    }

    /// See [`Connection::is_scheduled`](super::Connection::is_scheduled).
    #[inline]
    pub(super) fn is_scheduled(&self) -> bool {
        self.receiving && !self.congested
    }

    /// See [`Connection::wants_turn`](super::Connection::wants_turn).
    #[inline]
    pub(super) fn wants_turn(&self) -> bool {
        self.is_scheduled()
            && self.turn == Turn::Not
            && (self.due == Due::Now || self.request == Request::Hole)
    }

    /// See [`Connection::wait_turn`](super::Connection::wait_turn).
    #[inline]
    pub(super) fn wait_turn(&mut self) {
        if self.is_scheduled() {
            self.turn = Turn::Waiting;
        }
    }

    /// See [`Connection::take_turn`](super::Connection::take_turn). What the
    /// turn was wanted for may be gone, a hole filled; it is used all the same.
    #[inline]
    pub(super) fn take_turn(&mut self) {
        if self.is_scheduled() {
            self.turn = Turn::Granted;
            self.due = Due::Now;
        }
    }

    /// An announcement's turn that comes after a silence finds all that came with
    /// it, unscheduled as it was, taken or lost: if less has come than may, this
    /// is the time to ask for it. A sender that has nothing outstanding takes the
    /// request for an acknowledgement.
    #[inline]
    pub(super) fn look_back(&mut self, config: &Config, rtt: &Rtt, now: Nanos) {
        if self.turn != Turn::Granted || self.request != Request::Not {
            return;
        }
        let Some(start) = self.announced else { return };
        if self.expected.before(unscheduled_end(start, config))
            && now >= self.quiet.saturating_add(self.patience(config, rtt))
        {
            self.request = Request::Hole;
            self.asked = Some(self.expected);
        }
    }

    /// See [`Connection::port_busy`](super::Connection::port_busy).
    #[inline]
    pub(super) fn port_busy(&mut self, at: Nanos) {
        self.busy = at;
    }

    /// What has to wait for room, or need no longer wait for others, needs no
    /// turn.
    #[inline]
    fn leave_turns(&mut self) {
        if !self.is_scheduled() {
            self.turn = Turn::Not;
        }
    }

    /// Whether a number that leaves now may open the window.
    #[inline]
    fn is_open(&self) -> bool {
        !self.congested && self.turn != Turn::Waiting
    }

    /// Decides what becomes of a packet (R1 to R3). `lost` counts the numbers
    /// it newly shows to be missing.
    #[inline]
    pub(super) fn on_packet(
        &mut self,
        header: &Header,
        room: Room,
        config: &Config,
        now: Nanos,
        lost: &mut u32,
    ) -> Result<Taken, DropReason> {
        if !header.takes_number() {
            self.on_empty(header.seq, lost);
            return Ok(Taken::Empty);
        }
        if header.seq != self.expected {
            return Err(self.on_other(header, room, config, lost));
        }
        if self.fin {
            return Err(DropReason::BadState);
        }
        if header.has(flags::FIN) {
            self.advance(now);
            self.fin = true;
            self.receiving = false;
            // Nothing can follow, so there is no window to withhold.
            self.congested = false;
            self.leave_turns();
            self.answer = true;
            return Ok(Taken::Fin);
        }
        if self.given.distance(header.seq) >= LARGEST_WINDOW {
            return Err(DropReason::BeyondWindow);
        }
        if self.lacks_room(header.seq, room, config) {
            return Err(DropReason::NoRoom);
        }
        self.advance(now);
        self.since = self.since.saturating_add(1);
        self.congested = is_congested(room, room.arriving, config);
        self.peer.take(self.given.distance(self.expected));
        if let Some(timed) = self.timed.filter(|t| !header.seq.before(t.seq)) {
            self.measure(timed, now);
        }
        self.owe(header, config, now);
        self.leave_turns();
        Ok(Taken::Data)
    }

    /// The numbers before `behind` are known to be in use.
    #[inline]
    fn see(&mut self, behind: Seq) {
        if self.seen.before(behind) {
            self.seen = behind;
        }
    }

    #[inline]
    fn advance(&mut self, now: Nanos) {
        self.expected = self.expected.add(1);
        self.see(self.expected);
        self.asked = None;
        // What waits for its turn asks for the rest of the hole then.
        if self.turn != Turn::Waiting || !self.expected.before(self.seen) {
            self.request = Request::Not;
        }
        self.starved = false;
        if let Some(probing) = self.probing {
            self.end_probing();
            self.came_late(probing, now);
        }
        self.quiet = now;
    }

    /// The packet has come that an acknowledgement let go.
    #[inline]
    fn measure(&mut self, timed: Timed, now: Nanos) {
        self.timed = None;
        let most = now.saturating_sub(timed.left);
        if timed.probed == timed.left {
            self.turnaround.sample(most);
            self.tries = 0;
        } else if self.turnaround.is_known() {
            self.turnaround
                .sample_between(now.saturating_sub(timed.probed), most);
        }
    }

    /// What was probed for has come, and was not lost.
    #[cold]
    fn came_late(&mut self, probing: Probing, now: Nanos) {
        let most = now.saturating_sub(probing.since);
        let Some((distance, probed)) = probing.opened else {
            self.turnaround.sample(most);
            return;
        };
        let least = now.saturating_sub(probed);
        let may_end = self.peer.stop(distance);
        if self.turnaround.is_known() {
            self.turnaround.sample_between(least, most);
        } else if may_end {
            self.turnaround.sample(least);
        }
        if may_end {
            // The line need not have become slower.
            self.tries = 0;
        }
    }

    /// Decides how soon data just taken is acknowledged (R2).
    #[inline]
    fn owe(&mut self, header: &Header, config: &Config, now: Nanos) {
        let starts = header.has(flags::TXS);
        let ends = header.has(flags::TXF);
        if ends {
            self.receiving = false;
            // The next transmission's packets may not be written yet.
            self.timed = None;
        } else if starts {
            self.receiving = true;
            self.announced = Some(header.seq);
        }
        self.unreported |= starts || ends;
        // Behind the end of one message others are known to be missing: their
        // sender goes on at once when it hears of this one.
        let behind = ends && self.expected.before(self.seen);
        if (starts && !ends) || behind || self.since >= self.peer.packets_to_ack(config) {
            self.due = Due::Now;
        } else if ends && self.due == Due::Not {
            self.due = Due::At(now.saturating_add(ACK_DELAY));
        }
    }

    /// A packet that takes no number: a probe asks for an answer by bearing an
    /// earlier number, and a later one shows that packets are missing.
    #[inline]
    fn on_empty(&mut self, seq: Seq, lost: &mut u32) {
        if seq.before(self.expected) {
            self.answer = true;
        } else if self.fin {
            // Nothing can be missing.
        } else if seq == self.expected {
            self.end_probing();
        } else if seq.after(self.seen) || self.probing.is_some() {
            self.hole(seq, lost);
            self.see(seq);
        }
    }

    /// Something came that left after all that was probed for.
    fn end_probing(&mut self) {
        self.probing = None;
        self.probe = false;
    }

    /// A packet with another number than the expected one.
    fn on_other(
        &mut self,
        header: &Header,
        room: Room,
        config: &Config,
        lost: &mut u32,
    ) -> DropReason {
        if header.seq.before(self.expected) {
            if !self.fin {
                self.congested = is_congested(room, 0, config);
                self.leave_turns();
            }
            self.answer = true;
            return DropReason::Duplicate;
        }
        if self.fin {
            return DropReason::BadState;
        }
        if self.lacks_room(header.seq, room, config) {
            return DropReason::NoRoom;
        }
        self.hole(header.seq, lost);
        self.see(header.seq.add(1));
        DropReason::OutOfSequence
    }

    /// Asks for what lies before `seq`: once (R1), and whenever it was probed for.
    fn hole(&mut self, seq: Seq, lost: &mut u32) {
        let probed = self.probing.is_some();
        self.end_probing();
        let known = self.asked == Some(self.expected);
        if known && !probed {
            return;
        }
        if !known {
            self.asked = Some(self.expected);
            *lost = u32::from(self.expected.distance(seq));
        }
        self.request = if probed {
            Request::Probed
        } else {
            Request::Hole
        };
        // What fills the hole comes for a request's sake.
        self.timed = None;
    }

    /// Whether a packet is to be dropped for want of room: only one that was
    /// not granted.
    #[inline]
    fn lacks_room(&mut self, seq: Seq, room: Room, config: &Config) -> bool {
        let lacks = room.queued >= room.limit && self.given.distance(seq) >= kept(room, config);
        self.starved |= lacks;
        lacks
    }

    /// The reader took data.
    #[inline]
    pub(super) fn on_read(&mut self, room: Room, config: &Config, now: Nanos) {
        if self.fin {
            return;
        }
        let was_congested = self.congested;
        self.congested = is_congested(room, 0, config);
        self.leave_turns();
        if self.congested {
            return;
        }
        if self.starved {
            self.starved = false;
            self.asked = Some(self.expected);
            self.request = Request::Hole;
        }
        if was_congested {
            self.quiet = now;
            self.flush();
        }
    }

    /// Whether reading can make something leave.
    #[inline]
    pub(super) fn waits_for_room(&self) -> bool {
        self.congested || self.starved
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

    /// Takes the wish to ask whether the expected packet is lost.
    #[inline]
    pub(super) fn take_probe(&mut self) -> bool {
        core::mem::take(&mut self.probe)
    }

    /// A probe leaves, whatever it was wanted for: its answer tells what is lost
    /// all the same. The request timer may be slower than signs of life, each of
    /// which starts it anew.
    pub(super) fn probed(&mut self, now: Nanos) {
        if !self.is_scheduled() || self.turn != Turn::Not || self.request != Request::Not {
            return;
        }
        let mut probing = self.probing.unwrap_or(Probing {
            since: self.quiet,
            opened: None,
        });
        let distance = self.given.distance(self.expected);
        if distance > 0 {
            probing.opened = Some((distance, now));
        } else if let Some((_, last)) = &mut probing.opened {
            *last = now;
        }
        if let (Some(timed), Some(_)) = (&mut self.timed, probing.opened) {
            timed.probed = now;
        }
        self.probing = Some(probing);
    }

    /// The acknowledgement number that a packet leaving now carries.
    #[inline]
    pub(super) fn ack_number(&self, saying: Saying) -> Seq {
        if saying == Saying::Carried && !self.is_open() {
            self.given
        } else {
            self.expected
        }
    }

    /// Whether a request is to leave now.
    #[inline]
    pub(super) fn request_leaves(&self) -> bool {
        match self.request {
            Request::Not => false,
            Request::Probed => self.is_open(),
            Request::Hole => self.is_open() && !self.wants_turn(),
        }
    }

    /// Whether an acknowledgement is to leave now, in a packet of its own if
    /// there is none to carry it.
    #[inline]
    pub(super) fn ack_leaves(&self) -> Option<Saying> {
        let due = self.due == Due::Now;
        if self.is_open() {
            let leaves = self.answer || (due && !self.wants_turn());
            leaves.then_some(Saying::Ack)
        } else {
            (self.answer || (due && self.unreported)).then_some(Saying::Hold)
        }
    }

    /// A packet left with [`ack_number`](Self::ack_number).
    #[inline]
    pub(super) fn ack_left(&mut self, saying: Saying, config: &Config, now: Nanos) {
        if saying == Saying::Request {
            self.request = Request::Not;
        }
        if saying == Saying::Hold {
            self.answer = false;
            self.unreported = false;
            return;
        }
        if !self.is_open() {
            return;
        }
        self.answer = false;
        self.unreported = false;
        self.quiet = now;
        self.time(saying, config, now);
        self.given = self.expected;
        self.announced = None;
        if !self.receiving || self.turn == Turn::Granted || saying == Saying::Request {
            self.since = 0;
            self.due = Due::Not;
            self.turn = Turn::Not;
        }
    }

    /// Starts measuring a round trip with an acknowledgement that leaves.
    #[inline]
    fn time(&mut self, saying: Saying, config: &Config, now: Nanos) {
        if saying == Saying::Request {
            self.timed = Some(Timed {
                seq: self.expected,
                left: now,
                probed: now,
            });
        } else if self.timed.is_none() && self.turn == Turn::Granted {
            let seq = match self.announced {
                Some(start) => unscheduled_end(start, config),
                None => self.given.add(self.peer.window(config)),
            };
            self.timed = Some(Timed {
                seq,
                left: now,
                probed: now,
            });
        }
    }

    /// The request timer (R4): runs while data is coming and the last
    /// acknowledgement has left.
    #[inline]
    fn request_timer(&self, config: &Config, rtt: &Rtt) -> Option<Nanos> {
        let runs = self.is_scheduled()
            && self.turn == Turn::Not
            && self.request == Request::Not
            && self.due != Due::Now;
        if !runs {
            return None;
        }
        let latest = self.quiet.saturating_add(PORT_DELAY);
        let from = self.busy.max(self.quiet).min(latest);
        let mut patience = self.patience(config, rtt);
        if self.turnaround.smoothed() == 0 {
            patience = patience.max(REQUEST_INITIAL);
        }
        Some(from.saturating_add(patience))
    }

    /// How long nothing has to come before it is probed for.
    #[inline]
    fn patience(&self, config: &Config, rtt: &Rtt) -> Nanos {
        let least = from_micros(config.round_trip_time);
        let mean = rtt.smoothed().max(self.turnaround.smoothed());
        let base = mean.saturating_mul(2).min(RETRANSMIT_MAX).max(least);
        doubled(base, self.tries).min(REQUEST_MAX.max(base))
    }

    /// The delayed acknowledgement's timer.
    #[inline]
    fn ack_timer(&self) -> Option<Nanos> {
        match self.due {
            Due::At(at) if !self.congested || self.unreported => Some(at),
            _ => None,
        }
    }

    /// The earliest of the timers.
    #[inline]
    pub(super) fn deadline(&self, config: &Config, rtt: &Rtt) -> Option<Nanos> {
        super::timers::earlier(self.ack_timer(), self.request_timer(config, rtt))
    }

    /// Runs the timers that are due.
    pub(super) fn expire(&mut self, config: &Config, rtt: &Rtt, now: Nanos) {
        if is_due(self.request_timer(config, rtt), now) {
            self.probing = self.probing.or(Some(Probing {
                since: self.quiet,
                opened: None,
            }));
            self.probe = true;
            self.tries = self.tries.saturating_add(1);
            self.quiet = now;
        }
        if is_due(self.ack_timer(), now) {
            self.due = Due::Now;
        }
    }
}

/// Behind the last packet that may follow the announcement with the number
/// `start` on its own, if the sender's parameters are ours.
#[inline]
fn unscheduled_end(start: Seq, config: &Config) -> Seq {
    start.add(config.initial_ack_burst_length).add(1)
}

/// How many packets are kept behind the number given last, whatever room there is.
fn kept(room: Room, config: &Config) -> u16 {
    let fit = room.limit.checked_div(room.packet).unwrap_or(0);
    let most = u16::try_from(fit).unwrap_or(u16::MAX).max(LEAST_KEPT);
    config.window().min(most)
}

/// R3: whether the receive queue, with `more` bytes added, cannot take another
/// burst of full packets. An empty queue always can.
#[inline]
fn is_congested(room: Room, more: u32, config: &Config) -> bool {
    let queued = room.queued.saturating_add(more);
    let burst = u32::from(config.window()).saturating_mul(room.packet);
    queued > 0 && room.limit.saturating_sub(queued) < burst
}
