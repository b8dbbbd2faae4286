// SPDX-License-Identifier: GPL-2.0

//! A value that is set once.
//!
//! On the kernel crate's `SetOnce`. A look at that one is a call, and here a plain load tells that
//! there is no value.

use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use kernel::sync::SetOnce;

/// A value that is set once, and lives as long as this one.
pub(crate) struct Once<T> {
    value: SetOnce<T>,
    is_set: AtomicBool,
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Once {
            value: SetOnce::new(),
            is_set: AtomicBool::new(false),
        }
    }
}

impl<T> Once<T> {
    /// Returns whether there is a value.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Acquire)
    }

    /// Returns the value, if there is one.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        if self.is_set() {
            self.value.as_ref()
        } else {
            None
        }
    }

    /// Sets the value. Returns `false` if there is one already.
    pub(crate) fn set(&self, value: T) -> bool {
        let set = self.value.populate(value);
        if set {
            self.is_set.store(true, Release);
        }
        set
    }
}
