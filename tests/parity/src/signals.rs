// SPDX-License-Identifier: GPL-2.0-only

//! Interrupts calls by signals, and records the signals by which a socket reports that it is ready.

use std::collections::BTreeSet;
use std::io::Result;
use std::mem::zeroed;
use std::ptr;
use std::sync::atomic::AtomicU32;

use libc::c_int;

use super::Shown;
use crate::prelude::*;
use guest::asleep::Sleeper;

static CAUGHT: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_signal: c_int) {
    CAUGHT.fetch_add(1, Ordering::SeqCst);
}

/// Catches `SIGUSR1` from now on; `restart` sets `SA_RESTART`.
///
/// # Errors
/// The errno of `sigaction(2)`.
pub fn catch(restart: bool) -> Result<()> {
    // SAFETY: All-zero bytes are a valid `sigaction` with an empty mask; it is plain data.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = count as extern "C" fn(c_int) as libc::sighandler_t;
    action.sa_flags = if restart { libc::SA_RESTART } else { 0 };
    // SAFETY: `action` is readable during the call, and its handler only adds to an atomic number.
    check(unsafe { libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()) }).map(drop)
}

/// Returns how often `SIGUSR1` was caught.
pub fn caught() -> u32 {
    CAUGHT.load(Ordering::SeqCst)
}

/// Waits until `SIGUSR1` was caught more than `before` times.
///
/// # Errors
/// If it was not caught within [`patience`].
fn await_caught(before: u32) -> anyhow::Result<()> {
    let end = Instant::now() + patience();
    while caught() <= before {
        anyhow::ensure!(Instant::now() < end, "a signal was not caught");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Sends `SIGUSR1` to a sleeping thread and waits until it was caught.
fn interrupt(sleeper: &Sleeper) -> anyhow::Result<()> {
    let before = caught();
    sleeper.signal(libc::SIGUSR1)?;
    await_caught(before)
}

/// Plays one case for each combination of signal handling and time limit. `play` gets the case's
/// name, the limit and a port.
///
/// # Errors
/// If a case fails.
pub fn each_way(mut play: impl FnMut(&str, Duration, u16) -> Outcome) -> Outcome {
    let mut port = 110;
    for (how, restart) in [("no SA_RESTART", false), ("SA_RESTART", true)] {
        for (limit, time) in [("no limit", Duration::ZERO), ("a limit", patience())] {
            catch(restart)?;
            port += 1;
            play(&format!("{how}, {limit}"), time, port)?;
        }
    }
    Ok(())
}

/// Adds to the trace the result of a call that a signal interrupts. If the call continues to sleep,
/// `release` must make it return.
///
/// # Errors
/// If the signal is not caught, or `release` fails.
pub fn interrupted<T: Shown + Send>(
    trace: &Trace,
    what: &str,
    number: libc::c_long,
    call: impl FnOnce() -> Result<T> + Send,
    release: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Result<T>> {
    let mut on = false;
    let value = trace.sleeping(what, number, call, |sleeper| {
        interrupt(sleeper)?;
        on = sleeper.sleeps()?;
        if on {
            release()?;
        }
        Ok(())
    })?;
    trace.see(&format!("{what}: went on"), on);
    Ok(value)
}

/// The real-time signal by which a socket reports readiness.
const TELLING: c_int = 40;

/// Signal-driven I/O of one socket. Its signals are blocked, so they stay pending until a call here
/// takes them. The process must have only one thread.
#[derive(Debug)]
pub struct Driven(libc::sigset_t);

impl Driven {
    /// Makes `socket` send signals to the process.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn new(socket: &Socket) -> Result<Self> {
        // SAFETY: All-zero bytes are a valid `sigset_t`; `sigemptyset` below initializes it.
        let mut set: libc::sigset_t = unsafe { zeroed() };
        // SAFETY: The set is writable, and the numbers are valid signal numbers.
        unsafe {
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, TELLING);
            libc::sigaddset(&mut set, libc::SIGIO);
        }
        // SAFETY: The set is readable, and the null pointer means that the old set is not returned.
        check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &set, ptr::null_mut()) })?;
        let fd = socket.as_raw_fd();
        // SAFETY: These `fcntl` calls take integers and no pointer; F_SETSIG is 10.
        unsafe {
            check(libc::fcntl(fd, libc::F_SETOWN, libc::getpid()))?;
            check(libc::fcntl(fd, 10, TELLING))?;
            let flags = check(libc::fcntl(fd, libc::F_GETFL))? as c_int;
            check(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_ASYNC))?;
        }
        let driven = Self(set);
        // The side of the comparison that ran first may have left signals pending. Discard them.
        while driven.next(Duration::ZERO).is_some() {}
        Ok(driven)
    }

    /// Returns the reason of the next signal, or `None` if none comes within `timeout`.
    fn next(&self, timeout: Duration) -> Option<&'static str> {
        // SAFETY: All-zero bytes are a valid `siginfo_t`, which is plain data.
        let mut info: libc::siginfo_t = unsafe { zeroed() };
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        // SAFETY: The set, `info` and `timeout` are alive during the call, and `info` is writable.
        let signal = unsafe { libc::sigtimedwait(&self.0, &mut info, &timeout) };
        if signal < 0 {
            return None;
        }
        Some(match (signal, info.si_code) {
            (libc::SIGIO, _) => "SIGIO",
            // The values of `POLL_IN` and the other reasons in asm-generic/siginfo.h.
            (_, 1) => "POLL_IN",
            (_, 2) => "POLL_OUT",
            (_, 4) => "POLL_ERR",
            (_, 6) => "POLL_HUP",
            _ => "another",
        })
    }
}

impl Trace {
    /// Waits for a signal with the reason `wanted`. Adds to the trace the reasons of all signals up
    /// to this one, but not how often each reason occurred.
    pub fn signals_until(&self, what: &str, driven: &Driven, wanted: &str) {
        let end = Instant::now() + patience();
        let mut reasons = BTreeSet::new();
        while !reasons.contains(wanted) {
            match driven.next(end.saturating_duration_since(Instant::now())) {
                Some(reason) => reasons.insert(reason),
                None => break,
            };
        }
        self.note_reasons(what, driven, reasons);
    }

    /// Adds to the trace the reasons of the pending signals.
    pub fn signals(&self, what: &str, driven: &Driven) {
        self.note_reasons(what, driven, BTreeSet::new());
    }

    fn note_reasons(&self, what: &str, driven: &Driven, mut reasons: BTreeSet<&'static str>) {
        while let Some(reason) = driven.next(Duration::ZERO) {
            reasons.insert(reason);
        }
        let all: Vec<&str> = reasons.into_iter().collect();
        self.see(what, all.join(", "));
    }
}
