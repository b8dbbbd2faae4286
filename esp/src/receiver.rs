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
//!   for it. While the receiver is congested (R3) both are *withheld*; what has
//!   to be said all the same, say in answer to a duplicate, then repeats the
//!   number given last, which opens nothing.
//! * What was granted is kept: a packet within a burst of the number given last
//!   is never dropped for want of room, so the receive queue's limit is exceeded
//!   by at most one burst. Packets of a sender with a larger burst are dropped
//!   when there is no room, and asked for when there is.
//! * A request for a hole is withheld like any acknowledgement, since the
//!   number it must name opens a window.
//! * An empty packet carries the number of the next one that takes one. If that
//!   reveals a hole nobody knew of, it is asked for as well.

use super::config::Config;
use super::outcome::{DropReason, Room};
use super::rtt::{doubled, Rtt};
use super::seq::Seq;
use super::timers::{from_micros, is_due, Nanos, ACK_DELAY, REQUEST_MAX};
use super::wire::{flags, Header};

/// When an acknowledgement is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Not,
    At(Nanos),
    Now,
}

/// A packet that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Its number was not used up: it takes none.
    Empty,
    Data,
    Fin,
}

#[derive(Clone, Debug)]
pub(super) struct Receiver {
    /// The number of the other side's SYN.
    irs: Seq,
    /// The number taken next.
    expected: Seq,
    /// The acknowledgement number that left last.
    given: Seq,
    /// Behind the highest number known to be in use.
    seen: Seq,
    /// The FIN has been taken.
    fin: bool,
    /// Between TXS and TXF.
    receiving: bool,
    /// R3: due acknowledgements are withheld.
    congested: bool,
    /// Packets taken since `given` was.
    since: u16,
    due: Due,
    /// An answer is due, congested or not.
    answer: bool,
    /// A request is due.
    request: bool,
    /// The expected number as which a hole was asked for.
    asked: Option<Seq>,
    /// A packet was dropped for want of room.
    starved: bool,
    /// When the request timer started.
    quiet: Nanos,
    /// Its expirations without progress.
    tries: u8,
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
            answer: false,
            request: false,
            asked: None,
            starved: false,
            quiet: now,
            tries: 0,
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
        self.answer = false;
        self.request = false;
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
            self.answer = true;
            return Ok(Taken::Fin);
        }
        if self.lacks_room(header.seq, room, config) {
            return Err(DropReason::NoRoom);
        }
        self.advance(now);
        self.since = self.since.saturating_add(1);
        self.congested = is_congested(room, room.packet, config);
        self.owe(header, config, now);
        Ok(Taken::Data)
    }

    #[inline]
    fn advance(&mut self, now: Nanos) {
        self.expected = self.expected.add(1);
        if self.seen.before(self.expected) {
            self.seen = self.expected;
        }
        self.asked = None;
        self.request = false;
        self.starved = false;
        self.quiet = now;
        self.tries = 0;
    }

    /// Decides how soon data just taken is acknowledged (R2).
    #[inline]
    fn owe(&mut self, header: &Header, config: &Config, now: Nanos) {
        let starts = header.has(flags::TXS);
        let ends = header.has(flags::TXF);
        if ends {
            self.receiving = false;
        } else if starts {
            self.receiving = true;
        }
        // Behind the end of one message others are known to be missing: their
        // sender goes on at once when it hears of this one.
        let behind = ends && self.expected.before(self.seen);
        if (starts && !ends) || behind || self.since >= config.packets_to_ack {
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
        } else if seq.after(self.seen) && !self.fin {
            self.hole(seq, lost);
            self.seen = seq;
        }
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
        let behind = header.seq.add(1);
        if self.seen.before(behind) {
            self.seen = behind;
        }
        DropReason::OutOfSequence
    }

    /// Asks for what lies before `seq`, once (R1).
    fn hole(&mut self, seq: Seq, lost: &mut u32) {
        if self.asked == Some(self.expected) {
            return;
        }
        self.asked = Some(self.expected);
        self.request = true;
        *lost = u32::from(self.expected.distance(seq));
    }

    /// Whether a packet is to be dropped for want of room: only one that was
    /// not granted.
    #[inline]
    fn lacks_room(&mut self, seq: Seq, room: Room, config: &Config) -> bool {
        let lacks = room.queued >= room.limit && self.given.distance(seq) >= config.window();
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
        if self.congested {
            return;
        }
        if self.starved {
            self.starved = false;
            self.asked = Some(self.expected);
            self.request = true;
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

    /// The acknowledgement number that a packet leaving now carries.
    #[inline]
    pub(super) fn ack_number(&self) -> Seq {
        if self.congested {
            self.given
        } else {
            self.expected
        }
    }

    /// Whether a request is to leave now.
    #[inline]
    pub(super) fn request_leaves(&self) -> bool {
        self.request && !self.congested
    }

    /// Whether an acknowledgement is to leave now, in a packet of its own if
    /// there is none to carry it.
    #[inline]
    pub(super) fn ack_leaves(&self) -> bool {
        self.answer || (self.due == Due::Now && !self.congested)
    }

    /// A packet left with [`ack_number`](Self::ack_number), a request if
    /// `requested`.
    #[inline]
    pub(super) fn ack_left(&mut self, requested: bool, now: Nanos) {
        self.answer = false;
        if requested {
            self.request = false;
        }
        if !self.congested {
            self.given = self.expected;
            self.since = 0;
            self.due = Due::Not;
            self.quiet = now;
        }
    }

    /// The request timer (R4): runs while data is coming and the last
    /// acknowledgement has left.
    #[inline]
    fn request_timer(&self, config: &Config, rtt: &Rtt) -> Option<Nanos> {
        let runs = self.receiving && !self.congested && !self.request && self.due != Due::Now;
        if !runs {
            return None;
        }
        let least = from_micros(config.round_trip_time);
        let base = rtt.smoothed().saturating_mul(2).max(least);
        let timeout = doubled(base, self.tries).min(REQUEST_MAX.max(least));
        Some(self.quiet.saturating_add(timeout))
    }

    /// The delayed acknowledgement's timer.
    #[inline]
    fn ack_timer(&self) -> Option<Nanos> {
        match self.due {
            Due::At(at) if !self.congested => Some(at),
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
            self.request = true;
            self.asked = Some(self.expected);
            self.tries = self.tries.saturating_add(1);
            self.quiet = now;
        }
        if is_due(self.ack_timer(), now) {
            self.due = Due::Now;
        }
    }
}

/// R3: whether the receive queue, with `more` bytes added, cannot take another
/// burst of full packets. An empty queue always can.
#[inline]
fn is_congested(room: Room, more: u32, config: &Config) -> bool {
    let queued = room.queued.saturating_add(more);
    let burst = u32::from(config.window()).saturating_mul(room.packet);
    queued > 0 && room.limit.saturating_sub(queued) < burst
}
