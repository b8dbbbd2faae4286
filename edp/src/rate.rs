// SPDX-License-Identifier: GPL-2.0

//! How many queries a host answers: [`BURST`] at once, and one every [`INTERVAL`]
//! in the long run, as the kernel limits ICMP.
//!
//! The generic cell rate algorithm needs one number: the time at which the next answer
//! would be due if answers left at exactly that rate. It may lie ahead of the clock by
//! a burst.

/// Nanoseconds from one answer to the next: 1000 in a second.
pub const INTERVAL: u64 = 1_000_000;

/// Answers that may leave at once.
pub const BURST: u64 = 50;

/// Decides on an answer at `now`. `due` is what the last one that left returned, 0 at
/// first. `None` if it is not to leave.
#[inline]
pub fn admit(due: u64, now: u64) -> Option<u64> {
    let due = due.max(now);
    let ahead = due.saturating_sub(now);
    (ahead <= (BURST - 1) * INTERVAL).then(|| due.saturating_add(INTERVAL))
}
