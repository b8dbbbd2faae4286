// SPDX-License-Identifier: GPL-2.0

//! The numbers that the other side can use now, and those that it skips.
//!
//! * A packet far from the expected number is stale or forged. Nothing in it counts.
//! * A sender whose packets have become too large *skips* their numbers: see the sender's
//!   [pause](super::super::sender). From then on none of them is taken. The answer tells which
//!   number was expected before, and is repeated until a packet shows that the sender has got it.

use super::super::config::LARGEST_WINDOW;
use super::super::seq::Seq;
use super::{Receiver, Request};

impl Receiver {
    /// The number taken next.
    #[inline]
    pub(in super::super) fn expected(&self) -> Seq {
        self.expected
    }

    /// Whether the other side may send a packet with this number now. All that it has sent lies
    /// within a window of its first unacknowledged number, and so does the expected number. So a
    /// packet has a number at most a window in front of that or, if acknowledgements were lost, a
    /// window behind. A probe has one less. Twice the window covers a sender that exceeds it.
    #[inline]
    pub(in super::super) fn is_plausible(&self, seq: Seq) -> bool {
        if seq == self.expected {
            return true;
        }
        let Some(span) = self.peer.span() else {
            return true;
        };
        let offset = self.expected.sub(span).sub(1).distance(seq);
        u32::from(offset) <= u32::from(span).saturating_mul(2).saturating_add(1)
    }

    /// How often numbers have wrapped at `seq`.
    pub(in super::super) fn wraps_at(&self, seq: Seq) -> u16 {
        self.wrapped.at(self.expected, seq)
    }

    /// The window of the other side, which has not told it, is no larger than this.
    pub(in super::super) fn widen_span(&mut self, window: u16) {
        self.peer.widen_span(window);
    }

    /// The sender skips the numbers before `to` that were not received. `una` is its first
    /// unacknowledged one, which a packet that was made up does not have.
    #[cold]
    pub(super) fn on_skip(&mut self, una: Seq, to: Seq) {
        if self.skipped.is_some_and(|(_, last)| last == to) {
            // The answer was lost.
            self.request = Request::Skipped;
            return;
        }
        let most = self.peer.span().unwrap_or(LARGEST_WINDOW);
        let outstanding = una.distance(to);
        if outstanding > most || una.distance(self.expected) > outstanding {
            return;
        }
        let skipped = self.expected.distance(to);
        if skipped > 0 && self.has_ended() {
            return;
        }
        self.skipped = Some((self.expected, to));
        self.wrapped = self.wrapped.advanced(self.expected, to);
        self.drop_kept();
        self.expected = to;
        self.note_seen(to);
        // Distances from the last advertised number stay as they are.
        self.last_advertised = self.last_advertised.add(skipped);
        self.allowed = self.allowed.add(skipped);
        self.announced = self.announced.map(|start| start.add(skipped));
        self.requested_at = None;
        self.dropped_for_room = false;
        self.timed = None;
        self.end_probing();
        self.request = Request::Skipped;
    }

    /// The numbers that were skipped, if the answer is to leave: the first of them, and the one
    /// behind. The next call says no.
    #[cold]
    pub(in super::super) fn take_skipped(&mut self) -> Option<(Seq, Seq)> {
        if self.request != Request::Skipped {
            return None;
        }
        self.request = Request::Not;
        self.skipped
    }

    /// The numbers before `behind` are known to be in use.
    #[inline]
    pub(super) fn note_seen(&mut self, behind: Seq) {
        if self.seen.before(behind) {
            self.seen = behind;
        }
    }
}
