// SPDX-License-Identifier: GPL-2.0-only

//! Scales time limits to the speed of this guest.
//!
//! Limits are given for the stock kernel on processors that the guest has for itself. The runner
//! says how much slower another kernel is. Other guests and builds on the same processors slow this
//! guest down too: its clock advances while it waits for a processor. That slowdown changes, so it
//! is measured here.

use std::env;
use std::fs;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{clock_gettime, ClockId};

/// The environment variable in which the runner passes a factor: how many times slower the kernel
/// is than the stock kernel.
const VARIABLE: &str = "ENET_PATIENCE";

/// Returns the time to wait for an event that must come. A wait takes all of this time only if the
/// module is broken.
pub fn patience() -> Duration {
    allow(Duration::from_secs(20))
}

/// Scales `time` to the present speed of this guest. `time` is a limit for the stock kernel on
/// processors of its own. Use this function for deadlines that only a broken module misses. Use
/// [`factor`] instead to scale a time that is compared with a measured one.
pub fn allow(time: Duration) -> Duration {
    let usual = time.saturating_mul(factor());
    usual.saturating_mul(slowness()) / ALONE
}

/// Returns how many times slower this kernel may be than the stock kernel.
pub fn factor() -> u32 {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    *FACTOR.get_or_init(|| {
        let text = env::var(VARIABLE).unwrap_or_default();
        text.parse().unwrap_or(1).max(1)
    })
}

/// The time left until a deadline. Busy time counts as the time that the guest's work would have
/// taken on processors of its own. Idle time counts in full, so that a hanging guest reaches the
/// deadline.
#[derive(Debug)]
pub struct Allowance {
    left: Duration,
    since: Instant,
    idle: Duration,
}

impl Allowance {
    /// Starts an allowance of `time`, as measured with the stock kernel.
    pub fn new(time: Duration) -> Self {
        Self {
            left: time.saturating_mul(factor()),
            since: Instant::now(),
            idle: idle(),
        }
    }

    /// Returns how long the caller may wait before it calls this function again; `None` if the
    /// allowance is used up.
    pub fn wait(&mut self) -> Option<Duration> {
        if self.since.elapsed() >= self.left.min(LATELY) {
            self.count();
        }
        let wait = self.left.min(LATELY).saturating_sub(self.since.elapsed());
        (self.left >= LEAST).then(|| wait.max(LEAST))
    }

    fn count(&mut self) {
        let slowness = slowness();
        let (passed, idle) = (self.since.elapsed(), idle());
        let all = passed * processors();
        let busy = all.saturating_sub(idle.saturating_sub(self.idle));
        self.left = self.left.saturating_sub(counted(passed, busy, slowness));
        self.since += passed;
        self.idle = idle;
    }
}

/// Returns how much of the time `passed` counts against the allowance. Idle time counts in full.
/// Busy time is multiplied by `ALONE` / `slowness`. `busy` is the sum over all processors. It is
/// limited to `passed`, because one busy processor is enough to delay a single thread that does all
/// the work.
fn counted(passed: Duration, busy: Duration, slowness: u32) -> Duration {
    let busy = busy.min(passed);
    passed - busy + busy * ALONE / slowness
}

/// Returns the total idle time of all processors.
fn idle() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    // "cpu", then hundredths of a second: user, nice, system, idle, iowait
    let mut words = text.split_whitespace().skip(4);
    let mut next = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let hundredths: u64 = next() + next();
    Duration::from_millis(10 * hundredths)
}

fn processors() -> u32 {
    thread::available_parallelism().map_or(1, |count| count.get() as u32)
}

/// The shortest time that [`Allowance::wait`] returns.
const LEAST: Duration = Duration::from_millis(1);

/// The time for which a measurement of the guest's speed stays valid.
const LATELY: Duration = Duration::from_secs(5);

/// The [`slowness`] of processors that do no other work.
const ALONE: u32 = 100;

/// The upper bound of [`slowness`]. Because of the bound, a hanging guest reaches its deadline.
const SLOWEST: u32 = 20 * ALONE;

/// Whether the clock counts instructions. If it does, nothing else takes time from the guest, so a
/// measurement of the slowness would only add instructions.
static COUNTED: AtomicBool = AtomicBool::new(false);

/// Sets whether the guest's clock counts instructions.
pub fn clock_counts(counts: bool) {
    COUNTED.store(counts, Ordering::Relaxed);
}

/// Returns how long a fixed computation takes in this guest at present, in percent of the time on
/// processors that do no other work ([`ALONE`]).
fn slowness() -> u32 {
    static MEASURED: Mutex<Option<(Instant, u32)>> = Mutex::new(None);
    if COUNTED.load(Ordering::Relaxed) {
        return ALONE;
    }
    // If a process was forked while another thread held the lock, the lock stays held for ever in
    // that process. So this function measures anew instead of waiting for the lock.
    let Ok(mut measured) = MEASURED.try_lock() else {
        return slowness_of(&measure());
    };
    match *measured {
        Some((moment, found)) if moment.elapsed() < LATELY => found,
        _ => {
            let found = slowness_of(&measure());
            *measured = Some((Instant::now(), found));
            found
        }
    }
}

/// The number of pieces of work that [`measure`] times. Each piece takes half a millisecond, so
/// together they span several time slices of the host's scheduler.
const PIECES: usize = 24;

/// Measures the time of the same computation repeatedly, by the thread's clock. This clock excludes
/// the guest's other threads, but not other work on the host's processor.
fn measure() -> [Duration; PIECES] {
    std::array::from_fn(|_| {
        let started = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
        let mut number = 1_u64;
        for _ in 0..50_000 {
            number = black_box(number.wrapping_mul(3));
        }
        let ended = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
        match (started, ended) {
            (Ok(started), Ok(ended)) => Duration::from(ended).saturating_sub(started.into()),
            _ => Duration::ZERO,
        }
    })
}

/// Returns the slowness that `pieces` show: their average time, in percent of the shortest. The
/// shortest piece ran within one time slice of the host's scheduler; longer pieces waited for a
/// slice.
fn slowness_of(pieces: &[Duration]) -> u32 {
    let sum: Duration = pieces.iter().sum();
    let least = pieces.iter().min().map_or(0, Duration::as_nanos);
    let alone = least * pieces.len() as u128;
    let found = (sum.as_nanos() * u128::from(ALONE)).checked_div(alone);
    found.map_or(ALONE, |found| {
        found.clamp(ALONE.into(), SLOWEST.into()) as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn delayed_pieces_of_work_show_slowness() {
        assert_eq!(slowness_of(&[MS; 10]), 100);
        let mut pieces = [MS; 10];
        pieces[4] = 31 * MS;
        assert_eq!(slowness_of(&pieces), 400);
        pieces[5] = 5000 * MS;
        assert_eq!(slowness_of(&pieces), SLOWEST);
        assert_eq!(slowness_of(&[Duration::ZERO; 3]), 100);
    }

    #[test]
    fn idle_time_counts_in_full() {
        assert_eq!(counted(1000 * MS, Duration::ZERO, 400), 1000 * MS);
        assert_eq!(counted(1000 * MS, 500 * MS, 400), 625 * MS);
        assert_eq!(counted(1000 * MS, 2000 * MS, 400), 250 * MS);
    }

    #[test]
    fn an_allowance_ends() {
        clock_counts(true);
        let mut allowance = Allowance::new(100 * MS);
        let started = Instant::now();
        while let Some(wait) = allowance.wait() {
            assert!(wait <= 100 * MS);
            thread::sleep(wait);
        }
        assert!(started.elapsed() >= 99 * MS);
    }
}
