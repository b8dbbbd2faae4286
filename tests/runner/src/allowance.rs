// SPDX-License-Identifier: GPL-2.0-only

//! Deadlines of guests. The time in which a guest waits for the host's processors does not count
//! towards its deadline.
//!
//! On a busy host QEMU's threads wait for processors. If a guest gets half of the processor time
//! that it wants, it has twice as long until its deadline. A guest that hangs still reaches its
//! deadline, whether it is idle or spins.

use std::fs;
use std::time::{Duration, Instant};

/// The time that a guest has left until its deadline.
#[derive(Debug)]
pub struct Allowance {
    process: u32,
    left: Duration,
    since: Instant,
    turns: Turns,
}

impl Allowance {
    /// Returns an allowance of `time` from now on, for the threads of `process`.
    pub fn new(process: u32, time: Duration) -> Self {
        Self {
            process,
            left: time,
            since: Instant::now(),
            turns: Turns::of(process),
        }
    }

    /// Returns how long the caller may wait before it calls this function again; zero once the
    /// allowance is used up.
    pub fn wait(&mut self) -> Duration {
        let passed = self.since.elapsed();
        if passed >= LOOK {
            let turns = Turns::of(self.process);
            self.left = (self.left).saturating_sub(passed.mul_f64(turns.share_since(self.turns)));
            self.turns = turns;
            self.since += passed;
        }
        self.left.min(LOOK)
    }
}

/// Interval at which the threads' times are read.
const LOOK: Duration = Duration::from_secs(1);

/// How many nanoseconds the threads of a process ran, and how many they waited for a processor.
#[derive(Clone, Copy, Debug, Default)]
struct Turns {
    ran: u64,
    waited: u64,
}

impl Turns {
    /// Reads the times of all threads. Returns zeroes if the process has ended, or if the host's
    /// kernel does not record the times.
    fn of(process: u32) -> Self {
        let threads = fs::read_dir(format!("/proc/{process}/task"));
        let threads = threads.into_iter().flatten().flatten();
        let texts = threads.map(|thread| fs::read_to_string(thread.path().join("schedstat")));
        texts.flatten().fold(Self::default(), |sum, text| {
            let mut numbers = text
                .split_whitespace()
                .map(|word| word.parse().unwrap_or(0));
            Self {
                ran: sum.ran + numbers.next().unwrap_or(0),
                waited: sum.waited + numbers.next().unwrap_or(0),
            }
        })
    }

    /// Returns the share of the wanted processor time that the process got; 1 if it wanted none.
    fn share_since(self, before: Self) -> f64 {
        // The times of a thread that has ended are missing in `self`, so a sum may be smaller than
        // in `before`.
        let ran = self.ran.saturating_sub(before.ran) as f64;
        let wanted = ran + self.waited.saturating_sub(before.waited) as f64;
        if wanted > 0.0 {
            ran / wanted
        } else {
            1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_run_time_of_runnable_time() {
        let before = Turns {
            ran: 10,
            waited: 100,
        };
        let share = |ran, waited| Turns { ran, waited }.share_since(before);
        assert!((share(20, 130) - 0.25).abs() < 1e-9);
        assert!((share(10, 100) - 1.0).abs() < 1e-9);
        assert!((share(30, 100) - 1.0).abs() < 1e-9);
        assert!(share(10, 200) < 1e-9);
        // The sums shrink when a thread ends.
        assert!((share(5, 50) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn own_run_time_grows() {
        let before = Turns::of(std::process::id());
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(20) {}
        assert!(Turns::of(std::process::id()).ran > before.ran);
    }
}
