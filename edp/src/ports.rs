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

/// Chooses a free port for a socket that asked for none: in [`DYNAMIC`] the
/// first from the one at `offset` on and around; when all of those are taken, the
/// same in [`REGISTERED`]. `None` when no port is free in either; never 0.
///
/// * `offset`: a random number.
/// * `next_free`: the first port without an owner from the given one on.
pub fn pick(offset: u16, next_free: impl Fn(u16) -> Option<u16>) -> Option<u16> {
    let pick_in = |range: RangeInclusive<u16>| {
        let free_from = |port| next_free(port).filter(|port| range.contains(port));
        free_from(start(&range, offset)).or_else(|| free_from(*range.start()))
    };
    pick_in(DYNAMIC).or_else(|| pick_in(REGISTERED))
}

/// The ports for a connection that asked for none, in the order in which to try
/// them: those of [`DYNAMIC`] from the one at `offset` on and around, then those of
/// [`REGISTERED`] in the same way.
///
/// `offset` is a secret of the destination, and a number that the ports taken for
/// it so far have moved on (RFC 6056, 3.3.4). So nobody else can tell the next
/// port, and one comes again for the same destination only after all others.
pub fn candidates(offset: u16) -> impl Iterator<Item = u16> {
    let around = move |range: RangeInclusive<u16>| {
        let first = start(&range, offset);
        (first..=*range.end()).chain(*range.start()..first)
    };
    around(DYNAMIC).chain(around(REGISTERED))
}

/// The port at `offset`, counted around the range from its first port on.
fn start(range: &RangeInclusive<u16>, offset: u16) -> u16 {
    let (first, last) = (*range.start(), *range.end());
    // A range is not empty, and its length is less than 2^16.
    let length = last.wrapping_sub(first).wrapping_add(1);
    first.wrapping_add(offset.checked_rem(length).unwrap_or(0))
}
