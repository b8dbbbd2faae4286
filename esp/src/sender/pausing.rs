// SPDX-License-Identifier: GPL-2.0

//! A pause of the sender, while packets that were sent are too large to retransmit and have to be
//! split again.
//!
//! A number is never reused for other bytes, since the frame that first carried it may still be in
//! flight. Smaller packets with the same bytes therefore need new numbers. So the sender asks the
//! receiver to *skip* the numbers from the first unacknowledged one to the last one sent. From then
//! on the receiver rejects these numbers. The receiver's answer carries the number that the
//! receiver expected before the skip: packets before this number are acknowledged, and later ones
//! take new numbers. Until the answer arrives, the sender ignores other acknowledgement numbers,
//! because they may count skipped packets.
//!
//! A receiver that does not support skips may still acknowledge everything, if it has received
//! everything. If it has not acknowledged everything within [`FRAME_LIFE`], the connection ends.

use super::super::config::Config;
use super::super::rtt::Rtt;
use super::super::seq::Seq;
use super::super::timers::{Nanos, FRAME_LIFE};
use super::super::wire::{flags, Header};
use super::{Missing, Sender};

/// The reason why a paused sender sends nothing from its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pause {
    /// The sender only waits, because the receiver does not support skips, or because everything is
    /// acknowledged but there was no memory to split the queue.
    Silent,
    /// The sender asks the receiver to skip numbers, and repeats this until the receiver answers.
    Asking,
}

impl Sender {
    /// Notes that the receiver accepts skips.
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

    /// Returns whether the sender waits without asking for a skip.
    pub(in super::super) fn is_silent(&self) -> bool {
        self.pause == Some(Pause::Silent)
    }

    /// Stops the timer, because the wait is over and the caller splits the queue.
    pub(in super::super) fn end_silence(&mut self) {
        self.timer = None;
    }

    /// Clears the pending skip, and returns whether there was one.
    pub(in super::super) fn take_skip(&mut self) -> bool {
        self.pause == Some(Pause::Asking) && core::mem::take(&mut self.probe)
    }

    /// Returns whether the sender ignores acknowledgement numbers, because they may count skipped
    /// packets as received. It then believes only the answer to the skip. Even the data packets of
    /// a congested receiver may count skipped packets: they acknowledge the last advertised number,
    /// which a skip advances.
    #[inline]
    pub(in super::super) fn ignores_acks(&self) -> bool {
        self.pause == Some(Pause::Asking)
    }

    /// Returns whether a packet answers the skip that was sent.
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
            // The skipped packets now count as never sent.
            if from.before(self.tail) {
                self.in_transmission = kept(from) & flags::TXS == 0;
            }
            self.wrapped = self.wrapped.advanced(self.una, first);
            self.missing = Missing::default();
            self.una = first;
            self.next = first;
            // Skipped numbers do not use up the window.
            self.window_start = self.window_start.add(skipped);
            self.announced = self.announced.filter(|s| s.before(from));
            self.announced = self.announced.map(|s| s.add(skipped));
            self.last_txf = None;
            self.una_sent_at = None;
            self.repeated = false;
        }
        // If the FIN was sent and acknowledged, it keeps its number.
        if !from.after(self.tail) {
            self.tail = first.add(packets);
        }
    }
}
