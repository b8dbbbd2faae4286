// SPDX-License-Identifier: GPL-2.0

//! Recovery from losses: retransmission requests and the retransmission timer.

use super::super::config::Config;
use super::super::rtt::{handshake_timeout, Rtt};
use super::super::seq::Seq;
use super::super::timers::{from_micros, Nanos, WINDOW_PROBE_MIN};
use super::Sender;

impl Sender {
    /// Returns how long the retransmission timer runs until it expires.
    #[inline]
    pub(super) fn timeout(&self, config: &Config, rtt: &Rtt) -> Nanos {
        let timeout = rtt.timeout(config.least_timeout(), self.tries);
        if self.is_blocked() {
            timeout.max(WINDOW_PROBE_MIN)
        } else {
            timeout
        }
    }

    /// Returns whether a packet is outstanding that the peer cannot request (S3).
    #[inline]
    pub(super) fn needs_timer(&self) -> bool {
        !self.syn_acked
            || self.announced.is_some_and(|s| !s.before(self.una))
            || self.last_txf.is_some()
            || (self.has_sent_fin() && self.una != self.high)
            || self.is_blocked()
    }

    /// Goes back to the first unacknowledged packet, as requested (S8). The sender ignores a
    /// request for a packet that it has only just sent. Such a request repeats an earlier one, or
    /// has crossed the packet. The receiver requests the packet again if necessary. The sender also
    /// ignores a request for packets that have since been acknowledged.
    pub(in super::super) fn on_request(
        &mut self,
        ack: Seq,
        config: &Config,
        rtt: &Rtt,
        now: Nanos,
    ) {
        if ack != self.una || !self.is_outstanding() || self.is_paused() {
            return;
        }
        if self.was_just_sent(Self::guard(config, rtt), now) {
            return;
        }
        self.go_back();
        self.recover = None;
        self.restart_timer(config, rtt, now);
    }

    /// Retransmits everything from the first unacknowledged packet on.
    pub(super) fn go_back(&mut self) {
        self.next = self.una;
        self.resend_first = false;
        self.missing.end();
    }

    /// Returns how long after a packet's transmission the sender ignores requests for the packet.
    pub(super) fn guard(config: &Config, rtt: &Rtt) -> Nanos {
        let mean = rtt.smoothed();
        mean.min(from_micros(config.round_trip_time)).max(mean / 2)
    }

    /// Returns whether the first unacknowledged packet was sent within the last `guard`.
    pub(super) fn was_just_sent(&self, guard: Nanos, now: Nanos) -> bool {
        self.una_sent_at
            .is_some_and(|(seq, at)| seq == self.una && now.saturating_sub(at) < guard)
    }

    /// If the timer runs, restarts it: a request shows that the peer is alive.
    pub(super) fn restart_timer(&mut self, config: &Config, rtt: &Rtt, now: Nanos) {
        if self.timer.is_some() {
            self.timer = Some(now.saturating_add(rtt.timeout(config.least_timeout(), self.tries)));
        }
    }

    /// Returns the time at which the retransmission timer expires.
    #[inline]
    pub(in super::super) fn deadline(&self) -> Option<Nanos> {
        self.timer
    }

    /// Handles an expired retransmission timer. Returns true if the handshake failed, after
    /// `handshake_tries` packets.
    pub(in super::super) fn expire(
        &mut self,
        config: &Config,
        rtt: &Rtt,
        handshake_tries: u8,
        now: Nanos,
    ) -> bool {
        self.tries = self.tries.saturating_add(1);
        if self.is_paused() {
            self.probe = true;
            self.timer = Some(now.saturating_add(rtt.timeout(config.least_timeout(), self.tries)));
            return false;
        }
        if self.is_blocked() {
            self.probe = true;
            self.timer = Some(now.saturating_add(self.timeout(config, rtt)));
            return false;
        }
        if self.syn_acked && self.una == self.high {
            self.timer = None;
            return false;
        }
        self.resend_first = true;
        if self.announced.is_some() {
            self.grants.halve_unscheduled();
        }
        if self.syn_acked {
            self.recover = Some(self.high);
            self.timer = Some(now.saturating_add(rtt.timeout(config.least_timeout(), self.tries)));
            false
        } else {
            self.timer = Some(now.saturating_add(handshake_timeout(self.tries)));
            self.tries >= handshake_tries
        }
    }
}
