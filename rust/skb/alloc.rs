// SPDX-License-Identifier: GPL-2.0

//! Allocation of socket buffers: from the core's slabs, or as fragments of pages.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use super::Skb;
use crate::net::{
    allocation::Context,
    bindings,
    sock::{Protocol, Sock},
};
use kernel::page::PAGE_SIZE;

/// The alignment of fragments in a task's page, in bytes. This is a cache line, so a buffer's
/// header is aligned like the header of a buffer from the core.
const FRAGMENT_ALIGN: u32 = 64;

/// Returns the size of the memory of a buffer with room for `headroom` and `size` bytes. Returns
/// `None` if the size exceeds a page.
#[inline]
fn fragment_size(headroom: usize, size: usize) -> Option<u32> {
    let total = u32::try_from(headroom.checked_add(size)?).ok()?;
    // A larger size could overflow when it is rounded up.
    if total as usize > PAGE_SIZE {
        return None;
    }
    // SAFETY: The function only computes a size.
    let whole = unsafe { bindings::skb_head_align(total) };
    (whole as usize <= PAGE_SIZE).then_some(whole)
}

impl Skb {
    /// Allocates a buffer with `headroom` bytes in front and room for `size` bytes of data. One
    /// clone of the buffer needs no further allocation.
    #[inline]
    pub(crate) fn alloc(headroom: usize, size: usize, context: Context) -> Option<Self> {
        let total = u32::try_from(headroom.checked_add(size)?).ok()?;
        // SAFETY: The function accepts any size, and the flags of `context` state whether it may
        // sleep. It returns null, or a new buffer with `total` bytes of room.
        unsafe { Self::fresh(bindings::alloc_skb_fclone(total, context.gfp()), headroom) }
    }

    /// Works like [`alloc`](Self::alloc), but for a buffer that will not be cloned. Such a buffer
    /// is smaller, and is a [fragment](Self::alloc_fragment) of a page if the buffer fits into a
    /// page.
    #[inline]
    pub(crate) fn alloc_single(headroom: usize, size: usize, context: Context) -> Option<Self> {
        Self::alloc_fragment(headroom, size).or_else(|| Self::alloc_slab(headroom, size, context))
    }

    /// Works like [`alloc_single`](Self::alloc_single), but never in a fragment of a page. A
    /// fragment keeps more memory in use than the buffer is charged for, if its page's other
    /// fragments are freed. So this is for buffers that a peer can make a program keep.
    pub(crate) fn alloc_slab(headroom: usize, size: usize, context: Context) -> Option<Self> {
        let total = u32::try_from(headroom.checked_add(size)?).ok()?;
        // SAFETY: The function accepts any size, and the flags of `context` state whether it may
        // sleep. It returns null, or a new buffer with `total` bytes of room.
        unsafe { Self::fresh(bindings::alloc_skb(total, context.gfp()), headroom) }
    }

    /// Allocates a buffer in a fragment of a page, as drivers do for received packets. This takes
    /// less time than an allocation from a slab. The kernel zeroes every slab object on allocation
    /// (`init_on_alloc`), but a fragment is part of a page that was allocated before. Returns
    /// `None` if there is no memory, or if the buffer exceeds a page.
    ///
    /// The fragment is charged to no memory cgroup, and keeps its whole page, usually of 32 KiB, in
    /// use. For a task use [`alloc_charged`](Self::alloc_charged).
    #[inline]
    pub(in crate::net) fn alloc_fragment(headroom: usize, size: usize) -> Option<Self> {
        let whole = fragment_size(headroom, size)?;
        // SAFETY: `netdev_alloc_frag` accepts any size up to a page. The fragment is ours, and a
        // buffer with the requested room fits into its `whole` bytes. The buffer takes over the
        // fragment, or the fragment is freed.
        unsafe {
            let head = bindings::netdev_alloc_frag(whole);
            if head.is_null() {
                return None;
            }
            let skb = bindings::build_skb_here(head, whole);
            if skb.is_null() {
                bindings::skb_free_frag(head);
            }
            Self::fresh(skb, headroom)
        }
    }

    /// Works like [`alloc_fragment`](Self::alloc_fragment), but for a send call on `sock`. The
    /// buffer is a fragment of the running task's page. The page is charged to the task's memory
    /// cgroup. Returns `None` if there is no memory, if the buffer exceeds a page, or if the socket
    /// must not use the task's page. The task may sleep.
    #[inline]
    pub(in crate::net) fn alloc_charged<P: Protocol>(
        sock: &Sock<P>,
        headroom: usize,
        size: usize,
    ) -> Option<Self> {
        let whole = fragment_size(headroom, size)?;
        // SAFETY: `task_pages` returns null, or the page fragment of the running task. Only calls
        // of this task use the fragment. No other call of the task comes in between, since the
        // function returns null for a socket that memory reclaim uses.
        let pages = unsafe { sock.task_pages().as_mut() }?;
        // Rounding up does not exceed the page, whose size is a multiple of the alignment.
        pages.offset = pages.offset.wrapping_add(FRAGMENT_ALIGN - 1) & !(FRAGMENT_ALIGN - 1);
        // SAFETY: `pages` has no page, or holds a reference to its page.
        if !unsafe { bindings::skb_page_frag_refill(whole, pages, sock.task_context().gfp()) } {
            return None;
        }
        // SAFETY: After the refill, the page has at least `whole` bytes from `offset` on, since
        // `whole` is at most a page. Only the task uses these bytes. The buffer takes over these
        // bytes and a reference to the page, and uses no other part of the page. The page is not in
        // high memory, which the flags do not request. If `build_skb_here` fails, `skb_free_frag`
        // drops the reference.
        unsafe {
            let head = bindings::page_frag_head(pages);
            let skb = bindings::build_skb_here(head, whole);
            if skb.is_null() {
                bindings::skb_free_frag(head);
            } else {
                pages.offset = pages.offset.wrapping_add(whole);
            }
            Self::fresh(skb, headroom)
        }
    }

    /// # Safety
    ///
    /// `skb` is null, or a new buffer with at least `headroom` bytes of room. The caller gives one
    /// reference to the buffer away.
    #[inline]
    unsafe fn fresh(skb: *mut bindings::sk_buff, headroom: usize) -> Option<Self> {
        // SAFETY: By the caller's promise, `skb` is null or a new buffer, hence empty, with
        // `headroom` bytes of room.
        unsafe {
            let skb = Self::from_raw(skb)?;
            skb.reserve(headroom);
            Some(skb)
        }
    }
}
