// SPDX-License-Identifier: GPL-2.0

//! Structures that the kernel links into lists, as registrations use.

use crate::net::errno::prelude::*;
use core::{cell::UnsafeCell, mem};

/// A structure with a stable address. Code that has the kernel link it must have it unlinked before
/// this is dropped.
pub(super) struct Listed<T>(Pin<KBox<UnsafeCell<T>>>);

// SAFETY: Nothing but the address can be had of it, and nothing runs when it goes: `new` takes no
// others.
unsafe impl<T> Send for Listed<T> {}
// SAFETY: Only the address can be had of it.
unsafe impl<T> Sync for Listed<T> {}

impl<T> Listed<T> {
    /// Allocates a place for `structure`, which is on no list yet.
    pub(super) fn new(structure: T) -> Result<Self> {
        const { assert!(!mem::needs_drop::<T>()) };
        Ok(Listed(KBox::pin(UnsafeCell::new(structure), GFP_KERNEL)?))
    }

    /// Returns its address.
    pub(super) fn as_ptr(&self) -> *mut T {
        self.0.get()
    }
}
