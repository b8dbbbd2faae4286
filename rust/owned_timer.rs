// SPDX-License-Identifier: GPL-2.0

//! A value, other than a socket, with its own high-resolution timer.
//!
//! C header: [`include/linux/hrtimer.h`](srctree/include/linux/hrtimer.h)

use super::{bindings, compat, softirq::Softirq, timer};
use crate::net::errno::prelude::*;
use core::{cell::UnsafeCell, marker::PhantomPinned, ops::Deref};
use kernel::sync::{Arc, UniqueArc};

/// A value with a function that runs when its timer expires.
pub(crate) trait Expire: Send + Sync + Sized + 'static {
    /// Called when the timer has expired. May arm the timer again.
    fn expired(this: &OwnedTimer<Self>, softirq: Softirq<'_>);
}

/// A value in an [`Arc`], with its timer. The timer holds no reference to the value, so dropping
/// the value cancels the timer and waits for a running callback. Drop the last reference without
/// any lock that [`Expire::expired`] takes, or the drop deadlocks.
#[repr(C)]
pub(crate) struct OwnedTimer<T: Expire> {
    timer: UnsafeCell<bindings::hrtimer>,
    value: T,
    /// The value must not move, because the kernel keeps a pointer to the timer.
    _pinned: PhantomPinned,
}

// SAFETY: Any context may start and cancel the timer at any time, and the value is `Send`.
unsafe impl<T: Expire> Send for OwnedTimer<T> {}
// SAFETY: Any context may start and cancel the timer at any time, and the value is `Sync`.
unsafe impl<T: Expire> Sync for OwnedTimer<T> {}

impl<T: Expire> OwnedTimer<T> {
    /// Creates `value` with a disarmed timer, in a context that may not sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new_atomic(value: T) -> Result<Arc<Self>> {
        // The memory is allocated first. If the `OwnedTimer` existed before the allocation and the
        // allocation failed, its `drop` would cancel a timer that was not set up.
        let place = UniqueArc::<Self>::new_uninit(GFP_ATOMIC)?;
        let this = Arc::from(place.write(OwnedTimer {
            // SAFETY: All-zero bytes are a valid value, which `setup_raw` overwrites next.
            timer: unsafe { core::mem::zeroed() },
            value,
            _pinned: PhantomPinned,
        }));
        // SAFETY: The timer does not move in its `Arc`, since the type is not `Unpin`. The timer is
        // not running.
        unsafe { timer::setup_raw(this.timer.get(), fire::<T>) };
        Ok(this)
    }

    /// Arms the timer for `at`, in nanoseconds of the monotonic clock, replacing an earlier expiry.
    pub(crate) fn arm(&self, at: u64) {
        // SAFETY: `new_atomic`, the only constructor, has set up the timer. `drop` cancels it
        // before its memory is freed.
        unsafe { timer::start_raw(self.timer.get(), at) };
    }
}

impl<T: Expire> Deref for OwnedTimer<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

/// # Safety
///
/// Called by the timers' core in a softirq, with the timer of an `OwnedTimer<T>`.
unsafe extern "C" fn fire<T: Expire>(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
    // SAFETY: The timer is the first field of an `OwnedTimer`, which is valid until `drop` has
    // waited for this callback.
    let this = unsafe { &*timer.cast::<OwnedTimer<T>>() };
    // SAFETY: Timers of this mode expire in softirq context.
    T::expired(this, unsafe { Softirq::assume() });
    compat::HRTIMER_NORESTART
}

impl<T: Expire> Drop for OwnedTimer<T> {
    fn drop(&mut self) {
        // SAFETY: `new_atomic` has set up the timer, and no one can arm it any more. The function
        // waits for a callback on another processor.
        unsafe { bindings::hrtimer_cancel(self.timer.get()) };
    }
}
