// SPDX-License-Identifier: GPL-2.0-only

//! Describes how a simulated network differs from a network with equally fast links and one switch.

use esp::Nanos;
use serde::Serialize;

use crate::network::Rate;

/// Maximum number of frames by which a late frame is overtaken. These frames were sent after it.
pub const MOST_PLACES: u64 = 3;

/// Factor by which the links of the hosts in [`Conditions::slow`] are slower than the others.
pub const SLOW: u64 = 10;

/// How a network deviates from equally fast links around one switch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Conditions {
    /// Share of late frames, 0 to 1. A late frame arrives after 1 to [`MOST_PLACES`] frames that
    /// were sent later.
    pub late: f64,
    /// Time for which a host's card collects received frames before it interrupts the host,
    /// nanoseconds.
    pub coalescing: Nanos,
    /// Number of links of each host. Packets use the links in turn, as in a balance-rr bond. Each
    /// link, called a lane, has a switch of its own. A packet takes longer through each lane than
    /// through the previous lane, by the time of two full frames.
    pub lanes: u32,
    /// Numbers of the hosts whose links are slower by the factor [`SLOW`].
    pub slow: Vec<u32>,
    /// The link between two switches; `None` if all hosts are at one switch.
    pub uplink: Option<Uplink>,
}

/// A link between two switches, with the same rate in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Uplink {
    /// The number of hosts at the first switch. They have the lowest numbers, and the others are at
    /// the second switch.
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
    /// Returns whether the network has none of the deviations that this type describes.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the rate of a host's link: `rate`, or less if the host is in [`Self::slow`].
    pub fn rate_of(&self, host: u32, rate: Rate) -> Rate {
        let part = if self.slow.contains(&host) { SLOW } else { 1 };
        Rate {
            bits: rate.bits / part,
            ..rate
        }
    }
}

impl Uplink {
    /// Returns the number of the switch to which a host is connected: 0 or 1.
    pub fn switch_of(&self, host: u32) -> usize {
        usize::from(host >= self.first)
    }
}
