// SPDX-License-Identifier: GPL-2.0-only

//! Deviations from a network of equally fast links around one switch.

use esp::Nanos;
use serde::Serialize;

use crate::network::Rate;

/// Maximum number of later frames that overtake a late frame.
pub const MOST_PLACES: u64 = 3;

/// A host of [`Conditions::slow`] has this fraction of the others' rate: one in ten.
pub const SLOW: u64 = 10;

/// The deviations of a network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Conditions {
    /// Share of frames, 0 to 1, that arrive late, after one to [`MOST_PLACES`] frames that were
    /// sent after them.
    pub late: f64,
    /// How long a host's card collects received frames before it interrupts the host, nanoseconds.
    pub coalescing: Nanos,
    /// Links of each host, used in turn as by a bond in balance-rr. Each lane has a switch of its
    /// own; its path is two full frames longer than the previous lane's.
    pub lanes: u32,
    /// Hosts whose links have a [tenth](SLOW) of the rate.
    pub slow: Vec<u32>,
    /// Two switches with a link between them.
    pub uplink: Option<Uplink>,
}

/// A link between two switches, both ways.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Uplink {
    /// Hosts with lower numbers are at the first switch, others at the second.
    pub first: u32,
    /// The uplink's rate.
    pub rate: Rate,
    /// The buffer of the uplink's port in each switch, bytes.
    pub buffer: u32,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            late: 0.0,
            coalescing: 0,
            lanes: 1,
            slow: Vec::new(),
            uplink: None,
        }
    }
}

impl Conditions {
    /// Returns whether the network has no deviation.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the rate of a host's link, where others have `rate`.
    pub fn rate_of(&self, host: u32, rate: Rate) -> Rate {
        let part = if self.slow.contains(&host) { SLOW } else { 1 };
        Rate {
            bits: rate.bits / part,
            ..rate
        }
    }
}

impl Uplink {
    /// Returns the switch of a host: 0 or 1.
    pub fn switch_of(&self, host: u32) -> usize {
        usize::from(host >= self.first)
    }
}
