// SPDX-License-Identifier: GPL-2.0

//! Counts memory against `RLIMIT_MEMLOCK`.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h) (`struct mmpin`)

use super::bindings;
use crate::net::errno::prelude::*;
use core::mem;
use kernel::page::PAGE_SIZE;

/// Memory of a process that counts against `RLIMIT_MEMLOCK` of its user.
pub(super) struct Locked(bindings::ubuf_info_msgzc_mmpin);

// SAFETY: The count belongs to a user and not to a task.
unsafe impl Send for Locked {}
// SAFETY: A shared reference gives no access to the count.
unsafe impl Sync for Locked {}

impl Locked {
    /// Counts `pages` pages, but at least two, against the limit of the running task's user.
    /// Nothing is counted if the limit does not hold for the task.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if that exceeds the limit.
    pub(super) fn new(pages: usize) -> Result<Self> {
        // The function adds two pages, since it is made for bytes that may begin within a page. It
        // counts nothing for 0 bytes.
        let bytes = pages.saturating_sub(2).saturating_mul(PAGE_SIZE).max(1);
        // SAFETY: The type consists of a pointer, which may be null, and a number.
        let mut locked = Locked(unsafe { mem::zeroed() });
        // SAFETY: The call runs in a task, and `locked` has no user yet.
        match unsafe { bindings::mm_account_pinned_pages(&mut locked.0, bytes) } {
            0 => Ok(locked),
            error => Err(Error::from_errno(error)),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: The value owns the count, and is not used any more. The function does nothing if
        // nothing was counted.
        unsafe { bindings::mm_unaccount_pinned_pages(&mut self.0) };
    }
}
