// SPDX-License-Identifier: GPL-2.0

//! Decides which numbers the peer may use now, and processes its skips.
//!
//! * A packet whose number is far from the expected one is stale or forged. The receiver ignores
//!   such a packet completely.
//! * A sender whose packets have become too large *skips* their numbers: see the sender's
//!   [pause](super::super::sender). From then on the receiver takes none of these numbers. The
//!   receiver's answer carries the number that the receiver expected before the skip. The receiver
//!   answers each repeated skip, until a packet shows that the sender has the answer.

use super::super::config::LARGEST_WINDOW;
use super::super::seq::Seq;
use super::{Receiver, Request};

impl Receiver {
    /// Returns the next expected number.
    #[inline]
    pub(in super::super) fn expected(&self) -> Seq {
        self.expected
    }

    /// Returns whether the peer may send a packet with this number now. All packets that the peer
    /// has sent lie within one window after the peer's first unacknowledged number, and so does the
    /// expected number. So a packet's number is at most a window ahead of the expected number. If
    /// acknowledgements were lost, it is at most a window behind. A probe's number is one less than
    /// the peer's first unacknowledged number. The span of two windows allows for a sender that
    /// exceeds its window.
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

    /// Returns the number of times that numbers have wrapped at `seq`.
    pub(in super::super) fn wraps_at(&self, seq: Seq) -> u16 {
        self.wrapped.count_at(self.expected, seq)
    }

    /// Notes that a peer that has not advertised its window uses at most `window`.
    pub(in super::super) fn widen_span(&mut self, window: u16) {
        self.peer.widen_span(window);
    }

    /// Handles a skip: the sender skips the numbers from the expected one up to the one before
    /// `to`. `una` is the sender's first unacknowledged number, which a forger does not know.
    #[cold]
    pub(super) fn on_skip(&mut self, una: Seq, to: Seq) {
        if self.skipped.is_some_and(|(_, last)| last == to) {
            // The peer has not received the answer to this skip, so the answer is due again.
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
        // Advance by the number of skipped numbers, so that skipped numbers do not use up the
        // window.
        self.last_advertised = self.last_advertised.add(skipped);
        self.allowed = self.allowed.add(skipped);
        self.announced = self.announced.map(|start| start.add(skipped));
        self.requested_at = None;
        self.dropped_for_room = false;
        self.timed = None;
        self.end_probing();
        self.request = Request::Skipped;
    }

    /// Takes the pending answer to a skip: the first skipped number, and the number after the last
    /// one.
    #[cold]
    pub(in super::super) fn take_skipped(&mut self) -> Option<(Seq, Seq)> {
        if self.request != Request::Skipped {
            return None;
        }
        self.request = Request::Not;
        self.skipped
    }

    /// Notes that the sender has used the numbers before `behind`.
    #[inline]
    pub(super) fn note_seen(&mut self, behind: Seq) {
        if self.seen.before(behind) {
            self.seen = behind;
        }
    }
}
