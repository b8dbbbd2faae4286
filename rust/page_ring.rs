// SPDX-License-Identifier: GPL-2.0

//! Reuses the pages that a stream has filled.
//!
//! The kernel zeroes most pages on allocation (`init_on_alloc`), which takes a stream more than
//! half as long as copying its data. `skb_page_frag_refill` reuses the page that a task filled
//! last; this ring extends that to further pages. A page is reused when it has no other references:
//! its data was acknowledged, and no device or receiver on this host has it.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h), `struct page_frag`

use super::{allocation::Context, bindings};
use crate::net::errno::prelude::*;
use core::ptr::{self, NonNull};

/// Most pages that one stream keeps: 4 MiB for pages of 32 KiB.
const MOST: usize = 128;

/// Pages that a search looks at. One that has to look further rarely finds any: pages become free
/// in order.
const SEARCH: usize = 8;

/// A reference to a page, possibly one of a higher order, of `size` bytes.
struct Page {
    page: NonNull<bindings::page>,
    size: u32,
}

// SAFETY: Pages are not tied to the CPU or task that made them, and the reference is this value's
// own.
unsafe impl Send for Page {}

impl Page {
    /// Takes the page out of `from`.
    ///
    /// # Safety
    ///
    /// `from` has a reference to its page, or no page.
    unsafe fn take(from: &mut bindings::page_frag) -> Option<Self> {
        let size = from.size;
        NonNull::new(core::mem::replace(&mut from.page, ptr::null_mut()))
            .map(|page| Page { page, size })
    }

    /// Moves the reference to `to`, replacing its page, with all bytes free.
    fn give(self, to: &mut bindings::page_frag) {
        to.page = self.page.as_ptr();
        to.offset = 0;
        to.size = self.size;
        core::mem::forget(self);
    }

    /// Returns whether there are no other references to the page.
    fn is_ours(&self) -> bool {
        // SAFETY: The page is valid, as this is a reference to it.
        unsafe { bindings::page_is_ours(self.page.as_ptr()) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: The reference is this value's own.
        unsafe { bindings::put_page(self.page.as_ptr()) };
    }
}

/// The filled pages that a stream keeps.
pub(crate) struct PageRing {
    pages: KVec<Page>,
    /// The page that the next search begins with. Pages mostly lose their other references in the
    /// order in which they were filled.
    next: usize,
}

impl PageRing {
    /// Creates an empty ring, which needs no memory.
    pub(crate) const fn new() -> Self {
        PageRing {
            pages: KVec::new(),
            next: 0,
        }
    }

    /// Frees all pages.
    #[inline]
    pub(crate) fn free(&mut self) {
        if self.pages.capacity() > 0 {
            *self = Self::new();
        }
    }

    /// Makes `pages` offer bytes that are free to be written: the rest of its page, a page of the
    /// ring without other references, or a new page. A page that is full is added to the ring,
    /// which keeps twice `bytes` at most: what is in flight, and as much again with the receiver,
    /// if that is on this host, or free. Returns `false` without memory. The task may sleep.
    ///
    /// # Safety
    ///
    /// `pages` has a reference to its page, or no page, and no one else uses it during the call.
    #[inline]
    pub(super) unsafe fn refill(
        &mut self,
        pages: &mut bindings::page_frag,
        bytes: u32,
        context: Context,
    ) -> bool {
        if !pages.page.is_null() && pages.offset >= pages.size {
            // SAFETY: As promised.
            let full = unsafe { Page::take(pages) };
            if let Some(next) = full.and_then(|full| self.exchange(full, bytes, context)) {
                next.give(pages);
            }
        }
        // SAFETY: As promised, also of the page that `pages` may have got.
        unsafe { bindings::skb_page_frag_refill(1, pages, context.gfp()) }
    }

    /// Keeps a full page, and returns a page that has no other references. A page that has some is
    /// not replaced by the full one: that would free each page just before its turn as soon as more
    /// is in flight than the ring holds. A socket whose user in the kernel limits allocations has
    /// no ring.
    fn exchange(&mut self, full: Page, bytes: u32, context: Context) -> Option<Page> {
        if !matches!(context, Context::Task(flags) if flags.is_default()) {
            return None;
        }
        let most = bytes.saturating_mul(2).checked_div(full.size).unwrap_or(0) as usize;
        let most = most.min(MOST);
        self.pages.truncate(most);
        let count = self.pages.len();
        self.next = self.next.min(count);
        for step in 0..count.min(SEARCH) {
            let index = self.next.wrapping_add(step);
            let index = index.checked_sub(count).unwrap_or(index);
            let page = self.pages.get_mut(index)?;
            if page.is_ours() {
                self.next = index.wrapping_add(1);
                return Some(core::mem::replace(page, full));
            }
        }
        if count < most {
            // Without memory for its entry the page is freed.
            let _ = self.pages.push(full, GFP_KERNEL_ACCOUNT);
        } else {
            // Pages that a receiver keeps do not hide those behind them for ever.
            let next = self.next.wrapping_add(SEARCH);
            self.next = next.checked_sub(count).unwrap_or(next).min(count);
        }
        None
    }
}
