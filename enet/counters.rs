// SPDX-License-Identifier: GPL-2.0

//! Counters of a socket. Any context may increment them.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A number that only increases, and wraps.
#[derive(Default)]
pub(crate) struct Counter(AtomicU32);

impl Counter {
    /// Increments the number.
    #[inline]
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Returns the number.
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }
}
