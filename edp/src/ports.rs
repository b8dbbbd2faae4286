// SPDX-License-Identifier: GPL-2.0

//! Ports: when one is taken, and which free one to give out.
//!
//! The caller keeps the sockets in a hash table whose bucket is the port modulo
//! the number of buckets; the rules here only ask about it.

use core::ops::RangeInclusive;

/// Ports given out first: IANA's dynamic ports (RFC 6335).
pub const DYNAMIC: RangeInclusive<u16> = 49152..=65535;
/// Ports given out when every dynamic one is taken. Those below are only had
/// by asking for them.
pub const REGISTERED: RangeInclusive<u16> = 1024..=49151;

/// Whether two sockets with the same port exclude each other, by the
/// interfaces they are bound to: an index, or 0 for all interfaces.
#[inline]
pub const fn conflicts(a_ifindex: u32, b_ifindex: u32) -> bool {
    a_ifindex == 0 || b_ifindex == 0 || a_ifindex == b_ifindex
}

/// Chooses a free port: the smallest of the emptiest bucket, of equally full
/// buckets the first from the rover's on, so that look-ups stay short. Buckets
/// without a free port give way to the next emptiest. `None` when no port is
/// free in [`DYNAMIC`] and [`REGISTERED`]; never 0.
///
/// * `buckets`: size of the hash table.
/// * `rover`: any number the caller advances; it spreads the choices.
/// * `load`: how many sockets a bucket (0 up to `buckets`) holds.
/// * `taken`: whether a port conflicts with one in use.
pub fn pick(
    buckets: usize,
    rover: u16,
    load: impl Fn(usize) -> u32,
    taken: impl Fn(u16) -> bool,
) -> Option<u16> {
    let start = usize::from(rover).checked_rem(buckets)?;
    pick_in(DYNAMIC, buckets, start, &load, &taken)
        .or_else(|| pick_in(REGISTERED, buckets, start, &load, &taken))
}

/// [`pick`] within one range. Walks the buckets by (load, distance from the
/// rover) without sorting, for which there is no memory: the usual case ends
/// in the first one.
fn pick_in(
    range: RangeInclusive<u16>,
    buckets: usize,
    start: usize,
    load: &impl Fn(usize) -> u32,
    taken: &impl Fn(u16) -> bool,
) -> Option<u16> {
    let mut visited = None;
    for _ in 0..buckets {
        let (key, bucket) = next_emptiest(buckets, start, visited, load)?;
        if let Some(port) = first_free(&range, buckets, bucket, taken) {
            return Some(port);
        }
        visited = Some(key);
    }
    None
}

/// A bucket's place in the order in which buckets are tried.
type Key = (u32, usize);

/// The emptiest bucket behind `visited` in that order, with its place.
fn next_emptiest(
    buckets: usize,
    start: usize,
    visited: Option<Key>,
    load: &impl Fn(usize) -> u32,
) -> Option<(Key, usize)> {
    let mut best: Option<(Key, usize)> = None;
    for distance in 0..buckets {
        let bucket = start.wrapping_add(distance).checked_rem(buckets)?;
        let key = (load(bucket), distance);
        if visited.is_none_or(|v| key > v) && best.is_none_or(|(b, _)| key < b) {
            best = Some((key, bucket));
            if key.0 == 0 {
                break;
            }
        }
    }
    best
}

/// The smallest free port of `bucket` within `range`.
fn first_free(
    range: &RangeInclusive<u16>,
    buckets: usize,
    bucket: usize,
    taken: &impl Fn(u16) -> bool,
) -> Option<u16> {
    let low = usize::from(*range.start());
    let ahead = bucket
        .wrapping_add(buckets)
        .wrapping_sub(low.checked_rem(buckets)?)
        .checked_rem(buckets)?;
    let mut port = u16::try_from(low.checked_add(ahead)?).ok()?;
    let step = u16::try_from(buckets).unwrap_or(u16::MAX);
    while range.contains(&port) {
        if !taken(port) {
            return Some(port);
        }
        port = port.checked_add(step)?;
    }
    None
}
