// SPDX-License-Identifier: GPL-2.0-only

//! Counts calls in memory that outlives the processes that make the calls.

use std::fmt::Write as _;
use std::mem::size_of;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::calls::Kind;
use guest::prelude::*;

const KINDS: usize = Kind::ALL.len();

/// For each kind of call, the number of calls that began, succeeded and failed. The remaining calls
/// were cut off when their process was killed.
#[derive(Debug)]
#[repr(C)]
pub struct Tally {
    began: [AtomicU64; KINDS],
    succeeded: [AtomicU64; KINDS],
    failed: [AtomicU64; KINDS],
}

impl Tally {
    /// Makes counters that this process and its later children share until they end.
    ///
    /// # Errors
    /// The errno of `mmap(2)`.
    pub fn shared() -> Result<&'static Self> {
        let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: The kernel chooses the address of the new mapping, so it overlaps no existing
        // mapping.
        let base = unsafe { libc::mmap(ptr::null_mut(), size_of::<Self>(), access, kind, -1, 0) };
        check(if base == libc::MAP_FAILED { -1 } else { 0 })?;
        // SAFETY: The mapping is large enough, page-aligned and never unmapped. All-zero bytes are
        // valid counters, and the memory is used only as counters.
        Ok(unsafe { &*base.cast::<Self>() })
    }

    /// Counts the beginning of a call.
    pub fn begin(&self, kind: Kind) {
        self.began[kind as usize].fetch_add(1, Relaxed);
    }

    /// Counts the end of a call.
    pub fn end(&self, kind: Kind, good: bool) {
        let counters = if good { &self.succeeded } else { &self.failed };
        counters[kind as usize].fetch_add(1, Relaxed);
    }

    /// Returns the number of calls of all kinds that began.
    pub fn total(&self) -> u64 {
        self.began.iter().map(|counter| counter.load(Relaxed)).sum()
    }

    /// Returns the kinds that never succeeded.
    pub fn never(&self) -> Vec<Kind> {
        let idle = |kind: &Kind| self.succeeded[*kind as usize].load(Relaxed) == 0;
        Kind::ALL.into_iter().filter(idle).collect()
    }

    /// Formats the counters as a table.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<14} {:>10} {:>10} {:>10} {:>10}\n",
            "call", "begun", "succeeded", "failed", "killed in"
        );
        for kind in Kind::ALL {
            let read = |counters: &[AtomicU64; KINDS]| counters[kind as usize].load(Relaxed);
            let (began, good, bad) = (read(&self.began), read(&self.succeeded), read(&self.failed));
            let killed = began.saturating_sub(good + bad);
            let name = format!("{kind:?}").to_lowercase();
            // The result is ignored: writing to a string does not fail.
            let _ = writeln!(
                text,
                "{name:<14} {began:>10} {good:>10} {bad:>10} {killed:>10}"
            );
        }
        text
    }
}
