// SPDX-License-Identifier: GPL-2.0-only

//! Makes calls that sleep. Each call runs in its own thread, and the caller waits until that thread
//! sleeps.

use std::fs;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::mpsc;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use libc::c_long;

use crate::harness::note;
use crate::patience::patience;
use crate::socket::{check, Socket};
use crate::transfer::joined;

/// The system call that the C library's `poll` makes; newer architectures have only `ppoll`.
#[cfg(target_arch = "x86_64")]
pub const POLL: c_long = libc::SYS_poll;
#[cfg(not(target_arch = "x86_64"))]
pub const POLL: c_long = libc::SYS_ppoll;

/// The system call that the C library's `epoll_wait` makes; newer architectures have only
/// `epoll_pwait`.
#[cfg(target_arch = "x86_64")]
pub const EPOLL_WAIT: c_long = libc::SYS_epoll_wait;
#[cfg(not(target_arch = "x86_64"))]
pub const EPOLL_WAIT: c_long = libc::SYS_epoll_pwait;

/// A thread started by [`begin`]. Its call sleeps in the system call `number`.
#[derive(Clone, Copy, Debug)]
pub struct Sleeper {
    thread: i32,
    number: c_long,
}

impl Sleeper {
    /// Waits until the thread sleeps in its call; returns `false` if the thread has ended instead.
    ///
    /// # Errors
    /// If the thread neither sleeps nor ends within [`patience`].
    pub fn sleeps(&self) -> Result<bool> {
        let end = Instant::now() + patience();
        let path = format!("/proc/self/task/{}/syscall", self.thread);
        let sleeping = format!("{} ", self.number);
        loop {
            // The file reads "running" for a thread that runs or waits for a processor.
            match fs::read_to_string(&path) {
                Ok(text) if text.starts_with(&sleeping) => return Ok(true),
                Ok(_) => {}
                // The thread has ended: ENOENT, or ESRCH if it ends during the read.
                Err(_) => return Ok(false),
            }
            ensure!(
                Instant::now() < end,
                "a thread neither sleeps in call {} nor ends",
                self.number
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends `signal` to the thread.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn signal(&self, signal: i32) -> Result<()> {
        // SAFETY: Neither call takes a pointer.
        let sent = unsafe {
            let process = libc::getpid();
            libc::syscall(libc::SYS_tgkill, process, self.thread, signal)
        };
        check(sent).context("tgkill")?;
        Ok(())
    }
}

/// Starts `call` in a thread of `scope`. The returned [`Sleeper`] can wait until the thread sleeps
/// in the system call `number`.
///
/// # Errors
/// If the thread does not start.
pub fn begin<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    number: c_long,
    call: impl FnOnce() -> T + Send + 'scope,
) -> Result<(Sleeper, ScopedJoinHandle<'scope, T>)> {
    let (sender, receiver) = mpsc::channel();
    let handle = scope.spawn(move || {
        let _ = sender.send(thread_id());
        call()
    });
    let thread = receiver.recv().context("a thread's number")?;
    Ok((Sleeper { thread, number }, handle))
}

/// Runs `call` in a thread, and `meanwhile` once the thread sleeps in the system call `number` or
/// has ended. Returns whether the thread slept, and the results of both closures.
///
/// # Errors
/// If `meanwhile` fails, or the thread neither sleeps nor ends.
pub fn asleep<T: Send, U>(
    number: c_long,
    call: impl FnOnce() -> T + Send,
    meanwhile: impl FnOnce(&Sleeper) -> Result<U>,
) -> Result<(bool, T, U)> {
    thread::scope(|scope| {
        let (sleeper, thread) = begin(scope, number, call)?;
        let inner = || Ok((sleeper.sleeps()?, meanwhile(&sleeper)?));
        let inner: Result<(bool, U)> = inner();
        explain(&inner);
        let value = joined(thread)?;
        let (slept, given) = inner?;
        Ok((slept, value, given))
    })
}

/// Runs `call` in `count` threads, and `meanwhile` once each of them sleeps in the system call
/// `number`. Returns the results of the calls, in the order in which the threads fell asleep.
///
/// # Errors
/// If `meanwhile` fails, or a thread does not sleep.
pub fn crowd<T: Send>(
    number: c_long,
    count: usize,
    call: impl Fn() -> T + Sync,
    meanwhile: impl FnOnce(&[Sleeper]) -> Result<()>,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let call = &call;
        let mut threads = Vec::new();
        let inner = || {
            let mut sleepers = Vec::new();
            for _ in 0..count {
                let (sleeper, thread) = begin(scope, number, call)?;
                threads.push(thread);
                ensure!(sleeper.sleeps()?, "a call that should sleep returned");
                sleepers.push(sleeper);
            }
            meanwhile(&sleepers)
        };
        let inner: Result<()> = inner();
        explain(&inner);
        let values = threads
            .into_iter()
            .map(joined)
            .collect::<Result<Vec<T>>>()?;
        inner?;
        Ok(values)
    })
}

/// The number of further checks that must agree on the number of sleeping threads.
const LOOKS: u32 = 10;

/// Waits until one of the threads has ended, and counts the threads that still sleep. An event
/// wakes several threads one by one. So the count is final only if the next `LOOKS` checks find the
/// same count.
///
/// # Errors
/// If no thread ends within [`patience`].
pub fn left_asleep(sleepers: &[Sleeper]) -> Result<usize> {
    let end = Instant::now() + patience();
    let (mut left, mut agreed) = (sleepers.len(), 0);
    loop {
        let mut asleep = 0;
        for sleeper in sleepers {
            asleep += usize::from(sleeper.sleeps()?);
        }
        if asleep < left {
            (left, agreed) = (asleep, 0);
        }
        if left < sleepers.len() {
            agreed += 1;
        }
        if agreed > LOOKS {
            return Ok(left);
        }
        ensure!(Instant::now() < end, "no thread was woken");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns a second value for the descriptor of `socket`, for a call in another thread. Dropping
/// the second value does not close the descriptor.
pub fn alias(socket: &Socket) -> ManuallyDrop<Socket> {
    // SAFETY: The descriptor is open now, and `ManuallyDrop` prevents a second close. A call after
    // the owner has closed the descriptor fails with EBADF, unless the number was reused. No caller
    // here lets the number be reused.
    ManuallyDrop::new(unsafe { Socket::from_raw_fd(socket.as_raw_fd()) })
}

/// Returns the number of the calling thread.
pub fn thread_id() -> i32 {
    // SAFETY: The call has no arguments and cannot fail.
    unsafe { libc::gettid() }
}

/// Logs an error before the threads are joined. After an error a thread may sleep for ever. The
/// join would then wait until the scenario is killed, and the error would never be reported.
fn explain<T>(inner: &Result<T>) {
    if let Err(error) = inner {
        note(&format!("beside a sleeping call: {error:#}"));
    }
}
