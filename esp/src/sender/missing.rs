// SPDX-License-Identifier: GPL-2.0

//! Selective retransmission: only the packets that the peer names as missing are retransmitted.
//!
//! Requests are untrusted. Numbers that were not sent, or are outside the window, are ignored, and
//! no packet is retransmitted twice by name within the guard time. Requests without names are
//! limited separately. So forged requests of both kinds together cost the window and
//! [`MOST`](super::super::bits::MOST) packets in that time.

use super::super::bits::Bits;
use super::super::config::Config;
use super::super::outcome::WriteQueue;
use super::super::rtt::Rtt;
use super::super::seq::Seq;
use super::super::timers::Nanos;
use super::{Outgoing, Sender};

/// Sets of packets, by their distance from the first unacknowledged one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Missing {
    /// Whether `named` or `retransmitted` has packets. If not, the handling of acknowledgements
    /// reads no other field.
    active: bool,
    /// Whether `named` has packets.
    due: bool,
    /// Packets that a request has named and that are to be retransmitted.
    named: Bits,
    /// Packets that were retransmitted since `since`.
    retransmitted: Bits,
    /// The time at which the first packet of `retransmitted` was named.
    since: Nanos,
}

impl Missing {
    /// Returns whether a named packet is to be retransmitted.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    /// Returns the distance from the first unacknowledged packet to the first packet that is to be
    /// retransmitted.
    #[inline]
    pub(super) fn first(&self) -> Option<u16> {
        if self.due {
            self.named.first()
        } else {
            None
        }
    }

    /// Shifts the sets, because `packets` packets were acknowledged.
    #[inline]
    pub(super) fn shift(&mut self, packets: u16) {
        if self.active {
            self.take_out(packets);
        }
    }

    #[cold]
    #[inline(never)]
    fn take_out(&mut self, packets: u16) {
        self.named = self.named.from(packets);
        self.retransmitted = self.retransmitted.from(packets);
        self.settle();
    }

    fn settle(&mut self) {
        self.due = !self.named.is_empty();
        self.active = self.due || !self.retransmitted.is_empty();
    }

    /// Forgets the named packets, because the sender goes back to the first unacknowledged packet.
    #[inline]
    pub(super) fn end(&mut self) {
        if self.active {
            self.named = Bits::default();
            self.due = false;
        }
    }
}

impl Sender {
    /// Processes a request that names missing packets by their distance from `ack`, the
    /// acknowledgement number of the request. The caller has already processed that
    /// acknowledgement.
    pub(in super::super) fn on_named(
        &mut self,
        ack: Seq,
        named: &[u8],
        config: &Config,
        rtt: &Rtt,
        now: Nanos,
    ) {
        if !self.is_outstanding() || self.is_paused() {
            return;
        }
        let guard = Self::guard(config, rtt);
        if self.missing.retransmitted.is_empty() && self.was_just_sent(guard, now) {
            return;
        }
        let window = self
            .window(config)
            .saturating_sub(self.window_start.distance(self.una));
        let sent = self.una.distance(self.next).min(window);
        let mut named = Bits::parse(named)
            .from(ack.distance(self.una))
            .intersection(Bits::below(sent));
        if now.saturating_sub(self.missing.since) >= guard {
            self.missing.retransmitted = Bits::default();
        }
        named = named.without(self.missing.retransmitted);
        if named.is_empty() {
            return;
        }
        if self.missing.retransmitted.is_empty() {
            self.missing.since = now;
        }
        self.missing.named = self.missing.named.union(named);
        self.missing.settle();
        if named.has(0) {
            self.resend_first = false;
        }
        self.restart_timer(config, rtt, now);
    }

    /// Retransmits missing packets, the first of them at the distance `first`.
    #[cold]
    #[inline(never)]
    pub(super) fn resend_missing(
        &mut self,
        first: u16,
        now: Nanos,
        queue: &mut impl WriteQueue,
    ) -> Outgoing {
        let seq = self.una.add(first);
        let outgoing = self.retransmit(seq, self.missing.named.run_from(first), queue);
        let sent = Bits::run(first, outgoing.count);
        self.missing.named = self.missing.named.without(sent);
        self.missing.retransmitted = self.missing.retransmitted.union(sent);
        self.missing.settle();
        if first == 0 {
            self.una_sent_at = Some((seq, now));
        }
        outgoing
    }
}
