// SPDX-License-Identifier: GPL-2.0

//! Reuses the pages that a stream has filled.
//!
//! The kernel zeroes most pages on allocation (`init_on_alloc`), which takes a stream more than
//! half as long as copying its data. `skb_page_frag_refill` reuses the page that a task filled
//! last; this ring extends that to further pages. A page is reused when it has no other references:
//! its data was acknowledged, and no device or receiver on this host has it.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h), `struct page_frag`

use super::{bindings, skb::Context};
use crate::net::errno::prelude::*;
use core::ptr::{self, NonNull};

/// Most pages that one stream keeps: 1 MiB for pages of 32 KiB.
const MOST: usize = 32;

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

/// A queue of filled pages, oldest first.
pub(crate) struct PageRing(Option<KBox<Filled>>);

/// The entries that are not empty are the `count` ones from `first` on, wrapping.
struct Filled {
    pages: [Option<Page>; MOST],
    first: usize,
    count: usize,
}

impl PageRing {
    /// Creates an empty ring, which needs no memory.
    pub(crate) const fn new() -> Self {
        PageRing(None)
    }

    /// Frees all pages.
    #[inline]
    pub(crate) fn free(&mut self) {
        if self.0.is_some() {
            self.0 = None;
        }
    }

    /// Makes `pages` offer bytes that are free to be written: the rest of its page, a page of the
    /// ring without other references, or a new page. A page that is full is added to the ring,
    /// which keeps `bytes` at most. Returns `false` without memory. The task may sleep.
    ///
    /// # Safety
    ///
    /// `pages` has a reference to its page, or no page, and no one else uses it during the call.
    #[inline]
    pub(super) unsafe fn refill(&mut self, pages: &mut bindings::page_frag, bytes: u32) -> bool {
        if !pages.page.is_null() && pages.offset >= pages.size {
            // SAFETY: As promised.
            let full = unsafe { Page::take(pages) };
            if let Some(next) = full.and_then(|full| self.exchange(full, bytes)) {
                next.give(pages);
            }
        }
        // SAFETY: As promised, also of the page that `pages` may have got.
        unsafe { bindings::skb_page_frag_refill(1, pages, Context::Task.gfp()) }
    }

    /// Keeps a full page, and returns the oldest page if that has no other references.
    fn exchange(&mut self, full: Page, bytes: u32) -> Option<Page> {
        let most = bytes.checked_div(full.size).unwrap_or(0) as usize;
        if self.0.is_none() && most > 0 {
            self.0 = Filled::new();
        }
        let filled = self.0.as_deref_mut()?;
        while filled.count >= most.min(MOST) {
            filled.pop()?;
        }
        filled.push(full);
        filled.oldest().filter(|page| page.is_ours())?;
        filled.pop()
    }
}

impl Filled {
    /// Creates an empty queue; `None` without memory.
    fn new() -> Option<KBox<Self>> {
        let filled = Filled {
            pages: [const { None }; MOST],
            first: 0,
            count: 0,
        };
        KBox::new(filled, GFP_KERNEL_ACCOUNT).ok()
    }

    fn oldest(&self) -> Option<&Page> {
        self.pages.get(self.first)?.as_ref()
    }

    /// Adds a page as the newest, if there is room.
    fn push(&mut self, page: Page) {
        let behind = self.first.wrapping_add(self.count) % MOST;
        if let Some(place @ None) = self.pages.get_mut(behind) {
            *place = Some(page);
            self.count = self.count.wrapping_add(1);
        }
    }

    /// Removes the oldest page.
    fn pop(&mut self) -> Option<Page> {
        let page = self.pages.get_mut(self.first)?.take()?;
        self.first = self.first.wrapping_add(1) % MOST;
        self.count = self.count.wrapping_sub(1);
        Some(page)
    }
}
