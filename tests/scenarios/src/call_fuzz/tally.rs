// SPDX-License-Identifier: GPL-2.0-only

//! What was done, counted where it outlives the processes that did it.

use std::fmt::Write as _;
use std::mem::size_of;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::calls::Kind;
use crate::prelude::*;

const KINDS: usize = Kind::ALL.len();

/// For each kind of call: how often it began, succeeded, and failed. What began and did neither was
/// killed.
#[derive(Debug)]
#[repr(C)]
pub struct Tally {
    began: [AtomicU64; KINDS],
    succeeded: [AtomicU64; KINDS],
    failed: [AtomicU64; KINDS],
}

impl Tally {
    /// One that this process and those it forks have in common, for ever.
    ///
    /// # Errors
    /// The errno of `mmap(2)`.
    pub fn shared() -> Result<&'static Self> {
        let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches none that is there.
        let base = unsafe { libc::mmap(ptr::null_mut(), size_of::<Self>(), access, kind, -1, 0) };
        check(if base == libc::MAP_FAILED { -1 } else { 0 })?;
        // SAFETY: the mapping is large enough, aligned to a page and never undone; zeroes are valid
        // counters, and counters are all that anybody makes of it.
        Ok(unsafe { &*base.cast::<Self>() })
    }

    /// A call begins.
    pub fn begin(&self, kind: Kind) {
        self.began[kind as usize].fetch_add(1, Relaxed);
    }

    /// It ended.
    pub fn end(&self, kind: Kind, good: bool) {
        let counters = if good { &self.succeeded } else { &self.failed };
        counters[kind as usize].fetch_add(1, Relaxed);
    }

    /// Calls of all kinds that began.
    pub fn total(&self) -> u64 {
        self.began.iter().map(|counter| counter.load(Relaxed)).sum()
    }

    /// Kinds that never succeeded.
    pub fn never(&self) -> Vec<Kind> {
        let idle = |kind: &Kind| self.succeeded[*kind as usize].load(Relaxed) == 0;
        Kind::ALL.into_iter().filter(idle).collect()
    }

    /// A table.
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
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{name:<14} {began:>10} {good:>10} {bad:>10} {killed:>10}"
            );
        }
        text
    }
}
