// SPDX-License-Identifier: GPL-2.0

//! Ports: when one is taken, and which free one to give out.
//!
//! The caller knows which ports have an owner; the rules here only ask about it.

use core::ops::RangeInclusive;

/// Ports given out first: IANA's dynamic ports (RFC 6335).
pub const DYNAMIC: RangeInclusive<u16> = 49152..=65535;
/// Ports given out when every dynamic one is taken. Those below are only had
/// by asking for them.
pub const REGISTERED: RangeInclusive<u16> = 1024..=49151;

/// A socket's claim to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The interface it receives by: an index, or 0 for all interfaces.
    pub ifindex: u32,
    /// Its program lets others have the port too, if they say the same
    /// (`SO_REUSEADDR`).
    pub shares: bool,
    /// It listens for connections, which is never shared.
    pub listens: bool,
}

/// Whether a socket that holds a port excludes one that wants the same port.
#[inline]
pub const fn conflicts(holder: Claim, other: Claim) -> bool {
    let apart = holder.ifindex != 0 && other.ifindex != 0 && holder.ifindex != other.ifindex;
    !apart && (!holder.shares || !other.shares || holder.listens)
}

/// Chooses a free port: in [`DYNAMIC`] the first from the rover on and around,
/// so that a port rests as long as possible before it is used again; when all
/// of those are taken, the same in [`REGISTERED`]. `None` when no port is free
/// in either; never 0.
///
/// * `rover`: the port behind the one given out last, at first any number.
/// * `next_free`: the first port without an owner from the given one on.
pub fn pick(rover: u16, next_free: impl Fn(u16) -> Option<u16>) -> Option<u16> {
    pick_in(DYNAMIC, rover, &next_free).or_else(|| pick_in(REGISTERED, rover, &next_free))
}

/// [`pick`] within one range.
fn pick_in(
    range: RangeInclusive<u16>,
    rover: u16,
    next_free: &impl Fn(u16) -> Option<u16>,
) -> Option<u16> {
    let start = if range.contains(&rover) {
        rover
    } else {
        *range.start()
    };
    let free_from = |port| next_free(port).filter(|port| range.contains(port));
    free_from(start).or_else(|| free_from(*range.start()))
}
