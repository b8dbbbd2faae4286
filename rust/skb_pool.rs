// SPDX-License-Identifier: GPL-2.0

//! Sent buffers that are kept for reuse.
//!
//! A buffer consists of two pieces of memory, which the kernel zeroes on allocation. Allocating and
//! freeing one takes a small message longer than its protocol does. As TCP once did with one buffer
//! per socket (`sk_tx_skb_cache`), acknowledged buffers become the next packets.

use super::{bindings, skb::Skb};
use core::{mem, ptr};

/// By how many bytes a buffer may be larger than requested: the buffer of a full packet must not be
/// charged for a single byte.
const MOST_SLACK: usize = 1024;

/// A stack of buffers without data, linked by their own fields.
///
/// # Invariants
///
/// `first` is null or a buffer whose `next` is the one below it, and so on; of each the stack holds
/// the only reference, there are `count` of them, and each was [plain](Skb::renew_plain) when it
/// came.
pub(crate) struct SkbPool {
    first: *mut bindings::sk_buff,
    count: u16,
}

// SAFETY: Buffers are not tied to the CPU or task that made them, and these belong to the stack.
unsafe impl Send for SkbPool {}

impl SkbPool {
    /// Creates an empty stack.
    pub(crate) const fn new() -> Self {
        SkbPool {
            first: ptr::null_mut(),
            count: 0,
        }
    }

    /// Keeps a buffer for reuse. Frees it instead if there are `most` already, if its bytes are
    /// still shared, or if it has state that plain buffers lack.
    #[inline]
    pub(crate) fn put(&mut self, mut skb: Skb, most: u16) {
        if self.count >= most || !skb.renew_plain() {
            return skb.consume();
        }
        let raw = skb.into_raw();
        // SAFETY: The buffer is ours alone and on no list; its reference goes to the stack.
        unsafe { (*raw).__bindgen_anon_1.__bindgen_anon_1.next = self.first };
        self.first = raw;
        self.count = self.count.wrapping_add(1);
    }

    /// Returns an empty buffer with `headroom` bytes in front and room for `size` bytes of data.
    /// Frees a buffer that does not fit: those below it were not allocated for that size either.
    #[inline]
    pub(crate) fn take(&mut self, headroom: usize, size: usize) -> Option<Skb> {
        let skb = self.pop()?;
        let wanted = headroom.checked_add(size)?;
        match skb.capacity().checked_sub(wanted) {
            Some(slack) if slack <= MOST_SLACK => {
                // SAFETY: The buffer is plain by the invariant, and has at least that much room.
                unsafe { skb.clear(headroom) };
                Some(skb)
            }
            _ => {
                skb.consume();
                None
            }
        }
    }

    /// Frees all except `most`.
    #[inline]
    pub(crate) fn limit(&mut self, most: u16) {
        while self.count > most {
            match self.pop() {
                Some(skb) => skb.consume(),
                None => break,
            }
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<Skb> {
        // SAFETY: By the invariant null, or a buffer whose reference becomes ours.
        let skb = unsafe { Skb::from_raw(self.first) }?;
        // SAFETY: The buffer is ours, and on no list: its link is the pool's to use.
        unsafe {
            let next = ptr::addr_of_mut!((*skb.as_ptr()).__bindgen_anon_1.__bindgen_anon_1.next);
            self.first = mem::replace(&mut *next, ptr::null_mut());
        }
        self.count = self.count.wrapping_sub(1);
        Some(skb)
    }
}

impl Drop for SkbPool {
    fn drop(&mut self) {
        self.limit(0);
    }
}
