// SPDX-License-Identifier: GPL-2.0-only

//! What makes a network another one than links of one rate around one switch.

use esp::Nanos;
use serde::Serialize;

use crate::network::Rate;

/// A late frame comes behind at most so many frames that left after it.
pub const MOST_PLACES: u64 = 3;

/// A host of [`Conditions::slow`] has this part of the others' rate.
pub const SLOW: u64 = 10;

/// How the network differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Conditions {
    /// The part of all frames that come late, behind one to [`MOST_PLACES`] frames that left after
    /// them, 0 to 1.
    pub late: f64,
    /// A host's card collects received frames for so long before it interrupts the host,
    /// nanoseconds.
    pub coalescing: Nanos,
    /// Links of each host, which a bond in balance-rr fills in turn. Each lane has a switch of its
    /// own, and the way by it is two full frames longer than that by the lane before.
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
    /// Its rate.
    pub rate: Rate,
    /// The buffer of its port in each switch, bytes.
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
    /// Whether the network is links of one rate around one switch.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// The rate of a host's link, where others have `rate`.
    pub fn rate_of(&self, host: u32, rate: Rate) -> Rate {
        let part = if self.slow.contains(&host) { SLOW } else { 1 };
        Rate {
            bits: rate.bits / part,
            ..rate
        }
    }
}

impl Uplink {
    /// The switch that a host is at: 0 or 1.
    pub fn switch_of(&self, host: u32) -> usize {
        usize::from(host >= self.first)
    }
}
