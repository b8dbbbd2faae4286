// SPDX-License-Identifier: GPL-2.0

//! Structures that the kernel links into its lists during a registration.

use crate::net::errno::prelude::*;
use core::{cell::UnsafeCell, mem};

/// A structure with a stable address. Code that makes the kernel link the structure must make the
/// kernel unlink it before this value is dropped.
pub(super) struct Listed<T>(Pin<KBox<UnsafeCell<T>>>);

// SAFETY: The methods only give out the address. `new` accepts only types that need no drop.
unsafe impl<T> Send for Listed<T> {}
// SAFETY: The methods only give out the address.
unsafe impl<T> Sync for Listed<T> {}

impl<T> Listed<T> {
    /// Moves `structure`, which is on no list yet, to allocated memory.
    pub(super) fn new(structure: T) -> Result<Self> {
        const { assert!(!mem::needs_drop::<T>()) };
        Ok(Listed(KBox::pin(UnsafeCell::new(structure), GFP_KERNEL)?))
    }

    /// Returns the address of the structure.
    pub(super) fn as_ptr(&self) -> *mut T {
        self.0.get()
    }
}
