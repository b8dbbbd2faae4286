// SPDX-License-Identifier: GPL-2.0

//! The mask of the [sums](super::checksum) of a buffer's packets: what is added (exclusive or) to
//! the CRC32c of each of them. A packet that is alone in its buffer has it in its sum. Several
//! packets have no sums, and the buffer's descriptor has their mask, in `skb->csum`:
//!
//! * The buffer says that its sums need no look (`CHECKSUM_UNNECESSARY`). The core then leaves the
//!   field alone, and copies it to clones and copies (`skb_copy_header`), also where a bridge
//!   forwards the buffer or a device cuts it.
//! * A tunnel with sums of its own counts one of `csum_level` off where it is taken off, and would
//!   take the buffer for one without a sum after the last (`__skb_decr_checksum_unnecessary`) and
//!   write to the field. So there are as many as the core can count, more than there are tunnels
//!   around a frame.
//!
//! A buffer that has lost the state has the mask 0, which is wrong for a connection with masks.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use super::{bindings, skb::Buffer};

/// The mask of the packets in a buffer that has several.
///
/// # Safety
///
/// `skb` is valid, and nobody changes its descriptor.
#[inline]
pub(super) unsafe fn of_run(skb: *mut bindings::sk_buff) -> u32 {
    // SAFETY: The caller's promise; only reads.
    unsafe { bindings::skb_mask(skb) }
}

/// Sets the mask of the packets in a buffer that has several, or is about to.
///
/// # Safety
///
/// `skb` is valid, and nobody else uses its descriptor.
#[inline]
pub(super) unsafe fn set_of_run(skb: *mut bindings::sk_buff, mask: u32) {
    // SAFETY: The caller's promise. The three fields are integers of the descriptor.
    unsafe { bindings::skb_set_mask(skb, mask) };
}

impl Buffer {
    /// The mask of the packets in the buffer, if it has
    /// [several](super::offload::Contents::Packets).
    #[cold]
    #[inline(never)]
    pub(crate) fn mask_of_run(&self) -> u32 {
        // SAFETY: The buffer is valid and borrowed.
        unsafe { of_run(self.as_ptr()) }
    }

    /// Sets the mask of the packets in the buffer, which has [several](Self::set_packets); also of
    /// clones that are made afterwards.
    #[cold]
    #[inline(never)]
    pub(crate) fn set_mask_of_run(&mut self, mask: u32) {
        // SAFETY: The buffer is borrowed exclusively.
        unsafe { set_of_run(self.as_ptr(), mask) };
    }
}
