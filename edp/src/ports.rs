// SPDX-License-Identifier: GPL-2.0

//! Ports: when two sockets conflict, and how a free port is chosen.
//!
//! The caller knows which ports have an owner, and passes this knowledge in.

use core::ops::RangeInclusive;

/// The first choice for autobound ports: IANA's dynamic ports (RFC 6335).
pub const DYNAMIC: RangeInclusive<u16> = 49152..=65535;
/// The second choice for autobound ports, once every dynamic port is taken. Lower ports are bound
/// only on request.
pub const REGISTERED: RangeInclusive<u16> = 1024..=49151;

/// A socket's claim to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Index of the interface on which the socket receives, or 0 for all interfaces.
    pub ifindex: u32,
    /// Whether the socket shares its port with other sockets for which this is also set
    /// (`SO_REUSEADDR`).
    pub shares: bool,
    /// Whether the socket listens for connections. The port of a listener is never shared.
    pub listens: bool,
}

/// Returns whether the socket `holder` of a port excludes `other` from the same port.
#[inline]
pub const fn conflicts(holder: Claim, other: Claim) -> bool {
    let apart = holder.ifindex != 0 && other.ifindex != 0 && holder.ifindex != other.ifindex;
    !apart && (!holder.shares || !other.shares || holder.listens)
}

/// Chooses a free port for an unbound socket. Takes the first free port in [`DYNAMIC`] from
/// `offset` on, with wrap-around, or else in [`REGISTERED`] in the same way. Returns `None` if no
/// port is free in either range; never returns 0.
///
/// * `offset`: a random number.
/// * `next_free`: a function that returns the first port without an owner, from its argument on.
pub fn pick(offset: u16, next_free: impl Fn(u16) -> Option<u16>) -> Option<u16> {
    let pick_in = |range: RangeInclusive<u16>| {
        let free_from = |port| next_free(port).filter(|port| range.contains(port));
        free_from(start(&range, offset)).or_else(|| free_from(*range.start()))
    };
    pick_in(DYNAMIC).or_else(|| pick_in(REGISTERED))
}

/// Returns the ports to try for a connection with an unbound socket, in order. First come the ports
/// of [`DYNAMIC`] from `offset` on, with wrap-around, then the ports of [`REGISTERED`] in the same
/// way.
///
/// `offset` combines a secret for the destination with a counter. The counter advances with each
/// port taken for this destination (RFC 6056, 3.3.4). So other hosts cannot predict the next port,
/// and a port is reused for a destination only after all other ports were used.
pub fn candidates(offset: u16) -> impl Iterator<Item = u16> {
    let around = move |range: RangeInclusive<u16>| {
        let first = start(&range, offset);
        (first..=*range.end()).chain(*range.start()..first)
    };
    around(DYNAMIC).chain(around(REGISTERED))
}

/// Returns the port that is `offset` ports after the first port of the range, with wrap-around.
fn start(range: &RangeInclusive<u16>, offset: u16) -> u16 {
    let (first, last) = (*range.start(), *range.end());
    // A range is not empty, and its length is less than 2^16, so `length` does not wrap to 0.
    let length = last.wrapping_sub(first).wrapping_add(1);
    first.wrapping_add(offset.checked_rem(length).unwrap_or(0))
}
