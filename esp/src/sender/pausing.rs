// SPDX-License-Identifier: GPL-2.0

//! A pause of the sender: packets that have left are too large to leave again, and are cut anew
//! once it is known which of them the receiver has.

use super::super::seq::Seq;
use super::super::timers::{Nanos, FRAME_LIFE};
use super::super::wire::flags;
use super::Sender;

/// Packets that have left are too large to leave again, so none leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pause {
    /// Frames may still be on their way.
    Quiet,
    /// The receiver is probed.
    Asking,
}

impl Sender {
    /// See [`Connection::pause`](super::super::Connection::pause).
    pub(in super::super) fn pause(&mut self, now: Nanos) {
        self.pause = Some(Pause::Quiet);
        self.resend_first = false;
        self.recover = None;
        self.timed = None;
        self.tries = 0;
        self.timer = Some(now.saturating_add(FRAME_LIFE));
    }

    #[inline]
    pub(in super::super) fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// Whether the pause has told which packets the receiver has: all that were sent,
    /// or those acknowledged just now, if that packet answers the probe (`told`).
    pub(in super::super) fn is_settled(&self, told: bool) -> bool {
        match self.pause {
            None => false,
            Some(Pause::Quiet) => !self.is_outstanding(),
            Some(Pause::Asking) => told || !self.is_outstanding(),
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
        if from.before(self.high) {
            // As if none of these had left.
            if from.before(self.tail) {
                self.open = kept(from) & flags::TXS == 0;
            }
            self.next = from;
            self.high = from;
            self.repeated = false;
            self.announced = self.announced.filter(|s| s.before(from));
            self.finished = self.finished.filter(|s| s.before(from));
            self.first_left = None;
        }
        self.tail = from.add(packets);
    }
}
