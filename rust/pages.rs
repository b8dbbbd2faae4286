// SPDX-License-Identifier: GPL-2.0

//! Data in pages. A *store* is a buffer that a stream fills and keeps. The stream sends a clone of
//! the store or a *view*, a separate buffer that refers to a part of the store. So one copy of the
//! data serves all its transmissions, and bytes that a device may still read are not overwritten. A
//! store may instead refer to pages of other owners: of a file (`sendfile`, `splice`), or of the
//! program, which then gets a [completion notification](super::zerocopy).
//!
//! C headers: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h),
//! [`net/core/sock.c`](srctree/net/core/sock.c) (`skb_page_frag_refill`)

use super::{
    allocation::Context,
    bindings,
    message::Message,
    page_ring::PageRing,
    skb::{Buffer, Skb},
    sock::{Protocol, Sock},
};
use crate::net::errno::prelude::*;
use core::{ptr, slice};
use kernel::ffi::c_int;

/// The flag of a send call that passes pages. The protocol may keep these pages
/// (`include/linux/socket.h`).
const MSG_SPLICE_PAGES: c_int = bindings::MSG_SPLICE_PAGES as c_int;

/// Maximum number of page references in a buffer.
pub(crate) const MOST_FRAGMENTS: usize = bindings::MAX_SKB_FRAGS as usize;

/// Returns the maximum number of page references in a buffer that a program fills. An administrator
/// may set a limit below [`MOST_FRAGMENTS`] (`net.core.max_skb_frags`).
#[inline]
pub(crate) fn most_fragments() -> usize {
    // SAFETY: The function only reads a number.
    let most = unsafe { bindings::max_skb_frags() } as usize;
    most.clamp(1, MOST_FRAGMENTS)
}

/// Calls `work` with the page fragment that a send call on `sock` fills, and with the rest of the
/// ring: the fragment of the running task or, if the call must not use that, the ring's own.
/// Nothing else uses the fragment during the call. The fragment holds a reference to its page, if
/// it has a page, and `work` must keep that true.
#[inline]
fn with_fragment<P: Protocol, T>(
    ring: &mut PageRing,
    sock: &Sock<P>,
    work: impl FnOnce(&mut bindings::page_frag, &mut PageRing) -> T,
) -> T {
    // SAFETY: `task_pages` returns null, or the page fragment of the running task. Only calls of
    // this task use the fragment. No other call of the task comes in between, since the function
    // returns null for a socket that memory reclaim uses.
    match unsafe { sock.task_pages().as_mut() } {
        Some(pages) => work(pages, ring),
        None => ring.with_own(work),
    }
}

/// Where a page reference is added.
#[derive(Clone, Copy)]
enum Place {
    /// To the last fragment, which ends where the bytes begin.
    Last,
    /// To a new fragment.
    New,
}

impl Skb {
    /// Creates an empty store with `headroom` bytes in front.
    #[inline]
    pub(crate) fn store(headroom: usize, context: Context) -> Option<Self> {
        let store = Self::alloc(headroom, 0, context)?;
        // This mark keeps the core from computing a checksum over spliced pages.
        // SAFETY: The buffer is new and exclusively ours.
        unsafe { bindings::skb_set_summed(store.as_ptr()) };
        Some(store)
    }

    /// Creates an empty buffer with `headroom` bytes in front, to which views are added.
    #[inline]
    pub(crate) fn viewer(headroom: usize, context: Context) -> Option<Self> {
        Self::alloc_single(headroom, 0, context)
    }
}

impl Buffer {
    /// Returns the number of page references in the buffer.
    #[inline]
    pub(crate) fn fragments(&self) -> usize {
        // SAFETY: By the invariant of `Buffer`, the buffer is valid and borrowed.
        unsafe { (*self.shared()).nr_frags.into() }
    }

    /// Returns the page references in the buffer.
    #[inline]
    pub(super) fn page_frags(&self) -> &[bindings::skb_frag_t] {
        // SAFETY: By the invariant of `Buffer`, the buffer is valid and borrowed. The array has
        // room for `MOST_FRAGMENTS` references, and those below `nr_frags` are initialised.
        unsafe {
            let frags = ptr::addr_of!((*self.shared()).frags).cast();
            slice::from_raw_parts(frags, self.fragments())
        }
    }

    /// Returns how many page references a view needs if it begins at `offset` and covers at most
    /// `len` bytes.
    pub(crate) fn fragments_in(&self, offset: usize, len: usize) -> usize {
        let end = offset.saturating_add(len);
        let (mut start, mut count) = (0_usize, 0_usize);
        for frag in self.page_frags() {
            let behind = start.saturating_add(frag.len as usize);
            if behind > offset && start < end {
                count = count.wrapping_add(1);
            }
            start = behind;
        }
        count
    }

    /// Returns the length of the first page fragment of the buffer in bytes, 0 if there is none.
    pub(super) fn first_fragment_len(&self) -> u32 {
        self.page_frags().first().map_or(0, |frag| frag.len)
    }

    /// Appends the next bytes of the message of a send call on `sock`, but at most `len`. Returns
    /// the number of bytes appended. That number is less than `len`, or 0, if the buffer has no
    /// room for further page references. The number is 0 if the buffer has a clone. Advances the
    /// message by the bytes appended.
    ///
    /// As in TCP, the bytes are copied into pages of the running task, or of the stream if it must
    /// not use those of the task. They are not copied if the call passes its own pages
    /// (`MSG_SPLICE_PAGES`), or if the bytes stay [in place](Message::is_in_place). Full pages go
    /// to the stream's `ring`, whose size depends on the limit of the send buffer, and are reused
    /// later.
    ///
    /// # Errors
    ///
    /// If nothing was appended: `EFAULT` for bytes that cannot be read, `ENOBUFS` if there is no
    /// memory. Even after an error the memory of the buffer may have grown.
    #[inline]
    pub(crate) fn append<P: Protocol>(
        &mut self,
        ring: &mut PageRing,
        sock: &Sock<P>,
        msg: &mut Message<'_>,
        len: usize,
    ) -> Result<usize> {
        if len == 0 || self.is_cloned() {
            return Ok(0);
        }
        if msg.is_in_place() {
            return self.append_in_place(sock, msg, len);
        }
        self.hold_pages();
        if msg.flags() & MSG_SPLICE_PAGES != 0 {
            return self.append_spliced(msg, len);
        }
        with_fragment(ring, sock, |pages, ring| {
            // SAFETY: By `with_fragment`, nothing else uses `pages` during the call, and it holds a
            // reference to its page, if it has one. The buffer has no clone.
            unsafe { self.append_to(pages, ring, sock, msg, len) }
        })
    }

    /// Works like [`append`](Self::append), but copies the bytes to the fragment `pages`.
    ///
    /// # Safety
    ///
    /// `pages` holds a reference to its page, or has no page, and no one else uses `pages` during
    /// the call. No clone shares the buffer.
    #[inline]
    unsafe fn append_to<P: Protocol>(
        &mut self,
        pages: &mut bindings::page_frag,
        ring: &mut PageRing,
        sock: &Sock<P>,
        msg: &mut Message<'_>,
        len: usize,
    ) -> Result<usize> {
        let mut taken = 0_usize;
        while taken < len {
            // SAFETY: By the caller's promise, nothing else uses `pages`, and its page is valid.
            if !unsafe { ring.refill(pages, sock.send_limit(), sock.task_context()) } {
                return if taken > 0 { Ok(taken) } else { Err(ENOBUFS) };
            }
            let bindings::page_frag { page, offset, size } = *pages;
            let part = (size.wrapping_sub(offset) as usize).min(len.saturating_sub(taken));
            let Some(place) = self.place_for(page, offset) else {
                break;
            };
            // SAFETY: The page has at least `part` bytes from `offset` on, and nothing else uses
            // them. The page is not in high memory, which the flags of `refill` do not request. The
            // message belongs to the running call.
            let copied = unsafe {
                let copied = bindings::copy_to_page(page, offset, part, msg.iter());
                if copied < part {
                    bindings::iov_iter_revert(msg.iter(), copied);
                }
                copied
            };
            if copied < part {
                return if taken > 0 { Ok(taken) } else { Err(EFAULT) };
            }
            // SAFETY: The page is valid, the copy above has initialised the bytes, and no clone
            // shares the buffer.
            unsafe { self.refer(place, page, offset, part as u32) };
            pages.offset = offset.wrapping_add(part as u32);
            taken = taken.saturating_add(part);
        }
        Ok(taken)
    }

    /// Moves the data of a buffer without page references to a page, so that the buffer becomes a
    /// store. Returns `false`, and leaves the buffer as it was, if it refers to pages or has a
    /// clone, or if no page has room for the data.
    pub(crate) fn move_to_page<P: Protocol>(
        &mut self,
        ring: &mut PageRing,
        sock: &Sock<P>,
    ) -> bool {
        if self.is_cloned() || self.fragments() > 0 {
            return false;
        }
        with_fragment(ring, sock, |pages, ring| {
            let len = self.len() as u32;
            // SAFETY: By `with_fragment`, nothing else uses `pages` during the call, and it holds a
            // reference to its page, if it has one.
            if !unsafe { ring.refill_with(pages, len, sock.send_limit(), sock.task_context()) } {
                return false;
            }
            let bindings::page_frag { page, offset, .. } = *pages;
            // SAFETY: `refill_with` has found `len` bytes of the page, from `offset` on, which
            // nothing else uses. The buffer has as many bytes.
            let error = unsafe { bindings::skb_copy_to_page(self.as_ptr(), page, offset, len) };
            if error != 0 || !self.trim(0) {
                return false;
            }
            // SAFETY: The page is valid, and the copy above has initialised the bytes. The buffer
            // is borrowed exclusively, has no page references yet, and no clone shares it.
            unsafe {
                self.refer(Place::New, page, offset, len);
                bindings::skb_set_summed(self.as_ptr());
            }
            pages.offset = offset.wrapping_add(len);
            true
        })
    }

    /// Works like [`append`](Self::append), but refers to the pages that the call passes.
    fn append_spliced(&mut self, msg: &mut Message<'_>, len: usize) -> Result<usize> {
        // SAFETY: The buffer is borrowed exclusively, and no clone shares it. The message belongs
        // to the running call. The function takes a reference to each page, and stops at the
        // buffer's maximum number of page references.
        let taken = unsafe {
            bindings::skb_splice_from_iter(
                self.as_ptr(),
                msg.iter(),
                len.min(isize::MAX as usize) as isize,
            )
        };
        match usize::try_from(taken) {
            Ok(taken) => {
                // SAFETY: The buffer is borrowed exclusively. The flag states that the owner of the
                // pages may still write to them.
                unsafe { (*self.shared()).flags |= bindings::SKBFL_SHARED_FRAG as u8 };
                Ok(taken)
            }
            Err(_) if taken == -(bindings::EMSGSIZE as isize) => Ok(0),
            Err(_) => Err(Error::from_errno(taken as c_int)),
        }
    }

    /// Returns where a reference to bytes of `page` from `offset` on can be added: to the last
    /// fragment, or as a new fragment. Returns `None` if there is no room for a new fragment.
    #[inline]
    fn place_for(&self, page: *mut bindings::page, offset: u32) -> Option<Place> {
        let count = self.fragments();
        // SAFETY: By the invariant of `Buffer`, the buffer is valid and borrowed. The function only
        // reads the last fragment.
        let joins = unsafe {
            bindings::skb_can_coalesce(self.as_ptr(), count as c_int, page, offset as c_int)
        };
        if joins {
            Some(Place::Last)
        } else {
            (count < most_fragments()).then_some(Place::New)
        }
    }

    /// Extends the data by `len` bytes of `page` from `offset` on.
    ///
    /// # Safety
    ///
    /// The page is valid, and these bytes of it are initialised. [`place_for`](Self::place_for) has
    /// just returned `place` for them, and no clone shares the buffer.
    #[inline]
    unsafe fn refer(&mut self, place: Place, page: *mut bindings::page, offset: u32, len: u32) {
        let skb = self.as_ptr();
        // SAFETY: The buffer is borrowed exclusively. By the caller's promise, the last fragment is
        // of this page, or there is room for one more fragment. A new fragment gets its own
        // reference to the page.
        unsafe {
            match place {
                Place::Last => bindings::skb_grow_last_frag(skb, len as c_int),
                Place::New => bindings::skb_add_page(skb, page, offset as c_int, len as c_int),
            }
            self.lengthen(len);
        }
    }

    /// Adds `len` bytes to the count of data in pages.
    ///
    /// # Safety
    ///
    /// The buffer refers to these bytes, after its other data.
    #[inline]
    unsafe fn lengthen(&mut self, len: u32) {
        let skb = self.as_ptr();
        // SAFETY: The buffer is borrowed exclusively. By the caller's promise, it refers to the
        // bytes.
        unsafe {
            (*skb).len = (*skb).len.wrapping_add(len);
            (*skb).data_len = (*skb).data_len.wrapping_add(len);
            (*skb).truesize = (*skb).truesize.wrapping_add(len);
        }
    }

    /// Appends a view of `len` bytes of `store` from `offset` on. Returns `false` if `store` does
    /// not have all these bytes in pages. Also returns `false` if this buffer has a clone, cannot
    /// refer to all the bytes, or refers to a different completion notification.
    #[inline]
    pub(crate) fn append_view(&mut self, store: &Buffer, offset: usize, len: usize) -> bool {
        let whole = store.span(offset, len).is_some() && store.is_paged();
        if !whole || self.is_cloned() || !self.follow_notice(store) {
            return false;
        }
        let (mut offset, mut left) = (offset as u32, len as u32);
        for &frag in store.page_frags() {
            // SAFETY: Both buffers are valid, and they are different, since this one is borrowed
            // exclusively. The fragments of `store` refer to pages that the store keeps. The new
            // fragment is within the array, and gets its own reference before `nr_frags` counts it.
            unsafe {
                if offset >= frag.len {
                    offset = offset.wrapping_sub(frag.len);
                    continue;
                }
                let count = self.fragments();
                if count >= MOST_FRAGMENTS {
                    return false;
                }
                let info = self.shared();
                let to = ptr::addr_of_mut!((*info).frags)
                    .cast::<bindings::skb_frag_t>()
                    .add(count);
                let part = frag.len.wrapping_sub(offset).min(left);
                *to = frag;
                (*to).offset = frag.offset.wrapping_add(offset);
                (*to).len = part;
                bindings::frag_ref(to);
                (*info).nr_frags = (*info).nr_frags.wrapping_add(1);
                (*info).flags |= (*store.shared()).flags & bindings::SKBFL_SHARED_FRAG as u8;
                self.lengthen(part);
                left = left.wrapping_sub(part);
            }
            offset = 0;
            if left == 0 {
                break;
            }
        }
        left == 0
    }

    /// Returns whether all data are in pages that the buffer itself refers to.
    #[inline]
    fn is_paged(&self) -> bool {
        let skb = self.as_ptr();
        // SAFETY: By the invariant of `Buffer`, the buffer is valid.
        unsafe { (*skb).len == (*skb).data_len && (*self.shared()).frag_list.is_null() }
    }
}
