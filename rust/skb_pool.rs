// SPDX-License-Identifier: GPL-2.0

//! Sent buffers that are kept for reuse.
//!
//! A buffer consists of two pieces of memory, which the kernel zeroes on allocation. For a small
//! message, allocating and freeing a buffer takes longer than the protocol's own work. So
//! acknowledged buffers are reused for the next packets, as TCP once did with one buffer per socket
//! (`sk_tx_skb_cache`).

use super::{bindings, skb::Skb};
use core::{mem, ptr};

/// The number of bytes by which a reused buffer may exceed the requested size. The limit keeps a
/// message of a single byte from being charged for the buffer of a full packet.
const MOST_SLACK: usize = 1024;

/// A stack of buffers without data, linked by their own fields.
///
/// # Invariants
///
/// `first` is null or the top of a stack of `count` buffers, in which `next` of each buffer points
/// to the buffer below it. The stack holds the only reference to each buffer. Each buffer was
/// [plain](Skb::renew_plain) when it was put on the stack.
pub(crate) struct SkbPool {
    first: *mut bindings::sk_buff,
    count: u16,
}

// SAFETY: A buffer is not tied to the CPU or task that allocated it, and the stack owns its
// buffers.
unsafe impl Send for SkbPool {}

impl SkbPool {
    /// Creates an empty stack.
    pub(crate) const fn new() -> Self {
        SkbPool {
            first: ptr::null_mut(),
            count: 0,
        }
    }

    /// Keeps a buffer for reuse. Frees the buffer instead if the stack already has `most` buffers,
    /// or if the buffer is not plain. A buffer is not plain if its bytes are still shared, or if it
    /// has further state.
    #[inline]
    pub(crate) fn put(&mut self, mut skb: Skb, most: u16) {
        if self.count >= most || !skb.renew_plain() {
            return skb.consume();
        }
        let raw = skb.into_raw();
        // SAFETY: The buffer is exclusively ours and on no list. The stack takes over our
        // reference.
        unsafe { (*raw).__bindgen_anon_1.__bindgen_anon_1.next = self.first };
        self.first = raw;
        self.count = self.count.wrapping_add(1);
    }

    /// Returns an empty buffer with `headroom` bytes in front and room for `size` bytes of data. If
    /// the top buffer does not fit, frees it and returns `None`. The buffers below it are not
    /// tried: like the top buffer, they were allocated for another size.
    #[inline]
    pub(crate) fn take(&mut self, headroom: usize, size: usize) -> Option<Skb> {
        let skb = self.pop()?;
        let wanted = headroom.checked_add(size)?;
        match skb.capacity().checked_sub(wanted) {
            Some(slack) if slack <= MOST_SLACK => {
                // SAFETY: By the invariant, the buffer is plain, and its capacity is at least
                // `wanted`.
                unsafe { skb.clear(headroom) };
                Some(skb)
            }
            _ => {
                skb.consume();
                None
            }
        }
    }

    /// Frees all buffers except `most`.
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
        // SAFETY: By the invariant, `first` is null, or a buffer with the stack's only reference.
        // The `Skb` takes over this reference.
        let skb = unsafe { Skb::from_raw(self.first) }?;
        // SAFETY: The buffer is ours and on no other list, so its `next` is the pool's link.
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
