// SPDX-License-Identifier: GPL-2.0

//! Counters with a copy per processor, so that processors do not contend for a cache line.
//!
//! C header: [`include/linux/percpu.h`](srctree/include/linux/percpu.h)

use super::bindings;
use crate::net::errno::prelude::*;
use core::ptr::NonNull;
use kernel::ffi::c_void;

/// `N` counters, which wrap around.
///
/// # Invariants
///
/// The pointer is a per-processor allocation of `N` words, which this value owns.
pub(crate) struct PerCpu<const N: usize>(NonNull<c_void>);

// SAFETY: The memory is not tied to the task that allocated it.
unsafe impl<const N: usize> Send for PerCpu<N> {}
// SAFETY: Adding to a processor's word (`this_cpu_add`) is atomic with respect to all code on that
// processor that may interrupt or preempt it, including softirqs of other tasks. Each word is read
// in a single load.
unsafe impl<const N: usize> Sync for PerCpu<N> {}

impl<const N: usize> PerCpu<N> {
    /// Creates counters at zero. Must be called in process context.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: The function accepts any size, and the kernel zeroes the memory.
        let words = unsafe { bindings::alloc_percpu_words(N) };
        Ok(PerCpu(NonNull::new(words).ok_or(ENOMEM)?))
    }

    /// Adds `n` to the counter `index`. Ignores an index out of range.
    #[inline]
    pub(crate) fn add(&self, index: usize, n: usize) {
        if index < N {
            // SAFETY: By the invariant there are `N` words.
            unsafe { bindings::percpu_word_add(self.0.as_ptr(), index, n) };
        }
    }

    /// Returns the sum of the counter `index` over all processors; 0 for an index out of range.
    pub(crate) fn sum(&self, index: usize) -> usize {
        if index >= N {
            return 0;
        }
        // SAFETY: By the invariant there are `N` words.
        unsafe { bindings::percpu_word_sum(self.0.as_ptr(), index) }
    }
}

impl<const N: usize> Drop for PerCpu<N> {
    fn drop(&mut self) {
        // SAFETY: By the invariant, the memory is ours, and no one else can use it any more.
        unsafe { bindings::free_percpu_words(self.0.as_ptr()) };
    }
}
