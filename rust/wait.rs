// SPDX-License-Identifier: GPL-2.0

//! Sleeping on a socket until a condition holds.
//!
//! C header: [`include/linux/wait.h`](srctree/include/linux/wait.h)

use super::{
    bindings,
    family::Call,
    sock::{Guard, Locked, Protocol, RawSock},
};
use crate::net::errno::prelude::*;
use core::{
    mem::MaybeUninit,
    sync::atomic::{fence, Ordering::SeqCst},
};
use kernel::ffi::c_long;

/// How a call waits: whether an event that wakes it also wakes other waiters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// An event wakes all waiters.
    Shared,
    /// An event wakes only one of the exclusive waiters, such as calls of `accept`.
    Exclusive,
}

/// An entry in a socket's wait queue, on the stack of the call that waits.
type Entry = *mut bindings::wait_queue_entry;

/// Runs `f` with the calling task in the wait queue of the descriptor that `sock` belongs to.
///
/// # Safety
///
/// A running call holds that descriptor, and with it the wait queue.
#[inline]
unsafe fn among_waiters<R>(sock: &RawSock, waiter: Waiter, f: impl FnOnce(Entry) -> R) -> R {
    let mut entry = MaybeUninit::<bindings::wait_queue_entry>::uninit();
    let entry = entry.as_mut_ptr();
    // SAFETY: The entry, which is initialised first, stays on this stack until it is removed from
    // the queue below. By the caller's promise, the queue stays, too.
    let queue = unsafe {
        let queue = bindings::sk_sleep(sock.as_ptr());
        bindings::init_wait_woken(entry);
        match waiter {
            Waiter::Shared => bindings::add_wait_queue(queue, entry),
            Waiter::Exclusive => bindings::add_wait_queue_exclusive(queue, entry),
        }
        queue
    };
    let result = f(entry);
    // SAFETY: The entry is on the queue. The descriptor, and so the queue, is still valid.
    unsafe { bindings::remove_wait_queue(queue, entry) };
    result
}

/// Checks whether a signal ends a call that has `timeout` left.
///
/// # Errors
///
/// `ERESTARTSYS` or `EINTR` if a signal ends the call.
#[inline]
fn undisturbed(timeout: c_long) -> Result {
    if timeout != 0 && kernel::current!().signal_pending() {
        // SAFETY: The function only computes an errno from `timeout`.
        return Err(Error::from_errno(unsafe {
            bindings::sock_intr_errno(timeout)
        }));
    }
    Ok(())
}

/// Sleeps once by calling `nap`. The function `nap` takes the remaining time, and returns the time
/// that remains afterwards.
///
/// # Errors
///
/// `EAGAIN` after the timeout, `EPIPE` if another call has disconnected the socket.
#[inline]
fn sleep(sock: &RawSock, timeout: &mut c_long, nap: impl FnOnce(c_long) -> c_long) -> Result {
    if *timeout == 0 {
        return Err(EAGAIN);
    }
    let before = sock.disconnects();
    *timeout = nap(*timeout);
    if sock.disconnects() != before {
        return Err(EPIPE);
    }
    Ok(())
}

/// Sleeps until `ready` returns true or `timeout` (in jiffies) has elapsed, without the socket
/// lock. Each change that makes `ready` return true must wake the descriptor's readers.
///
/// # Errors
///
/// The errors of [`Guard::wait`].
///
/// # Safety
///
/// A running call holds the descriptor that `sock` belongs to.
#[inline]
pub(super) unsafe fn wait_on(
    sock: &RawSock,
    waiter: Waiter,
    timeout: &mut c_long,
    mut ready: impl FnMut() -> bool,
) -> Result {
    let wait = |entry| {
        // A waker makes a change and then looks for waiters. With this fence, either the waker sees
        // this waiter, or `ready` sees the change.
        fence(SeqCst);
        let mut slept = false;
        while !ready() {
            // A pending signal prevents a second sleep.
            if slept {
                undisturbed(*timeout)?;
            }
            slept = true;
            // SAFETY: The entry is on the queue with `woken_wake_function`, so that a wake-up
            // between the test above and the sleep ends the sleep.
            sleep(sock, timeout, |left| unsafe {
                bindings::wait_woken(entry, left)
            })?;
        }
        Ok(())
    };
    // SAFETY: By the caller's promise, a running call holds the descriptor that `sock` belongs to.
    unsafe { among_waiters(sock, waiter, wait) }
}

impl<P: Protocol> Call<'_, P> {
    /// Returns whether a reader should poll the device before it sleeps (`SO_BUSY_POLL`).
    #[inline]
    pub(crate) fn polls_device(&self) -> bool {
        // SAFETY: By the invariant of `RawSock`, the socket is valid. The function only reads the
        // socket and the calling task's signals.
        unsafe { bindings::sk_can_busy_loop(self.as_ptr()) }
    }

    /// Processes frames from the device queue through which the socket's last packet came. If
    /// `once`, polls the queue only once. Otherwise polls it until a packet is in the receive
    /// queue, or the time of `SO_BUSY_POLL` has elapsed.
    pub(crate) fn poll_device(&self, once: bool) {
        // SAFETY: By the invariant of `RawSock`, the socket is valid. The function finds the device
        // queue by the number in the socket, and keeps the queue until it returns.
        unsafe { bindings::sk_busy_loop(self.as_ptr(), once.into()) };
    }

    /// Works like [`Guard::wait`], but without the socket lock. Each change that makes `ready`
    /// return true must wake readers.
    ///
    /// # Errors
    ///
    /// The errors of [`Guard::wait`].
    #[inline]
    pub(crate) fn wait(&self, timeout: &mut c_long, ready: impl FnMut() -> bool) -> Result {
        // SAFETY: A running call holds the descriptor.
        unsafe { wait_on(self, Waiter::Shared, timeout, ready) }
    }
}

impl<P: Protocol> Guard<'_, P> {
    /// Sleeps in `call`, with the lock released, until `ready` returns true or `timeout` (in
    /// jiffies) has elapsed.
    ///
    /// # Errors
    ///
    /// `EAGAIN` after the timeout, `ERESTARTSYS` or `EINTR` after a signal, `EPIPE` if another call
    /// has disconnected the socket.
    pub(crate) fn wait(
        &mut self,
        call: &Call<'_, P>,
        timeout: &mut c_long,
        waiter: Waiter,
        mut ready: impl FnMut(&mut Locked<'_, P>) -> bool,
    ) -> Result {
        if ready(&mut self.locked()) {
            return Ok(());
        }
        if *timeout == 0 {
            return Err(EAGAIN);
        }
        let wait = |entry| loop {
            if ready(&mut self.locked()) {
                return Ok(());
            }
            // SAFETY: The entry is on the queue with `woken_wake_function`, so that a wake-up
            // between the test above and the sleep ends the sleep.
            let nap = |left| self.unlocked(|| unsafe { bindings::wait_woken(entry, left) });
            undisturbed(*timeout)?;
            sleep(call, timeout, nap)?;
        };
        // SAFETY: A running call holds the descriptor.
        unsafe { among_waiters(call, waiter, wait) }
    }
}
