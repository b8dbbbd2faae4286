// SPDX-License-Identifier: GPL-2.0

//! A pause of the sender: packets that have left are too large to leave again, and are cut anew.
//!
//! No number is used again for other bytes, since a frame with the first ones may still be on its
//! way. So the sender asks the receiver to *skip* the numbers, from the first unacknowledged one to
//! the last that left. The receiver takes none of them from then on, and answers which it expected
//! before: what it has is acknowledged, the rest takes the numbers behind. Until that answer, no
//! other acknowledgement tells anything: the receiver may have skipped what it counts.
//!
//! A receiver that takes no skips may have all of it, and acknowledge it. If it does not for
//! [`FRAME_LIFE`], the connection ends.

use super::super::config::Config;
use super::super::rtt::Rtt;
use super::super::seq::Seq;
use super::super::timers::{Nanos, FRAME_LIFE};
use super::super::wire::{flags, Header};
use super::{Missing, Sender};

/// Packets that have left are too large to leave again, so none leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pause {
    /// The receiver takes no skips, or none is needed and there was no memory to cut the queue.
    Silent,
    /// The receiver is asked to skip.
    Asking,
}

impl Sender {
    /// The receiver takes skips.
    pub(in super::super) fn may_skip(&mut self) {
        self.skips = true;
    }

    /// See [`Connection::may_shrink`](super::super::Connection::may_shrink).
    pub(in super::super) fn may_shrink(&self) -> bool {
        self.skips || !self.is_open() || !self.is_outstanding()
    }

    /// See [`Connection::pause`](super::super::Connection::pause).
    pub(in super::super) fn pause(&mut self, config: &Config, rtt: &Rtt, now: Nanos) {
        self.resend_first = false;
        self.missing = Missing::default();
        self.recover = None;
        self.timed = None;
        self.tries = 0;
        let wait = if self.skips && self.is_outstanding() {
            self.pause = Some(Pause::Asking);
            self.probe = true;
            rtt.timeout(config.least_timeout(), 0)
        } else {
            self.pause = Some(Pause::Silent);
            FRAME_LIFE
        };
        self.timer = Some(now.saturating_add(wait));
    }

    #[inline]
    pub(in super::super) fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// Whether the sender waits without asking.
    pub(in super::super) fn is_silent(&self) -> bool {
        self.pause == Some(Pause::Silent)
    }

    /// The wait is over, and the queue is cut.
    pub(in super::super) fn end_silence(&mut self) {
        self.timer = None;
    }

    /// Whether a skip is to leave. The next call says no.
    pub(in super::super) fn take_skip(&mut self) -> bool {
        self.pause == Some(Pause::Asking) && core::mem::take(&mut self.probe)
    }

    /// Whether acknowledgements may count what the receiver has skipped: only the answer to the
    /// skip tells. The receiver also moves the number that it gave last, which its data repeat
    /// while it is congested.
    #[inline]
    pub(in super::super) fn ignores_acks(&self) -> bool {
        self.pause == Some(Pause::Asking)
    }

    /// Whether a packet is the answer to the skip that left.
    pub(in super::super) fn is_skipped_by(&self, header: &Header) -> bool {
        self.pause == Some(Pause::Asking)
            && header.seq == self.high
            && self.una.distance(header.ack) <= self.una.distance(self.high)
    }

    /// See [`Connection::number_behind`](super::super::Connection::number_behind).
    pub(in super::super) fn number_behind(&self, from: Seq) -> Seq {
        if self.is_unsent(from) {
            from
        } else {
            self.high
        }
    }

    /// See [`Connection::recut`](super::super::Connection::recut).
    pub(in super::super) fn recut(
        &mut self,
        from: Seq,
        packets: u16,
        kept: impl FnOnce(Seq) -> u8,
    ) {
        if self.pause.take().is_some() {
            self.probe = false;
            self.tries = 0;
            self.timer = None;
        }
        let first = self.number_behind(from);
        let skipped = from.distance(first);
        if skipped > 0 {
            // As if none of these had left.
            if from.before(self.tail) {
                self.in_transmission = kept(from) & flags::TXS == 0;
            }
            self.wrapped = self.wrapped.advanced(self.una, first);
            self.missing = Missing::default();
            self.una = first;
            self.next = first;
            // They use up nothing of the window.
            self.window_start = self.window_start.add(skipped);
            self.announced = self.announced.filter(|s| s.before(from));
            self.announced = self.announced.map(|s| s.add(skipped));
            self.last_txf = None;
            self.una_sent_at = None;
            self.repeated = false;
        }
        self.tail = first.add(packets);
    }
}
