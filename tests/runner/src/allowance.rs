// SPDX-License-Identifier: GPL-2.0-only

//! Deadlines that count the time in which a guest could do something.
//!
//! On a busy host QEMU's threads wait for processors. A guest that gets half of what it wants has
//! twice as long; one that hangs, idle or not, comes to its end.

use std::fs;
use std::time::{Duration, Instant};

/// What is left of a guest's deadline.
#[derive(Debug)]
pub struct Allowance {
    process: u32,
    left: Duration,
    since: Instant,
    turns: Turns,
}

impl Allowance {
    /// `time` from now on, for the threads of `process`.
    pub fn new(process: u32, time: Duration) -> Self {
        Self {
            process,
            left: time,
            since: Instant::now(),
            turns: Turns::of(process),
        }
    }

    /// How long to wait before asking again; nothing when it is used up.
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

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The time in which the threads of a process ran, and in which they waited for a processor,
/// nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Turns {
    ran: u64,
    waited: u64,
}

impl Turns {
    /// Nothing, if the process is gone or the host's kernel does not count.
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

    /// What part it got of the time that it wanted; all of it, if it wanted none.
    fn share_since(self, before: Self) -> f64 {
        // A thread that has ended takes its times with it.
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
    fn who_waits_for_turns_gets_a_share() {
        let before = Turns {
            ran: 10,
            waited: 100,
        };
        let share = |ran, waited| Turns { ran, waited }.share_since(before);
        assert!((share(20, 130) - 0.25).abs() < 1e-9);
        assert!((share(10, 100) - 1.0).abs() < 1e-9);
        assert!((share(30, 100) - 1.0).abs() < 1e-9);
        assert!(share(10, 200) < 1e-9);
        // a thread has ended
        assert!((share(5, 50) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn this_process_has_turns() {
        let before = Turns::of(std::process::id());
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(20) {}
        assert!(Turns::of(std::process::id()).ran > before.ran);
    }
}
