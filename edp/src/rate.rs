// SPDX-License-Identifier: GPL-2.0

//! The rate limit of answers to queries: at most [`BURST`] answers in a burst, and in the long run
//! one answer per [`INTERVAL`]. The kernel limits ICMP in the same way.
//!
//! The generic cell rate algorithm needs one number: the time at which the next answer would be due
//! if answers were sent at exactly this rate. This time may be later than the present, but by no
//! more than the time that a burst takes at this rate.

/// Nanoseconds between two answers at the steady rate of 10,000 answers per second.
pub const INTERVAL: u64 = 100_000;

/// Maximum number of answers that may be sent in a burst, without pauses. All hosts of a segment
/// may query a host at the same moment, when a job starts on all of them: as many hosts as another
/// one can remember. A host that gets no answer in time connects by TCP.
pub const BURST: u64 = 1024;

/// Decides whether an answer may be sent at `now`. `due` is 0 for the first answer, and then the
/// value that the call for the previous answer returned. Returns the next `due`, or `None` if the
/// answer must not be sent.
#[inline]
pub fn admit(due: u64, now: u64) -> Option<u64> {
    let due = due.max(now);
    let ahead = due.saturating_sub(now);
    (ahead <= (BURST - 1) * INTERVAL).then(|| due.saturating_add(INTERVAL))
}
