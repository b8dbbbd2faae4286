// SPDX-License-Identifier: GPL-2.0

//! Segments the payload of a buffer into packets, as `skb_segment` does. This is only for the
//! common buffers of this module, which have all their payload in pages.
//!
//! `skb_segment` allocates the head of each packet from a slab, which zeroes the head
//! (`init_on_alloc`) although all of it is then written. Here a head is a page fragment, as for
//! packets that drivers receive. For a device that does not accept pages (no `NETIF_F_SG`), the
//! fragment also gets a copy of the payload.
//!
//! C headers: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h),
//! [`net/core/skbuff.c`](srctree/net/core/skbuff.c)

use super::{
    bindings,
    checksum::CHECKSUM_LEN,
    skb::{Buffer, Skb},
};
use core::{ptr, slice};

/// A list of packets linked by `next`. The `prev` of the first packet points to the last, as in a
/// list that `skb_segment` returns.
struct Packets {
    first: *mut bindings::sk_buff,
    last: *mut bindings::sk_buff,
}

impl Packets {
    fn push(&mut self, skb: Skb) {
        let raw = skb.into_raw();
        // SAFETY: The list owns its buffers, and they are on no other list.
        unsafe {
            if self.first.is_null() {
                self.first = raw;
            } else {
                (*self.last).__bindgen_anon_1.__bindgen_anon_1.next = raw;
            }
            (*self.first).__bindgen_anon_1.__bindgen_anon_1.prev = raw;
        }
        self.last = raw;
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        if !self.first.is_null() {
            // SAFETY: The list owns its buffers.
            unsafe { bindings::kfree_skb_list(self.first) };
        }
    }
}

/// Lengths of the headers in front of the data of a buffer, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Headers {
    /// The headers that stay part of each packet's data.
    pub(super) own: usize,
    /// The outer headers in front of `own`, of a tunnel or an MPLS label. They are copied to each
    /// packet's headroom. The outer layer then moves the start of the packet's data back over them.
    pub(super) outer: usize,
}

impl Headers {
    /// Returns the length of all headers.
    fn all(self) -> Option<usize> {
        self.own.checked_add(self.outer)
    }
}

/// Segments the data of `whole` into packets of `size` bytes, each with the `headers` that precede
/// the data. The packets refer to the same pages, if a device with these `features` accepts pages.
/// Returns the first packet of the list, which the caller owns. Returns null if there is no memory,
/// or if `whole` is not one of the common buffers; the caller then uses `skb_segment`.
pub(super) fn cut(
    whole: &Buffer,
    headers: Headers,
    size: u16,
    features: bindings::netdev_features_t,
) -> *mut bindings::sk_buff {
    let (size, all) = (usize::from(size), whole.len());
    // SAFETY: By the invariant of `Buffer`, the buffer is valid and borrowed.
    if size == 0 || !unsafe { bindings::skb_is_usual_run(whole.as_ptr()) } {
        return ptr::null_mut();
    }
    // SAFETY: The function only tests a bit of `features`.
    let refers = unsafe { bindings::takes_pages(features) };
    let mut packets = Packets {
        first: ptr::null_mut(),
        last: ptr::null_mut(),
    };
    let mut start = 0_usize;
    while start < all {
        let len = size.min(all.wrapping_sub(start));
        // Room for the copied data, and for a checksum that may follow them.
        let room = if refers {
            0
        } else {
            len.wrapping_add(CHECKSUM_LEN)
        };
        let Some(mut part) = part(whole, headers, room) else {
            return ptr::null_mut();
        };
        let is_there = if refers {
            part.append_view(whole, start, len)
        } else {
            part.put_copy(whole, start, len)
        };
        if !is_there {
            part.purge();
            return ptr::null_mut();
        }
        packets.push(part);
        start = start.wrapping_add(len);
    }
    let first = packets.first;
    core::mem::forget(packets);
    first
}

/// Creates a packet without data. It has the `headers` and all metadata of `whole`, and room for
/// `room` bytes of data. Returns `None` if there is no memory, or if the packet's head exceeds a
/// page.
fn part(whole: &Buffer, headers: Headers, room: usize) -> Option<Skb> {
    let all = headers.all()?;
    let before = whole.headroom().checked_sub(all)?;
    let mut part = Skb::alloc_fragment(before, all.checked_add(room)?)?;
    // SAFETY: Both buffers are valid, and the new one is ours. The headers of both buffers have the
    // same offset from the buffer's head, so the offsets that are copied are right. By the check
    // above, `whole` has at least `all` bytes in front of its data.
    let bytes = unsafe {
        bindings::skb_take_header(part.as_ptr(), whole.as_ptr());
        slice::from_raw_parts((*whole.as_ptr()).data.sub(all), all)
    };
    if !part.put(bytes) {
        return None;
    }
    if headers.outer > 0 {
        part.pull(headers.outer);
    }
    Some(part)
}
