// SPDX-License-Identifier: GPL-2.0

//! A high-resolution timer that belongs to something other than a socket.
//!
//! C header: [`include/linux/hrtimer.h`](srctree/include/linux/hrtimer.h)

use super::{bindings, compat, timer};
use crate::net::errno::prelude::*;
use core::{
    cell::UnsafeCell,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

/// What has an alarm.
///
/// # Safety
///
/// `alarm` returns a field of `self`, always the same and the first to be dropped. A value whose
/// alarm was ever armed does not move, and is dropped where no lock is held that `ring` takes.
pub(crate) unsafe trait Alarmed: Sync + 'static {
    /// The alarm.
    fn alarm(&self) -> &Alarm<Self>
    where
        Self: Sized;

    /// It went off; in softirq context. May arm it anew.
    fn ring(&self);
}

#[repr(C)]
struct Inner<T> {
    timer: UnsafeCell<bindings::hrtimer>,
    owner: AtomicPtr<T>,
}

/// The timer. It holds no reference to its owner, whose end waits for a callback that runs.
pub(crate) struct Alarm<T: Alarmed>(KBox<Inner<T>>);

// SAFETY: Timers may be started and cancelled by anyone at any time, and `owner` is atomic.
unsafe impl<T: Alarmed> Send for Alarm<T> {}
// SAFETY: As above.
unsafe impl<T: Alarmed> Sync for Alarm<T> {}

impl<T: Alarmed> Alarm<T> {
    /// An alarm that is not armed, made where the caller may not sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new_atomic() -> Result<Self> {
        let inner = KBox::new(
            Inner {
                // SAFETY: All zeroes are overwritten by `setup_raw` next.
                timer: unsafe { core::mem::zeroed() },
                owner: AtomicPtr::new(ptr::null_mut()),
            },
            GFP_ATOMIC,
        )?;
        // SAFETY: In a box of its own the timer does not move, and it is not running.
        unsafe { timer::setup_raw(inner.timer.get(), fire::<T>) };
        Ok(Alarm(inner))
    }
}

/// Arms `owner`'s alarm for `at`, nanoseconds of the monotonic clock, in place of what it was armed
/// for.
pub(crate) fn arm<T: Alarmed>(owner: &T, at: u64) {
    let inner = &owner.alarm().0;
    inner
        .owner
        .store(ptr::from_ref(owner).cast_mut(), Ordering::Release);
    // SAFETY: The timer was set up in `new_atomic` and is cancelled before its memory goes, in
    // `drop`; the owner outlives it, as `Alarmed` promises.
    unsafe { timer::start_raw(inner.timer.get(), at) };
}

/// # Safety
///
/// Called by the timers' core, with the timer of an `Alarm<T>` that `arm` has started.
unsafe extern "C" fn fire<T: Alarmed>(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
    // SAFETY: The timer is the first field of an `Inner`, which stays until `drop` has waited for
    // this callback.
    let inner = unsafe { &*timer.cast::<Inner<T>>() };
    // SAFETY: Stored by `arm`, without which the timer would not run; the owner lasts at least as
    // long as its alarm.
    if let Some(owner) = unsafe { inner.owner.load(Ordering::Acquire).as_ref() } {
        owner.ring();
    }
    compat::HRTIMER_NORESTART
}

impl<T: Alarmed> Drop for Alarm<T> {
    fn drop(&mut self) {
        // SAFETY: Set up in `new_atomic`; nobody can arm it any more. Waits for a callback on
        // another processor, and is not called by one: what ends there ends after a grace period.
        unsafe { bindings::hrtimer_cancel(self.0.timer.get()) };
    }
}
