// SPDX-License-Identifier: GPL-2.0

//! The protocol's parameters, and the counters of a connection.

use super::timers::{from_micros, from_millis, Nanos, ACK_DELAY, MICROSECOND};
use super::wire::{MOST_NARROW, MOST_WIDE_START};

/// The largest window that serial numbers allow.
pub(super) const LARGEST_WINDOW: u16 = 0x7fff;

/// The largest window that a receiver grants, in packets. A receiver believes numbers up to twice
/// the window before and after the expected one, so these are an eighth of all numbers. A number
/// that is older by a wrap is 65,536 packets away, and comparisons are right up to 32,767.
pub const LARGEST_GRANT: u16 = 2040;

/// The protocol's parameters, as under `/proc/sys/esp/` (Treydte 2007).
///
/// The caller checks ranges. Values out of range cannot harm the engine; 0 counts as 1 where a 0
/// would stop the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The window during bulk transfer, in packets: 1 to 32767. If `burst_length_max` is larger,
    /// this is the initial and minimum window.
    pub burst_length: u16,
    /// The largest window that this host grants as a receiver, and that it uses as a sender. Above
    /// 255 packets it counts only in connections whose checksums have masks.
    pub burst_length_max: u16,
    /// The number of packets that may follow an unacknowledged announcement: 0 up to
    /// `burst_length`.
    pub initial_ack_burst_length: u16,
    /// The number of received packets that make an acknowledgement due: 1 up to `burst_length`.
    pub packets_to_ack: u16,
    /// A receiver waits at least this many microseconds before it probes for missing packets.
    pub round_trip_time: u32,
    /// The minimum retransmission timeout, in microseconds.
    pub retransmission_time_min: u32,
    /// The time, in milliseconds, for which a peer may be silent while it owes an answer.
    pub user_timeout: u32,
    /// The connections whose packets the caller keeps if they arrive out of order.
    pub selective: Selective,
}

/// The connections in which a host supports requests that name packets, and keeps packets that
/// arrive out of order: see [`Outcome::keep`](super::Outcome::keep). A forger needs fewer frames
/// for a connection that keeps packets, because more sequence numbers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Selective {
    /// None.
    Never,
    /// All connections.
    Always,
    /// Connections whose checksums have masks, which a forger would have to guess.
    WithMasks,
}

impl From<bool> for Selective {
    fn from(always: bool) -> Self {
        if always {
            Self::Always
        } else {
            Self::Never
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Config {
    /// The parameters of a host that sets none.
    pub const DEFAULT: Self = Self {
        burst_length: 21,
        burst_length_max: LARGEST_GRANT,
        initial_ack_burst_length: 1,
        packets_to_ack: 10,
        round_trip_time: 200,
        // This minimum covers several delayed acknowledgements. A packet in a port's buffer is not
        // lost, so the minimum also covers the time in which a port sends a full buffer of 128 KiB
        // at 100 Mbit/s.
        retransmission_time_min: 10_000,
        user_timeout: 15_000,
        selective: Selective::WithMasks,
    };

    /// Returns the window: at least one packet, and at most [`LARGEST_WINDOW`].
    #[inline]
    pub(super) fn window(&self) -> u16 {
        self.burst_length.clamp(1, LARGEST_WINDOW)
    }

    /// Returns the parameters with a window of at most `most` packets.
    pub(super) fn with_window_up_to(self, most: u16) -> Self {
        if self.burst_length <= most {
            return self;
        }
        let largest = if self.is_adaptive() {
            self.burst_length_max
        } else {
            most
        };
        Self {
            burst_length: most,
            burst_length_max: largest,
            ..self
        }
    }

    /// Returns whether windows adapt, that is, a receiver grants windows and the sender uses them.
    #[inline]
    pub fn is_adaptive(&self) -> bool {
        self.burst_length_max > self.burst_length
    }

    /// Returns the largest granted window that this side accepts as a sender; 0 if it accepts no
    /// grants. A wide grant has no room for a larger `initial_ack_burst_length` than
    /// [`MOST_WIDE_START`].
    pub(super) fn largest_grant(&self) -> u16 {
        let has_room = self.initial_ack_burst_length <= MOST_WIDE_START.into();
        let most = if has_room { LARGEST_GRANT } else { MOST_NARROW };
        if self.is_adaptive() {
            self.burst_length_max.min(most)
        } else {
            0
        }
    }

    /// Returns the minimum retransmission timeout.
    #[inline]
    pub(super) fn least_timeout(&self) -> Nanos {
        from_micros(self.retransmission_time_min.max(1))
    }

    /// Returns the shorter one of two times: the minimum retransmission timeout, and the delay of
    /// an acknowledgement.
    #[inline]
    pub(super) fn shortest_timer(&self) -> Nanos {
        const ACK_DELAY_MICROS: u32 = (ACK_DELAY / MICROSECOND) as u32;
        if self.retransmission_time_min >= ACK_DELAY_MICROS {
            return ACK_DELAY;
        }
        self.least_timeout()
    }

    /// Returns the time for which a peer may be silent while it owes an answer.
    #[inline]
    pub(super) fn patience(&self) -> Nanos {
        from_millis(self.user_timeout)
    }
}

/// The counters that `ESP_SO_STATS` reports, in its layout: eight `u32` in host
/// byte order. They wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Stats {
    /// Number of packets sent, including empty ones and retransmissions.
    pub pkt_tx: u32,
    /// Number of retransmissions of data, SYN and FIN.
    pub pkt_rtx: u32,
    /// Number of packets that the device did not accept; counted by the caller.
    pub tx_err: u32,
    /// Number of packets that reached the connection.
    pub pkt_rx: u32,
    /// Number of received packets with a number other than the expected one.
    pub pkt_rx_oos: u32,
    /// Number of received packets that were dropped for a reason other than their number.
    pub pkt_rx_drop: u32,
    /// Number of packets found missing because a later packet arrived.
    pub seq_lost: u32,
    /// Number of retransmission requests sent.
    pub arq_tx: u32,
}
