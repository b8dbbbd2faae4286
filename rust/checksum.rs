// SPDX-License-Identifier: GPL-2.0

//! The checksum that follows a packet: the packet's CRC32c (Castagnoli, as in iSCSI and SCTP),
//! combined with a [mask](super::masks) by exclusive or, in big-endian order. The kernel's own
//! function computes the CRC, with the processor's CRC instruction where there is one.
//!
//! C headers: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h) (`skb_frag_address`,
//! `skb_seq_read`; `skb_crc32c` is not in every kernel),
//! [`include/linux/crc32c.h`](srctree/include/linux/crc32c.h)

use super::{
    allocation::Context,
    bindings,
    pages::MOST_FRAGMENTS,
    skb::{Buffer, Skb},
};
use core::{mem, ptr};
use kernel::ffi::c_int;

/// Length of the checksum, in bytes.
pub(crate) const CHECKSUM_LEN: usize = 4;

/// Calls `each` with the start and the length of each block of the range: `len` bytes of data from
/// offset `from` on. Returns whether the blocks were the whole range. If pages are shared, their
/// owner may write to them during the call.
///
/// # Safety
///
/// `skb` is valid, and no one else changes the `sk_buff`.
#[inline]
unsafe fn for_blocks(
    skb: *mut bindings::sk_buff,
    from: u32,
    len: u32,
    mut each: impl FnMut(*const u8, usize),
) -> bool {
    // SAFETY: By the caller's promise, `skb` is valid, and no one else changes the `sk_buff`.
    let buffer = unsafe { Buffer::from_raw(skb) };
    let (mut skip, mut left) = (from as usize, len as usize);
    // Uses the block `at` that follows those before it. Returns whether more is needed.
    let mut block = |at: *const u8, size: usize| {
        if let Some(there @ 1..) = size.checked_sub(skip) {
            let part = there.min(left);
            each(at.wrapping_add(skip), part);
            left = left.wrapping_sub(part);
        }
        skip = skip.saturating_sub(size);
        left > 0
    };
    let head = buffer.head();
    if !block(head.as_ptr(), head.len()) {
        return true;
    }
    for frag in buffer.page_frags() {
        // SAFETY: The fragment is initialised and borrowed.
        let at: *const u8 = unsafe { bindings::skb_frag_mapped(frag) }.cast();
        if at.is_null() {
            break;
        }
        if !block(at, frag.len as usize) {
            return true;
        }
    }
    // The rest is in memory that is not mapped all the time, or in a list of buffers.
    //
    // SAFETY: By the caller's promise, `skb` is valid. All-zero bytes are a valid value of the
    // state, which `skb_prepare_seq_read` fills in. Each block that `skb_seq_read` returns is
    // readable until the next call. The loop calls it until no block is left, so that no page stays
    // mapped.
    unsafe {
        let mut state: bindings::skb_seq_state = mem::zeroed();
        let end = from.wrapping_add(len);
        let mut done = 0;
        let rest = end.wrapping_sub(left as u32);
        bindings::skb_prepare_seq_read(skb, rest, end, &mut state);
        loop {
            let mut at: *const u8 = ptr::null();
            // A block may extend beyond the range, so only its part within the range is used.
            let there = bindings::skb_seq_read(done, &mut at, &mut state) as usize;
            let part = there.min(left);
            if part == 0 {
                return left == 0;
            }
            each(at, part);
            left = left.wrapping_sub(part);
            done = done.wrapping_add(part as u32);
        }
    }
}

/// Returns the CRC32c of `len` bytes of data from offset `from`, without a mask. Returns `None` if
/// some of them cannot be read.
///
/// # Safety
///
/// `skb` is valid, no one else changes the `sk_buff`, and its data have `len` bytes from offset
/// `from` on.
unsafe fn sum(skb: *mut bindings::sk_buff, from: u32, len: u32) -> Option<u32> {
    let mut crc = !0;
    // SAFETY: By the caller's promise, `skb` is valid. `crc32c` only reads a block, which is
    // readable.
    let whole = unsafe {
        for_blocks(skb, from, len, |at, len| {
            crc = bindings::crc32c(crc, at.cast(), len)
        })
    };
    whole.then_some(!crc)
}

/// Computes the mask that the sender has combined with the checksum of a packet. The packet is the
/// `len` bytes of data from offset `from` on, and the checksum follows it. The mask is the
/// exclusive or of the received checksum and the CRC32c of the received bytes. If a bit was
/// corrupted on the way, the result is not the sender's mask. Returns `None` if the checksum cannot
/// be read.
///
/// # Safety
///
/// `skb` is valid, and no one else changes the `sk_buff`. The data contain `len` bytes from offset
/// `from` on, and a checksum behind these bytes.
pub(super) unsafe fn mask(skb: *mut bindings::sk_buff, from: u32, len: u32) -> Option<u32> {
    let mut there = [0; CHECKSUM_LEN];
    let mut room = there.as_mut_ptr();
    // SAFETY: By the caller's promise, `skb` is valid and has the data. The blocks are readable.
    // Together they have at most the `CHECKSUM_LEN` bytes that `there` has room for.
    unsafe {
        let at = from.wrapping_add(len);
        let read = for_blocks(skb, at, CHECKSUM_LEN as u32, |at, len| {
            ptr::copy_nonoverlapping(at, room, len);
            room = room.add(len);
        });
        if !read {
            return None;
        }
        Some(u32::from_be_bytes(there) ^ sum(skb, from, len)?)
    }
}

/// Appends the checksum of the data from offset `from` on, combined with `mask`. Returns `false` if
/// there is no memory.
///
/// # Safety
///
/// `skb` is valid, the caller has it exclusively, and it has more than `from` bytes of data.
pub(super) unsafe fn append(skb: *mut bindings::sk_buff, from: u32, mask: u32) -> bool {
    // SAFETY: By the caller's promise, the buffer is exclusively ours, so its head may be
    // reallocated and its data changed. It has fewer than `MOST_FRAGMENTS` fragments, so one more
    // fits. The memory from `netdev_alloc_frag` comes with a reference to its page and is
    // exclusively ours.
    unsafe {
        // The owner of shared pages may still write to them, but the checksum must match the data
        // as sent. So a buffer with shared pages is made linear.
        let room = Buffer::from_raw(skb).fragments() < MOST_FRAGMENTS;
        let keeps = (*skb).data_len > 0 && room && !bindings::skb_has_shared_frag(skb);
        if !keeps && bindings::skb_linearize(skb) != 0 {
            return false;
        }
        let Some(sum) = sum(skb, from, (*skb).len.wrapping_sub(from)) else {
            return false;
        };
        let bytes = (sum ^ mask).to_be_bytes();
        if keeps {
            let to: *mut u8 = bindings::netdev_alloc_frag(CHECKSUM_LEN as u32).cast();
            if to.is_null() {
                return false;
            }
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, CHECKSUM_LEN);
            bindings::skb_add_frag_of(skb, to.cast(), CHECKSUM_LEN as c_int);
            return true;
        }
        let buffer = Buffer::from_raw_mut(skb);
        if buffer.put(&bytes) {
            return true;
        }
        let gfp = Context::Softirq.gfp();
        bindings::pskb_expand_head(skb, 0, CHECKSUM_LEN as c_int, gfp) == 0 && buffer.put(&bytes)
    }
}

impl Buffer {
    /// Works like [`with_header`](Self::with_header), but also writes the checksum of header and
    /// data, combined with `mask`, behind the clone's data. Returns `None` if `with_header` does,
    /// or if the tailroom is too short for the checksum. Also returns `None` if the data are not
    /// linear, or if a clone shares the data.
    ///
    /// The clone's checksum is in the memory behind this buffer's data. This buffer does not grow
    /// into that memory while a clone shares it.
    #[cold]
    #[inline(never)]
    pub(crate) fn with_header_and_sum(
        &self,
        header: &[u8],
        mask: u32,
        context: Context,
    ) -> Option<Skb> {
        if self.is_cloned() || self.tailroom() < CHECKSUM_LEN {
            return None;
        }
        let mut clone = self.with_header(header, context)?;
        // SAFETY: The clone is ours, and its data are linear, since there is tailroom. No other
        // clone uses the memory behind the data, and this buffer is borrowed.
        unsafe {
            let bytes = sum(clone.as_ptr(), 0, clone.len() as u32)? ^ mask;
            clone.extend(&bytes.to_be_bytes());
        }
        Some(clone)
    }
}

impl Skb {
    /// Appends the checksum of all the data, combined with `mask`. Returns `false` if there is no
    /// memory, or if a clone shares the data.
    #[cold]
    #[inline(never)]
    pub(crate) fn append_sum(&mut self, mask: u32) -> bool {
        // SAFETY: The buffer is ours, and no clone shares its data.
        !self.is_cloned() && unsafe { append(self.as_ptr(), 0, mask) }
    }
}

impl Buffer {
    /// Computes the mask that the sender has combined with the checksum of a packet. The packet is
    /// the first `len` bytes of the data, and the checksum follows it. The mask is the exclusive or
    /// of the received checksum and the CRC32c of the received bytes. If a bit was corrupted on the
    /// way, the result is not the sender's mask. Returns `None` if there is no checksum.
    #[cold]
    #[inline(never)]
    pub(crate) fn mask_behind(&self, len: usize) -> Option<u32> {
        self.span(len, CHECKSUM_LEN)?;
        // SAFETY: By the invariant of `Buffer`, the buffer is valid and borrowed. `span` has
        // checked that `len` bytes and a checksum are in its data.
        unsafe { mask(self.as_ptr(), 0, len as u32) }
    }
}
