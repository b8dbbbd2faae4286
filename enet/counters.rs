// SPDX-License-Identifier: GPL-2.0

//! Counters of a socket, which anyone may raise at any time.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A number that only grows, and wraps.
#[derive(Default)]
pub(crate) struct Counter(AtomicU32);

impl Counter {
    /// Raises the number by one.
    #[inline]
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// The number.
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }
}
