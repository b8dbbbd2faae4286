// SPDX-License-Identifier: GPL-2.0

//! A socket's counters, which any context may increment.

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
