// SPDX-License-Identifier: GPL-2.0

//! The mask of the [checksums](super::checksum) of a buffer's packets: a number combined with the
//! CRC32c of each of them by exclusive or. A packet alone in its buffer has the mask in its
//! checksum. In a buffer with several packets the packets have no checksums, and the descriptor
//! stores their mask in `skb->csum`:
//!
//! * The buffer is marked as not needing a checksum verified (`CHECKSUM_UNNECESSARY`). The core
//!   then leaves the field alone, and copies it to clones and copies (`skb_copy_header`), also
//!   where a bridge forwards the buffer or a device segments it.
//! * When a tunnel with its own checksum is removed, `csum_level` is decremented; below zero the
//!   buffer would count as one without a verified checksum (`__skb_decr_checksum_unnecessary`), and
//!   the field would be overwritten. So the level is the highest that the core can count, which
//!   exceeds the number of tunnels around a frame.
//!
//! A buffer that has lost this state has the mask 0, which is wrong for a connection with masks.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use super::{bindings, skb::Buffer};

/// Returns the mask of the packets in a buffer with several packets.
///
/// # Safety
///
/// `skb` is valid, and no one else changes its descriptor.
#[inline]
pub(super) unsafe fn of_run(skb: *mut bindings::sk_buff) -> u32 {
    // SAFETY: The caller's promise; only reads.
    unsafe { bindings::skb_mask(skb) }
}

/// Sets the mask of the packets in a buffer that has several packets, or will have.
///
/// # Safety
///
/// `skb` is valid, and no one else uses its descriptor.
#[inline]
pub(super) unsafe fn set_of_run(skb: *mut bindings::sk_buff, mask: u32) {
    // SAFETY: The caller's promise. The three fields are integers of the descriptor.
    unsafe { bindings::skb_set_mask(skb, mask) };
}

impl Buffer {
    /// Returns the mask of the packets in the buffer, if it has
    /// [several](super::offload::Contents::Packets).
    #[cold]
    #[inline(never)]
    pub(crate) fn mask_of_run(&self) -> u32 {
        // SAFETY: By the invariant of `Buffer`, the buffer is valid and borrowed.
        unsafe { of_run(self.as_ptr()) }
    }

    /// Sets the mask of the packets in the buffer, which has [several](Self::set_packets); applies
    /// to later clones, too.
    #[cold]
    #[inline(never)]
    pub(crate) fn set_mask_of_run(&mut self, mask: u32) {
        // SAFETY: The buffer is borrowed exclusively.
        unsafe { set_of_run(self.as_ptr(), mask) };
    }
}
