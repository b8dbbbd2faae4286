// SPDX-License-Identifier: GPL-2.0

//! Stores the mask of the packets in a buffer. A packet's [checksum](super::checksum) is the
//! exclusive or of a mask and the packet's CRC32c, and all packets of a buffer have the same mask.
//! If a buffer has a single packet, the checksum follows the packet and contains the mask. In a
//! buffer with several packets, the packets have no checksums, and `skb->csum` stores their mask:
//!
//! * The buffer is marked as not needing a checksum verified (`CHECKSUM_UNNECESSARY`). The core
//!   then does not change `csum`, and copies it to clones and copies (`skb_copy_header`). So the
//!   mask is kept where a bridge forwards the buffer, or a device segments it.
//! * When a tunnel with its own checksum is removed, `csum_level` is decremented
//!   (`__skb_decr_checksum_unnecessary`). At a level below zero, the core would no longer regard
//!   the checksum as verified, and would overwrite `csum`. So `csum_level` starts at its maximum,
//!   which exceeds the number of tunnels around a frame.
//!
//! If something removes the mark `CHECKSUM_UNNECESSARY`, the mask reads as 0, which is wrong for a
//! connection with masks.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use super::{bindings, skb::Buffer};

/// Returns the mask of the packets in a buffer with several packets.
///
/// # Safety
///
/// `skb` is valid, and no one else changes the `sk_buff`.
#[inline]
pub(super) unsafe fn of_run(skb: *mut bindings::sk_buff) -> u32 {
    // SAFETY: By the caller's promise, `skb` is valid. The function only reads.
    unsafe { bindings::skb_mask(skb) }
}

/// Sets the mask of the packets in a buffer that has or will have several packets.
///
/// # Safety
///
/// `skb` is valid, and no one else uses the `sk_buff`.
#[inline]
pub(super) unsafe fn set_of_run(skb: *mut bindings::sk_buff, mask: u32) {
    // SAFETY: By the caller's promise, no one else uses the `sk_buff`. The function writes three of
    // its integer fields.
    unsafe { bindings::skb_set_mask(skb, mask) };
}

impl Buffer {
    /// Returns the mask of the packets in the buffer. The buffer has [several
    /// packets](super::offload::Contents::Packets).
    #[cold]
    #[inline(never)]
    pub(crate) fn mask_of_run(&self) -> u32 {
        // SAFETY: By the invariant of `Buffer`, the buffer is valid and borrowed.
        unsafe { of_run(self.as_ptr()) }
    }

    /// Sets the mask of the packets in the buffer, which has [several packets](Self::set_packets).
    /// The mask applies to later clones, too.
    #[cold]
    #[inline(never)]
    pub(crate) fn set_mask_of_run(&mut self, mask: u32) {
        // SAFETY: The buffer is borrowed exclusively.
        unsafe { set_of_run(self.as_ptr(), mask) };
    }
}
