// SPDX-License-Identifier: GPL-2.0

//! What a receiver learns of the sender's window.
//!
//! The sender's SYN tells its `burst_length` and `initial_ack_burst_length`, unless
//! it has no options, and they may change later. A receiver that acknowledges
//! every `packets_to_ack` packets trusts that the window is larger. If it
//! is not, the sender stops short of the next acknowledgement. Its receiver then
//! probes, the probe's acknowledgement opens the window, and the sender goes on.
//! A packet that was merely late looks the same. But a window ends at the same
//! distance from the last advertised number each time, and nothing comes from beyond it.

use super::config::Config;
use super::options::Window;

/// For so many windows one that was proven is relied upon: the sender's parameters
/// may change, and a slow line may have looked like a small window. One more wait
/// then proves it anew.
const LEASE: u16 = 256;

/// Of a window that was granted no more are awaited: 150 packets are in flight at 100 Gbit/s while
/// an acknowledgement travels, and the largest window is 255.
const MOST_TO_ACK: u16 = 96;

/// The sender's window, as far as it has shown it; distances are in packets from
/// the last advertised acknowledgement number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PeerWindow {
    /// Where the sender stopped last, 0 for never.
    stopped: u16,
    /// The farthest packet taken since.
    farthest: u16,
    /// Where it stopped twice.
    proven: u16,
    /// Packets for which that holds.
    lease: u16,
    /// The window that the sender's SYN told, raised by packets from beyond it; or the
    /// one that it was granted.
    advertised: Option<Window>,
    /// Whether it was granted.
    granted: bool,
    /// Twice the largest window that was ever told or granted; 0 if none was.
    span: u16,
}

impl PeerWindow {
    /// The sender has told its parameters.
    pub(super) fn set_advertised(&mut self, window: Window) {
        self.advertised = Some(window);
        self.widen_span(window.burst_length);
    }

    /// The sender may have a window of so many packets.
    pub(super) fn widen_span(&mut self, window: u16) {
        self.span = self.span.max(window.saturating_mul(2));
    }

    /// How far the number of a packet may be from the expected one, behind or in front: twice
    /// the largest window. `None` if nothing is known of the sender's window.
    #[inline]
    pub(super) fn span(&self) -> Option<u16> {
        (self.span > 0).then_some(self.span)
    }

    /// The sender is granted a window, from an acknowledgement on that is sent now.
    #[inline]
    pub(super) fn grant(&mut self, window: Window) {
        self.advertised = Some(window);
        self.granted = true;
        self.widen_span(window.burst_length);
    }

    /// The sender is given its own parameters back, from an acknowledgement on that is sent now.
    /// Packets of a larger window may arrive later and raise them: the next call undoes that.
    pub(super) fn end_grants(&mut self, own: Window) {
        if self.granted {
            *self = Self {
                span: self.span,
                ..Self::default()
            };
        }
        self.advertised = Some(own);
    }

    /// How many packets may follow an announcement that is not acknowledged.
    #[inline]
    pub(super) fn unscheduled(&self, config: &Config) -> u16 {
        match &self.advertised {
            Some(advertised) => advertised.initial_ack_burst_length,
            None => config.initial_ack_burst_length,
        }
    }

    /// So many data packets were taken, the last one at this distance.
    #[inline]
    pub(super) fn take(&mut self, distance: u16, packets: u16) {
        self.farthest = self.farthest.max(distance);
        // The window is no smaller than that.
        self.proven = self.proven.max(distance);
        if let (Some(advertised), false) = (&mut self.advertised, self.granted) {
            advertised.burst_length = advertised.burst_length.max(distance);
        }
        self.lease = self.lease.saturating_sub(packets);
    }

    /// The sender stopped at this distance, and went on after a probe that opened
    /// its window. `true` if its window may end there.
    pub(super) fn on_stop(&mut self, distance: u16) -> bool {
        let may_end = self.farthest <= distance;
        if may_end && distance == self.stopped {
            self.proven = distance;
            self.lease = distance.saturating_mul(LEASE);
        }
        self.stopped = distance;
        self.farthest = 0;
        may_end
    }

    /// How many packets make an acknowledgement due: of a smaller window, and of one that was
    /// granted, half, so that the sender need not wait for it. To a sender that is `near` three
    /// quarters of a window that was granted are as good, and take fewer acknowledgements.
    #[inline]
    pub(super) fn packets_to_ack(&self, near: impl FnOnce() -> bool, config: &Config) -> u16 {
        let window = match &self.advertised {
            _ if self.lease > 0 => self.proven,
            Some(advertised) => advertised.burst_length,
            None => return config.packets_to_ack,
        };
        if self.granted && window > config.window() {
            MOST_TO_ACK.min(if near() { window / 4 * 3 } else { window / 2 })
        } else {
            config.packets_to_ack.min((window / 2).max(1))
        }
    }

    /// The window that an acknowledgement opens.
    #[inline]
    pub(super) fn window(&self, config: &Config) -> u16 {
        match &self.advertised {
            _ if self.lease > 0 && !self.granted => config.window().min(self.proven),
            _ if self.lease > 0 => self.proven,
            Some(advertised) => advertised.burst_length,
            None => config.window(),
        }
    }
}
