// SPDX-License-Identifier: GPL-2.0

//! The request timer makes the receiver probe for a missing packet. It is based on measured round
//! trips. Choices beyond Reinhardt 2006 and Treydte 2007:
//!
//! * The request timer (R4) does not request missing packets: they may be queued in a switch, and a
//!   retransmitted burst would lengthen that queue. Instead, the timer makes the receiver *probe*
//!   with an empty packet that has an earlier number. The peer sends the answer after all its
//!   earlier packets, and Ethernet does not reorder packets. So a packet that the answer shows to
//!   be missing is lost, and the receiver requests it. If the missing packet arrives before the
//!   answer, it was late, and the measured round trip becomes longer.
//! * The request timer is based on a round trip: the time from an acknowledgement to the first
//!   packet that it allowed, or from a request to the requested packet. Until the next measurement,
//!   each probe doubles the wait, up to [`REQUEST_MAX`], or up to the first wait if that is longer.
//!   A probe carries an acknowledgement. If this acknowledgement opens the window, either the next
//!   packet was late or the probe allowed it. Then the round trip took at least the time since the
//!   probe, and at most the whole wait.
//! * A sender may have a smaller window than `packets_to_ack`. If probes find the sender stopped
//!   twice at the same distance from the last advertised number, this distance is the sender's
//!   window. From then on the receiver acknowledges in time
//!   ([`PeerWindow`](super::super::peer_window::PeerWindow)).
//! * While packets of other connections arrive at the device, packets of this connection may be
//!   queued behind them in the switch port. So the timer's time is counted from the last arrival of
//!   any packet. This postpones its expiry by at most the time that a port's buffer takes to leave.

use super::super::ack_queue::RoundTrip;
use super::super::config::Config;
use super::super::rtt::{doubled, Rtt};
use super::super::seq::Seq;
use super::super::timers::{
    earlier, from_micros, is_due, Nanos, REQUEST_INITIAL, REQUEST_MAX, RETRANSMIT_MAX,
};
use super::{AckKind, Due, Receiver, Request, Turn};

/// A round trip under measurement: from an acknowledgement to the first packet that it allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Timed {
    pub(super) seq: Seq,
    pub(super) sent_at: Nanos,
    /// The time at which the most recent probe was sent, if this probe rather than the
    /// acknowledgement may have allowed the packet; otherwise equal to `sent_at`.
    pub(super) probed: Nanos,
    /// The window before the turn in which the acknowledgement was sent, or 0 if other connections
    /// waited for turns.
    pub(super) window: u16,
}

/// A probe that has opened the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OpeningProbe {
    /// The sender had stopped at this distance from the last advertised number.
    distance: u16,
    /// The time at which the most recent probe was sent.
    sent_at: Nanos,
}

/// The state of probing for the expected packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Probing {
    /// Whether a probe is due.
    pub(super) due: bool,
    /// The time when the wait for the packet began.
    pub(super) since: Nanos,
    pub(super) opened: Option<OpeningProbe>,
}

impl Receiver {
    /// Ends the measurement `timed`, because the packet that it waits for has arrived. Returns
    /// whether the exact round trip is known.
    #[inline]
    pub(super) fn measure(&mut self, timed: Timed, now: Nanos) -> bool {
        self.timed = None;
        let most = now.saturating_sub(timed.sent_at);
        let known = timed.probed == timed.sent_at;
        if known {
            self.grants.note_time(timed.window, most, now);
            let least = self.grants.least_time();
            self.samples.round_trip = least.map(|least| RoundTrip { last: most, least });
            self.turnaround.sample(most);
            self.probes = 0;
        } else if self.turnaround.is_known() {
            self.turnaround
                .sample_between(now.saturating_sub(timed.probed), most);
        }
        known
    }

    /// Notes the round trip of the handshake.
    pub(in super::super) fn note_round_trip(&mut self, time: Nanos, now: Nanos) {
        self.grants.note_time(0, time, now);
    }

    /// Handles the arrival of a packet for which the receiver has probed: the packet was late, not
    /// lost.
    #[cold]
    pub(super) fn on_late_packet(&mut self, probing: Probing, now: Nanos) {
        let most = now.saturating_sub(probing.since);
        let Some(OpeningProbe { distance, sent_at }) = probing.opened else {
            self.turnaround.sample(most);
            return;
        };
        let least = now.saturating_sub(sent_at);
        let may_end = self.peer.on_stop(distance);
        if self.turnaround.is_known() {
            self.turnaround.sample_between(least, most);
        } else if may_end {
            self.turnaround.sample(least);
        }
        if may_end {
            // The sender may have stopped at the end of its window. So this wait does not show that
            // the path became slower.
            self.probes = 0;
        }
    }

    /// Ends probing, because a packet that was sent after the missing one has arrived.
    pub(super) fn end_probing(&mut self) {
        self.probing = None;
    }

    /// Clears the pending probe for the expected packet, and returns whether there was one.
    #[inline]
    pub(in super::super) fn take_probe(&mut self) -> bool {
        self.probing
            .as_mut()
            .is_some_and(|probing| core::mem::take(&mut probing.due))
    }

    /// Notes that a probe was sent, whatever its reason. The answer to each probe restarts the
    /// request timer. Liveness probes of an idle connection may be sent more often than this timer
    /// expires, so the answers to these probes must show lost packets, too.
    pub(in super::super) fn on_probe_sent(&mut self, now: Nanos) {
        if !self.is_scheduled() || self.turn != Turn::Not || self.request != Request::Not {
            return;
        }
        let mut probing = self.probing.unwrap_or(Probing {
            due: false,
            since: self.last_progress,
            opened: None,
        });
        let distance = self.last_advertised.distance(self.expected);
        if distance > 0 {
            probing.opened = Some(OpeningProbe {
                distance,
                sent_at: now,
            });
        } else if let Some(probe) = &mut probing.opened {
            probe.sent_at = now;
        }
        if let (Some(timed), Some(_)) = (&mut self.timed, probing.opened) {
            timed.probed = now;
        }
        self.probing = Some(probing);
    }

    /// Starts to measure the time from an acknowledgement of the kind `kind`, which is sent now, to
    /// the first packet that it allows. Only acknowledgements that get a turn are measured, and
    /// requests that are the first to name the expected packet.
    #[inline]
    pub(super) fn time(&mut self, kind: AckKind, now: Nanos) {
        if kind == AckKind::Request && self.names_expected() {
            self.timed = (!self.names_expected_again()).then_some(Timed {
                seq: self.expected,
                sent_at: now,
                probed: now,
                window: 0,
            });
        } else if self.timed.is_none() && self.turn == Turn::Granted {
            let window = if self.announced.is_none() && self.immediate_turn {
                self.last_advertised.distance(self.allowed)
            } else {
                0
            };
            self.timed = Some(Timed {
                seq: self.allowed,
                sent_at: now,
                probed: now,
                window,
            });
        }
    }

    /// Returns the time at which the request timer (R4) expires. The timer runs within a
    /// transmission while no acknowledgement is due.
    #[inline]
    pub(in super::super) fn request_timer(&self, config: &Config, rtt: &Rtt) -> Option<Nanos> {
        earlier(self.probe_timer(config, rtt), self.hole_timer(config, rtt))
    }

    /// Returns the time at which the receiver probes for the expected packet.
    #[inline]
    fn probe_timer(&self, config: &Config, rtt: &Rtt) -> Option<Nanos> {
        let runs = self.is_scheduled()
            && self.turn == Turn::Not
            && self.request == Request::Not
            && self.due != Due::Now;
        if !runs {
            return None;
        }
        let latest = self.last_progress.saturating_add(self.grants.port_delay());
        let from = self.last_device_rx.max(self.last_progress).min(latest);
        let mut patience = self.patience(config, rtt);
        if self.turnaround.smoothed() == 0 {
            patience = patience.max(REQUEST_INITIAL);
        }
        Some(from.saturating_add(patience))
    }

    /// Returns the time for which the receiver waits for a packet before it probes.
    #[inline]
    pub(super) fn patience(&self, config: &Config, rtt: &Rtt) -> Nanos {
        let least = from_micros(config.round_trip_time);
        let mean = rtt.smoothed().max(self.turnaround.smoothed());
        let base = mean.saturating_mul(2).min(RETRANSMIT_MAX).max(least);
        doubled(base, self.probes).min(REQUEST_MAX.max(base))
    }

    /// Handles an expired request timer: makes a probe due.
    pub(in super::super) fn on_request_timer(&mut self, config: &Config, rtt: &Rtt, now: Nanos) {
        let probes = is_due(self.probe_timer(config, rtt), now);
        if is_due(self.hole_timer(config, rtt), now) {
            self.on_hole_timer(config, rtt, now);
        }
        if !probes {
            return;
        }
        let mut probing = self.probing.unwrap_or(Probing {
            due: true,
            since: self.last_progress,
            opened: None,
        });
        probing.due = true;
        self.probing = Some(probing);
        self.probes = self.probes.saturating_add(1);
        self.last_progress = now;
    }
}
