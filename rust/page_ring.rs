// SPDX-License-Identifier: GPL-2.0

//! A ring of the pages that a stream has filled and will reuse.
//!
//! The kernel zeroes most pages on allocation (`init_on_alloc`). For a stream, the zeroing takes
//! more than half as long as copying the stream's data. `skb_page_frag_refill` reuses the page that
//! a task filled last; this ring also reuses earlier pages. A page is reused when it has no other
//! references. By then the data in the page was acknowledged, and no device or receiver on this
//! host uses the page. A stream whose sends must not touch the task's page fragment, since memory
//! reclaim may wait for them, fills a fragment of its own.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h), `struct page_frag`

use super::{allocation::Context, bindings};
use crate::net::errno::prelude::*;
use core::ptr::{self, NonNull};

/// The maximum number of pages that one stream keeps: 4 MiB for pages of 32 KiB.
const MOST: usize = 128;

/// The number of pages that a search looks at. A longer search would rarely find a free page, since
/// pages mostly become free in order.
const SEARCH: usize = 8;

/// A reference to a page of `size` bytes, which may be a page of a higher order.
struct Page {
    page: NonNull<bindings::page>,
    size: u32,
}

// SAFETY: A page is not tied to the CPU or task that allocated it, and this value owns its
// reference.
unsafe impl Send for Page {}

impl Page {
    /// Takes the page out of `from`.
    ///
    /// # Safety
    ///
    /// `from` holds a reference to its page, or has no page.
    unsafe fn take(from: &mut bindings::page_frag) -> Option<Self> {
        let size = from.size;
        NonNull::new(core::mem::replace(&mut from.page, ptr::null_mut()))
            .map(|page| Page { page, size })
    }

    /// Moves the reference to `to`, replacing the page of `to`. All bytes of the page are then free
    /// to be written.
    fn give(self, to: &mut bindings::page_frag) {
        to.page = self.page.as_ptr();
        to.offset = 0;
        to.size = self.size;
        core::mem::forget(self);
    }

    /// Returns whether there are no other references to the page.
    fn is_ours(&self) -> bool {
        // SAFETY: The page is valid, since this value holds a reference to it.
        unsafe { bindings::page_is_ours(self.page.as_ptr()) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: This value owns the reference, which the function drops.
        unsafe { bindings::put_page(self.page.as_ptr()) };
    }
}

/// A page fragment of its own. Holds a reference to its page, or has no page.
struct Fragment(bindings::page_frag);

// SAFETY: The reference may be dropped by any task, and the page belongs to no task.
unsafe impl Send for Fragment {}

impl Fragment {
    const fn new() -> Self {
        Fragment(bindings::page_frag {
            page: ptr::null_mut(),
            offset: 0,
            size: 0,
        })
    }
}

impl Drop for Fragment {
    fn drop(&mut self) {
        if !self.0.page.is_null() {
            // SAFETY: This value owns the reference, which the function drops.
            unsafe { bindings::put_page(self.0.page) };
        }
    }
}

/// The filled pages that a stream keeps.
pub(crate) struct PageRing {
    /// The page that is being filled if the stream's calls must not use the task's fragment.
    own: Fragment,
    pages: KVec<Page>,
    /// The page that the next search begins with. Pages mostly lose their other references in the
    /// order in which they were filled.
    next: usize,
}

impl PageRing {
    /// Creates an empty ring, which needs no memory.
    pub(crate) const fn new() -> Self {
        PageRing {
            own: Fragment::new(),
            pages: KVec::new(),
            next: 0,
        }
    }

    /// Frees all pages.
    #[inline]
    pub(crate) fn free(&mut self) {
        if self.pages.capacity() > 0 || !self.own.0.page.is_null() {
            *self = Self::new();
        }
    }

    /// Calls `work` with the ring's own fragment and with the rest of the ring. During the call, no
    /// other code can reach the fragment. The fragment holds a reference to its page, if it has a
    /// page, and `work` must keep that true.
    #[cold]
    pub(super) fn with_own<T>(
        &mut self,
        work: impl FnOnce(&mut bindings::page_frag, &mut Self) -> T,
    ) -> T {
        let mut own = core::mem::replace(&mut self.own, Fragment::new());
        let result = work(&mut own.0, self);
        self.own = own;
        result
    }

    /// Makes the page fragment `pages` point to bytes that may be written. These are the rest of
    /// its page, a page of the ring without other references, or a new page. A full page is added
    /// to the ring. The ring keeps at most twice `bytes`: once for the bytes in flight, and once
    /// for bytes that are free or still held by a receiver on this host. Returns `false` if there
    /// is no memory. The task may sleep.
    ///
    /// # Safety
    ///
    /// `pages` holds a reference to its page, or has no page, and no one else uses `pages` during
    /// the call.
    #[inline]
    pub(super) unsafe fn refill(
        &mut self,
        pages: &mut bindings::page_frag,
        bytes: u32,
        context: Context,
    ) -> bool {
        if !pages.page.is_null() && pages.offset >= pages.size {
            // SAFETY: By the caller's promise, `pages` holds a reference to its page.
            let full = unsafe { Page::take(pages) };
            if let Some(next) = full.and_then(|full| self.exchange(full, bytes, context)) {
                next.give(pages);
            }
        }
        // SAFETY: By the caller's promise, no one else uses `pages`. It holds a reference to its
        // page, which may be one from `give`, or has no page.
        unsafe { bindings::skb_page_frag_refill(1, pages, context.gfp()) }
    }

    /// Works like [`refill`](Self::refill), but makes `pages` point to at least `len` bytes. If the
    /// rest of the page has fewer, they are not used. Also returns `false` if the page is smaller
    /// than `len`.
    ///
    /// # Safety
    ///
    /// The same as for [`refill`](Self::refill).
    pub(super) unsafe fn refill_with(
        &mut self,
        pages: &mut bindings::page_frag,
        len: u32,
        bytes: u32,
        context: Context,
    ) -> bool {
        // The second page is a new one, or one that is written from its start.
        for _ in 0..2 {
            // SAFETY: The caller's promise is the same.
            if !unsafe { self.refill(pages, bytes, context) } {
                return false;
            }
            if pages.size.saturating_sub(pages.offset) >= len {
                return true;
            }
            if pages.size < len {
                return false;
            }
            pages.offset = pages.size;
        }
        false
    }

    /// Keeps a full page, and returns a page of the ring without other references, if it finds one.
    /// The full page does not replace a page that has other references. If it did, with more bytes
    /// in flight than the ring holds, each page would be freed just before it could be reused. If
    /// kernel code has changed the socket's allocation flags, frees the full page and returns
    /// `None`.
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
            // An error is ignored: if there is no memory for its entry in the ring, the full page
            // is simply freed.
            let _ = self.pages.push(full, GFP_KERNEL_ACCOUNT);
        } else {
            // The next search begins further on. Otherwise pages that a receiver keeps would hide
            // the pages behind them for ever.
            let next = self.next.wrapping_add(SEARCH);
            self.next = next.checked_sub(count).unwrap_or(next).min(count);
        }
        None
    }
}
