// SPDX-License-Identifier: GPL-2.0

//! A receiver's knowledge of the sender's window.
//!
//! The sender's SYN advertises its `burst_length` and `initial_ack_burst_length`, unless the SYN
//! has no options. Both parameters may change later. A receiver that acknowledges every
//! `packets_to_ack` packets relies on a window of at least as many packets. If the window is
//! smaller, the sender stops before the next acknowledgement is due. Then the receiver probes, the
//! probe's acknowledgement opens the window, and the sender continues. A packet that is merely late
//! looks like such a stop. But a sender with a small window stops at the same distance from the
//! last advertised number each time, and no packets arrive from beyond that distance.

use super::config::Config;
use super::options::Window;

/// Number of windows for which a proven window stays valid. It does not stay valid for ever,
/// because the sender's parameters may change, and a slow line may have looked like a small window.
/// After these windows, one more stop at the same distance proves the window again.
const LEASE: u32 = 256;

/// In a granted window, an acknowledgement is due after at most this many packets. At 100 Gbit/s,
/// 150 packets are in flight while an acknowledgement travels. So one that is sent after 96 packets
/// arrives after 246 packets, before the sender has used up a window of 255.
const MOST_TO_ACK: u16 = 96;

/// The sender's window as far as it is known. Distances are in packets from the last advertised
/// acknowledgement number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PeerWindow {
    /// The distance from the last advertised number at which the sender last stopped; 0 if it never
    /// stopped.
    stopped: u16,
    /// The distance of the farthest packet taken since the sender last stopped.
    farthest: u16,
    /// The proven window: the distance at which the sender stopped twice.
    proven: u16,
    /// Number of further packets for which `proven` stays valid.
    lease: u32,
    /// The window that this side granted. Without a grant, this is the window that the sender's SYN
    /// advertised, or a larger one if packets from beyond it have arrived.
    advertised: Option<Window>,
    /// Whether `advertised` was granted.
    granted: bool,
    /// The largest number of packets behind an announcement that was granted before `advertised`,
    /// since the last announcement.
    most_unscheduled: u16,
    /// Twice the largest window ever advertised or granted; 0 if there was none.
    span: u16,
}

impl PeerWindow {
    /// Sets the parameters that the sender advertised.
    pub(super) fn set_advertised(&mut self, window: Window) {
        self.advertised = Some(window);
        self.widen_span(window.burst_length);
    }

    /// Raises the span to twice this window, if it is less.
    pub(super) fn widen_span(&mut self, window: u16) {
        self.span = self.span.max(window.saturating_mul(2));
    }

    /// Returns the distance, in either direction, that a packet's number may have from the expected
    /// one: twice the largest window. Returns `None` if the sender's window is unknown.
    #[inline]
    pub(super) fn span(&self) -> Option<u16> {
        (self.span > 0).then_some(self.span)
    }

    /// Sets the window that the acknowledgement being sent grants.
    #[inline]
    pub(super) fn grant(&mut self, window: Window) {
        let before = self.advertised.replace(window);
        let before = before.map_or(0, |before| before.initial_ack_burst_length);
        self.most_unscheduled = self.most_unscheduled.max(before);
        self.granted = true;
        self.widen_span(window.burst_length);
    }

    /// Ends grants: the acknowledgement being sent tells the sender to use its own parameters
    /// again. If packets of a larger window arrive later, they raise `advertised`. The next call of
    /// this function then resets `advertised` to `own`.
    pub(super) fn end_grants(&mut self, own: Window) {
        if self.granted {
            *self = Self {
                span: self.span,
                ..Self::default()
            };
        }
        self.advertised = Some(own);
    }

    /// Returns the number of packets that may follow an unacknowledged announcement.
    #[inline]
    pub(super) fn unscheduled(&self, config: &Config) -> u16 {
        match &self.advertised {
            Some(advertised) => advertised.initial_ack_burst_length,
            None => config.initial_ack_burst_length,
        }
    }

    /// Returns the number of packets that may have followed the announcement that arrives now. It
    /// may have left before the last grant arrived, so the larger one of the last grants counts.
    pub(super) fn take_most_unscheduled(&mut self, config: &Config) -> u16 {
        core::mem::take(&mut self.most_unscheduled).max(self.unscheduled(config))
    }

    /// Notes that `packets` data packets were taken, the last one at this distance.
    #[inline]
    pub(super) fn take(&mut self, distance: u16, packets: u16) {
        self.farthest = self.farthest.max(distance);
        // A packet at this distance has arrived, so the window is at least that large.
        self.proven = self.proven.max(distance);
        if let (Some(advertised), false) = (&mut self.advertised, self.granted) {
            advertised.burst_length = advertised.burst_length.max(distance);
        }
        self.lease = self.lease.saturating_sub(packets.into());
    }

    /// Notes that the sender stopped at this distance, and continued after a probe had opened its
    /// window. Returns whether the window may end there.
    pub(super) fn on_stop(&mut self, distance: u16) -> bool {
        let may_end = self.farthest <= distance;
        if may_end && distance == self.stopped {
            self.proven = distance;
            self.lease = u32::from(distance).saturating_mul(LEASE);
        }
        self.stopped = distance;
        self.farthest = 0;
        may_end
    }

    /// Returns the proven window while it is valid, but no more than was granted.
    #[inline]
    fn leased(&self) -> Option<u16> {
        let granted = self.advertised.as_ref().filter(|_| self.granted);
        let most = granted.map_or(u16::MAX, |granted| granted.burst_length);
        (self.lease > 0).then(|| self.proven.min(most))
    }

    /// Returns the number of packets that make an acknowledgement due. This number is at most half
    /// of a small or a granted window, so that the sender need not wait. For a sender with a short
    /// round trip (`near`), this number is at most three quarters of a granted window, so that
    /// fewer acknowledgements are sent.
    #[inline]
    pub(super) fn packets_to_ack(&self, near: impl FnOnce() -> bool, config: &Config) -> u16 {
        let window = match (self.leased(), &self.advertised) {
            (Some(leased), _) => leased,
            (None, Some(advertised)) => advertised.burst_length,
            (None, None) => return config.packets_to_ack,
        };
        if self.granted && window > config.window() {
            MOST_TO_ACK.min(if near() { window / 4 * 3 } else { window / 2 })
        } else {
            config.packets_to_ack.min((window / 2).max(1))
        }
    }

    /// Returns the window that an acknowledgement opens.
    #[inline]
    pub(super) fn window(&self, config: &Config) -> u16 {
        match (self.leased(), &self.advertised) {
            (Some(leased), _) if self.granted => leased,
            (Some(leased), _) => config.window().min(leased),
            (None, Some(advertised)) => advertised.burst_length,
            (None, None) => config.window(),
        }
    }
}
