// SPDX-License-Identifier: GPL-2.0

//! A spin lock for data that tasks and softirqs share.
//!
//! The kernel crate's spin lock leaves bottom halves enabled. With that lock, a softirq could
//! interrupt the lock's holder and spin for ever.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)

use super::{bindings, softirq::Softirq};
use crate::net::errno::prelude::*;
use core::{
    cell::UnsafeCell,
    ops::{Deref, DerefMut},
};
use kernel::{sync::LockClassKey, types::NotThreadSafe};

/// Data behind a lock that is taken with bottom halves disabled.
pub(crate) struct BhLock<T>(KBox<Locked<T>>);

/// A lock and its data, pinned in memory. The pair does not share a cache line with another lock,
/// so processors that take different locks do not contend.
#[repr(C, align(64))]
struct Locked<T> {
    lock: UnsafeCell<bindings::spinlock_t>,
    data: UnsafeCell<T>,
}

// SAFETY: The data is reached through the lock only.
unsafe impl<T: Send> Send for BhLock<T> {}
// SAFETY: The data is reached through the lock only.
unsafe impl<T: Send> Sync for BhLock<T> {}

impl<T> BhLock<T> {
    /// Creates a lock around `data`, charged to the memory cgroup of the calling task. Lockdep
    /// treats all locks of a `class` (`kernel::static_lock_class!()`) as one, so locks that are
    /// held together need different classes.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(data: T, class: Pin<&'static LockClassKey>) -> Result<Self> {
        Self::with_flags(data, class, GFP_KERNEL_ACCOUNT)
    }

    /// Works like [`Self::new`], but in a context that may not sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new_atomic(data: T, class: Pin<&'static LockClassKey>) -> Result<Self> {
        Self::with_flags(data, class, GFP_ATOMIC)
    }

    fn with_flags(
        data: T,
        class: Pin<&'static LockClassKey>,
        flags: kernel::alloc::Flags,
    ) -> Result<Self> {
        let locked = Locked {
            // SAFETY: All-zero bytes are a valid value, which `spin_lock_init` overwrites next.
            lock: UnsafeCell::new(unsafe { core::mem::zeroed() }),
            data: UnsafeCell::new(data),
        };
        let locked = KBox::new(locked, flags)?;
        // SAFETY: The lock does not move any more, since nothing moves it out of its box. The class
        // is static.
        unsafe { bindings::spin_lock_init(locked.lock.get(), class.as_ptr().cast()) };
        Ok(BhLock(locked))
    }

    /// Takes the lock.
    #[inline]
    pub(crate) fn lock(&self) -> BhLockGuard<'_, T> {
        // SAFETY: `with_flags` has initialised the lock.
        unsafe { bindings::spin_lock_bh(self.0.lock.get()) };
        BhLockGuard(self, NotThreadSafe)
    }

    /// Takes the lock in softirq context, where bottom halves are disabled already.
    #[inline]
    pub(crate) fn lock_in<'a>(&'a self, _softirq: Softirq<'a>) -> BhLockGuard<'a, T, false> {
        // SAFETY: `with_flags` has initialised the lock. No softirq interrupts its holder, as the
        // evidence lasts as long as the guard.
        unsafe { bindings::spin_lock(self.0.lock.get()) };
        BhLockGuard(self, NotThreadSafe)
    }
}

/// Access to the data while the lock is held, on the processor that took it. `ENABLES` tells
/// whether the guard enables bottom halves when it is dropped, because taking the lock has disabled
/// them.
pub(crate) struct BhLockGuard<'a, T, const ENABLES: bool = true>(&'a BhLock<T>, NotThreadSafe);

// SAFETY: A shared reference to the guard gives access only to a shared `T`.
unsafe impl<T: Sync, const ENABLES: bool> Sync for BhLockGuard<'_, T, ENABLES> {}

impl<T, const ENABLES: bool> Deref for BhLockGuard<'_, T, ENABLES> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: The lock is held.
        unsafe { &*self.0 .0.data.get() }
    }
}

impl<T, const ENABLES: bool> DerefMut for BhLockGuard<'_, T, ENABLES> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: The lock is held, and the guard is borrowed exclusively.
        unsafe { &mut *self.0 .0.data.get() }
    }
}

impl<T, const ENABLES: bool> Drop for BhLockGuard<'_, T, ENABLES> {
    #[inline]
    fn drop(&mut self) {
        let lock = self.0 .0.lock.get();
        // SAFETY: The guard holds the lock. If `ENABLES`, `lock` has taken it and disabled bottom
        // halves, otherwise `lock_in` has taken it.
        unsafe {
            if ENABLES {
                bindings::spin_unlock_bh(lock);
            } else {
                bindings::spin_unlock(lock);
            }
        }
    }
}
