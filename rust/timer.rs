// SPDX-License-Identifier: GPL-2.0

//! The high-resolution timer of a socket.
//!
//! The timer holds no reference to the socket. If it held one for each expiry, these references
//! could not be counted, because the timer may be started while its callback runs. Instead the
//! socket's destructor, which runs after the last reference and an RCU grace period, waits for the
//! callback.
//!
//! The lock holder decides when the timer expires. Code without the lock may arm the timer so that
//! the socket is processed, and the lock holder may then postpone the expiry.
//!
//! C header: [`include/linux/hrtimer.h`](srctree/include/linux/hrtimer.h)

use super::{
    bindings, compat,
    sock::{Protocol, Sock},
    softirq::Softirq,
};
use core::sync::atomic::Ordering::Relaxed;

/// Returns the time of the monotonic clock, in nanoseconds.
#[inline]
pub(crate) fn now() -> u64 {
    // SAFETY: The function may be called in any context.
    unsafe { bindings::ktime_get() as u64 }
}

/// Prepares the timer of a new socket.
pub(super) fn setup<P: Protocol>(sock: &Sock<P>) {
    // SAFETY: The timer is part of the socket, which does not move. The timer is not running.
    unsafe { setup_raw(sock.timer.get(), fire::<P>) };
}

/// A timer's callback, which runs in softirq context. The timer mode ensures this even on
/// PREEMPT_RT, where a thread runs the softirq.
pub(super) type Callback =
    unsafe extern "C" fn(*mut bindings::hrtimer) -> bindings::hrtimer_restart;

/// Prepares a timer on the monotonic clock.
///
/// # Safety
///
/// `timer` does not move from here on, is not running, and is of the type that `callback` expects.
pub(super) unsafe fn setup_raw(timer: *mut bindings::hrtimer, callback: Callback) {
    // SAFETY: By the caller's promise, `timer` does not move, is not running, and is of the type
    // that `callback` expects.
    unsafe {
        bindings::hrtimer_setup(
            timer,
            Some(callback),
            bindings::CLOCK_MONOTONIC as i32,
            bindings::hrtimer_mode_HRTIMER_MODE_ABS_SOFT,
        )
    };
}

/// Starts a timer for `at`, in nanoseconds of the monotonic clock, replacing an earlier expiry.
///
/// # Safety
///
/// `timer` was set up by [`setup_raw`] and is cancelled before its memory is freed.
pub(super) unsafe fn start_raw(timer: *mut bindings::hrtimer, at: u64) {
    // SAFETY: By the caller's promise, `timer` was set up, and is cancelled before its memory is
    // freed. A timer may be started while its callback runs.
    unsafe {
        bindings::hrtimer_start_range_ns(
            timer,
            i64::try_from(at).unwrap_or(i64::MAX),
            0,
            bindings::hrtimer_mode_HRTIMER_MODE_ABS_SOFT,
        );
    }
}

impl<P: Protocol> Sock<P> {
    /// Arms the timer for `at`, in nanoseconds of the monotonic clock, replacing an earlier expiry.
    pub(crate) fn arm_timer(&self, at: u64) {
        // SAFETY: The timer was set up with the socket, and [`cancel`] cancels it before the
        // socket's memory is freed.
        unsafe { start_raw(self.timer.get(), at) };
    }

    /// Disarms the timer. A callback that runs at this moment finds nothing to do.
    pub(crate) fn disarm_timer(&self) {
        // SAFETY: The timer was set up with the socket.
        unsafe { bindings::hrtimer_try_to_cancel(self.timer.get()) };
    }
}

/// Cancels the timer of a socket without references, and waits for a running callback.
///
/// # Safety
///
/// No one can arm the timer any more, and the caller holds no lock that the timer's callback takes.
pub(super) unsafe fn cancel<P: Protocol>(sock: &Sock<P>) {
    // SAFETY: The timer was set up with the socket. The function waits for a callback on another
    // processor.
    unsafe { bindings::hrtimer_cancel(sock.timer.get()) };
}

/// # Safety
///
/// Called by the timers' core, with the timer of a socket of `P`.
unsafe extern "C" fn fire<P: Protocol>(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
    // SAFETY: The socket's memory stays until [`cancel`] has waited for this callback. Even if the
    // protocol drops the last reference in this callback, the drop only starts an RCU grace period.
    let sock = unsafe { &*Sock::<P>::from_timer(timer) };
    // SAFETY: Timers of this mode expire in softirq context.
    let softirq = unsafe { Softirq::assume() };
    let mut guard = sock.lock_bh(softirq);
    match guard.locked() {
        Some(mut locked) => P::timer(&mut locked, softirq),
        // The owner checks `timer_missed` when it releases the lock, which it cannot do before
        // `guard` is dropped.
        None => sock.timer_missed.store(true, Relaxed),
    }
    drop(guard);
    compat::HRTIMER_NORESTART
}

/// Called when a task releases the socket. Does the work that was deferred while the task owned it.
///
/// # Safety
///
/// Called by the core with the socket's lock held and bottom halves disabled, on a socket of `P`.
pub(super) unsafe extern "C" fn release_cb<P: Protocol>(sk: *mut bindings::sock) {
    // SAFETY: By the caller's promise, `sk` is a socket of `P`, and stays valid during the call.
    let sock = unsafe { Sock::<P>::from_raw(sk) };
    if sock.timer_missed.load(Relaxed) || P::awaits_release(sock.shared()) {
        // SAFETY: By the caller's promise, the lock is held and bottom halves are disabled.
        unsafe { catch_up(sock) };
    }
}

/// # Safety
///
/// The requirements of [`release_cb`] hold.
#[cold]
#[inline(never)]
unsafe fn catch_up<P: Protocol>(sock: &Sock<P>) {
    // SAFETY: By the caller's promise, bottom halves are disabled.
    let softirq = unsafe { Softirq::assume() };
    // SAFETY: The lock is held, and nothing is borrowed any more from the guard that is being
    // released.
    let mut locked = unsafe { sock.assume_locked() };
    if sock.timer_missed.load(Relaxed) {
        sock.timer_missed.store(false, Relaxed);
        P::timer(&mut locked, softirq);
    }
    P::before_release(&mut locked, softirq);
}
