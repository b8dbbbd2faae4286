// SPDX-License-Identifier: GPL-2.0

//! Several packets in one buffer. [`gro`] merges received packets into such buffers. A protocol
//! sends a run of equal packets as one buffer with one header (generic segmentation offload). A
//! virtual device passes on the whole buffer. For a real device, the core calls
//! [`Registration::segment`] right before it passes the packets to the driver.
//!
//! The buffers have SCTP's segmentation type, which virtual devices accept and network cards do
//! not.
//!
//! C headers: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h),
//! [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use super::{
    bindings, checksum, gro,
    gro::{Held, Joining, More},
    gso,
    gso::Headers,
    listed::Listed,
    masks,
    skb::Buffer,
};
use crate::net::errno::prelude::*;
use core::{marker::PhantomData, slice};

/// The segmentation type that marks this module's packets.
const OURS: u32 = bindings::SKB_GSO_SCTP as u32;

/// The segmentation types of outer layers. A layer sets its type when it puts headers around a
/// buffer on transmit, and segments these headers itself. On receipt, the layer removes its type
/// together with its header.
const AROUND: u32 = (bindings::SKB_GSO_GRE
    | bindings::SKB_GSO_GRE_CSUM
    | bindings::SKB_GSO_IPXIP4
    | bindings::SKB_GSO_IPXIP6
    | bindings::SKB_GSO_UDP_TUNNEL
    | bindings::SKB_GSO_UDP_TUNNEL_CSUM
    | bindings::SKB_GSO_ESP) as u32;

/// The contents of a received buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// A single packet.
    Packet,
    /// Several packets behind one header. Each has this many bytes of payload, except the last,
    /// which may have fewer.
    Packets(u16),
    /// Packets of a different protocol, or packets that were merged elsewhere than in this kernel.
    Foreign,
}

impl Buffer {
    /// Returns the contents of the buffer. Only packets that this kernel's own protocols have
    /// merged count as [`Contents::Packets`]. Buffers from a virtual machine or a tun device are
    /// marked as untrusted and do not count.
    #[inline]
    pub(crate) fn contents(&self) -> Contents {
        self.contents_within(0)
    }

    /// Works like [`contents`](Self::contents), but ignores the segmentation types in `around`,
    /// whose layers may have put headers around the buffer.
    #[inline]
    fn contents_within(&self, around: u32) -> Contents {
        /// The `gso_size` of a buffer whose packets are separate buffers in a list, each with its
        /// own size.
        const BY_FRAGS: u16 = bindings::GSO_BY_FRAGS as u16;
        // SAFETY: By the invariant of `Buffer`, the buffer is valid and borrowed.
        let (size, kind) = unsafe {
            let shared = self.shared();
            ((*shared).gso_size, (*shared).gso_type & !around)
        };
        match size {
            0 => Contents::Packet,
            size if kind == OURS && size != BY_FRAGS => Contents::Packets(size),
            _ => Contents::Foreign,
        }
    }

    /// Declares that the data are `count` packets, of `size` bytes each except the last. The
    /// declaration applies to later clones, too. The header of the packets may be added in front
    /// later. Returns `false` if there already is a clone.
    #[inline]
    pub(crate) fn set_packets(&mut self, size: u16, count: u16) -> bool {
        if self.is_cloned() {
            return false;
        }
        // SAFETY: The buffer is borrowed exclusively, and no clone shares its data.
        unsafe { bindings::skb_set_packets(self.as_ptr(), 0, size, count) };
        true
    }
}

/// One of the packets that a buffer is segmented into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Number of packets before this one.
    pub(crate) index: u16,
    /// Number of payload bytes.
    pub(crate) len: u16,
    /// Whether this is the last packet.
    pub(crate) last: bool,
}

/// A protocol whose packets may share a buffer.
pub(crate) trait Packets: 'static {
    /// Length of the header, in bytes.
    const HEADER_LEN: usize;
    /// Number of bytes at the start of the header that distinguish connections between the same
    /// hosts; at most [`Self::HEADER_LEN`].
    const FLOW_LEN: usize;

    /// Returns whether a [checksum] follows a packet with `header` that is alone in its buffer.
    /// Packets are merged if their checksums have the same [mask](masks). Merged packets have no
    /// checksums, and get checksums with that mask again when they are segmented.
    fn has_checksum(header: &[u8]) -> bool;

    /// Turns `header`, the header of the whole buffer, into the header of `part`. Each header
    /// passed to the functions of this trait has [`Self::HEADER_LEN`] bytes.
    fn cut(header: &mut [u8], part: Part);

    /// Returns whether GRO holds back a packet with `header` and `len` bytes of payload or padding,
    /// so that later packets may be merged into it.
    fn begins(header: &[u8], len: usize) -> bool;

    /// Extends `whole`, the common header of the packets that `held` counts, so that it also covers
    /// one more packet. That packet has `header` and `len` bytes of payload or padding. Returns
    /// `None`, and leaves `whole` unchanged, if that packet does not follow the others. Segmenting
    /// the merged buffer must give the same packets again.
    fn join(whole: &mut [u8], header: &[u8], held: Held, len: usize) -> Option<More>;
}

/// The registration of a protocol whose buffers the core can segment and merge. Dropping it
/// unregisters the protocol.
pub(crate) struct Registration<P: Packets> {
    block: Listed<bindings::packet_offload>,
    joining: Joining,
    _protocol: PhantomData<fn() -> P>,
}

impl<P: Packets> Registration<P> {
    /// Registers segmentation and merging of buffers of `ethertype`, which is in host order.
    pub(crate) fn new(ethertype: u16, _module: &'static ThisModule) -> Result<Self> {
        // SAFETY: All-zero bytes are a valid value: an offload without functions, on no list.
        let mut block: bindings::packet_offload = unsafe { core::mem::zeroed() };
        block.type_ = ethertype.to_be();
        block.callbacks.gso_segment = Some(Self::segment);
        block.callbacks.gro_receive = Some(gro::receive::<P>);
        block.callbacks.gro_complete = Some(gro::complete::<P>);
        let block = Listed::new(block)?;
        let joining = Joining::start(ethertype)?;
        // SAFETY: The block does not move until `drop` has removed it from the core's list.
        unsafe { bindings::dev_add_offload(block.as_ptr()) };
        Ok(Registration {
            block,
            joining,
            _protocol: PhantomData,
        })
    }

    /// Segments a buffer. Returns the packets, or an error as a pointer.
    ///
    /// # Safety
    ///
    /// Called by the core with a buffer that it has exclusively. The buffer's data start after the
    /// Ethernet header, or after the header that an outer layer has put in its place. `SKB_GSO_CB`
    /// states where the outermost header starts.
    unsafe extern "C" fn segment(
        skb: *mut bindings::sk_buff,
        features: bindings::netdev_features_t,
    ) -> *mut bindings::sk_buff {
        // SAFETY: By the caller's promise, the buffer is valid, and the core has it exclusively.
        let whole = unsafe { Buffer::from_raw_mut(skb) };
        let Contents::Packets(size) = whole.contents_within(AROUND) else {
            return EINVAL.to_ptr();
        };
        // SAFETY: The buffer is the core's alone, so its head may be reallocated.
        if !unsafe { bindings::pskb_may_pull(skb, P::HEADER_LEN as u32) } {
            return EINVAL.to_ptr();
        }
        // SAFETY: By the caller's promise, the Ethernet header lies in front of the data, and the
        // buffer's fields describe the outer headers. `features` belong to the device that the
        // buffer is segmented for.
        let (in_front, outer, summed_around) = unsafe {
            (
                bindings::skb_mac_distance(skb) as usize,
                bindings::skb_outer_len(skb) as usize,
                bindings::skb_is_summed_around(skb, features),
            )
        };
        whole.pull(P::HEADER_LEN);
        let headers = in_front.wrapping_add(P::HEADER_LEN);
        // SAFETY: The buffer is the core's alone.
        let mask = unsafe { masks::of_run(skb) };
        let of_all = Headers {
            own: headers,
            outer,
        };
        let mut packets = gso::cut(whole, of_all, size, features);
        if packets.is_null() {
            // SAFETY: All headers in front of the data are copied in front of each packet.
            packets = unsafe { bindings::skb_cut(skb, features) };
        }
        // SAFETY: The function only tests the pointer's value.
        if packets.is_null() || unsafe { bindings::is_err(packets.cast()) } {
            return packets;
        }
        // SAFETY: The packets are a list of new buffers, which are ours until we return them. Each
        // has its own copy of the headers in its linear part, where `skb_segment` or `gso::cut` has
        // put them.
        unsafe {
            if !Self::complete(packets, skb, in_front, mask, summed_around) {
                bindings::kfree_skb_list(packets);
                return ENOMEM.to_ptr();
            }
        }
        packets
    }

    /// Gives each packet in a list its own header, and a checksum with `mask` if the header states
    /// that a checksum follows. If `summed_around`, an outer layer gets the sum of each packet.
    /// Returns `false` if there is no memory.
    ///
    /// # Safety
    ///
    /// The list has been cut out of `whole`, and is exclusively the caller's. The linear part of
    /// each packet begins with `in_front` bytes of outer headers and the whole buffer's header.
    unsafe fn complete(
        packets: *mut bindings::sk_buff,
        whole: *const bindings::sk_buff,
        in_front: usize,
        mask: u32,
        summed_around: bool,
    ) -> bool {
        let headers = in_front.wrapping_add(P::HEADER_LEN);
        let mut packet = packets;
        let mut index = 0_u16;
        while !packet.is_null() {
            // SAFETY: By the caller's promise, the packets are valid and exclusively ours, and the
            // header is in the linear part.
            unsafe {
                let next = (*packet).__bindgen_anon_1.__bindgen_anon_1.next;
                let part = Part {
                    index,
                    len: ((*packet).len as usize).wrapping_sub(headers) as u16,
                    last: next.is_null(),
                };
                bindings::skb_set_unsummed(packet);
                let header = (*packet).data.add(in_front);
                let header = slice::from_raw_parts_mut(header, P::HEADER_LEN);
                P::cut(header, part);
                let has_checksum = P::has_checksum(header);
                // An outer checksum adds up 16-bit words, so the sum over this packet must start at
                // an even offset. The outer headers have an even length, but this module's header
                // may have an odd one. So the sum starts in front of this module's header.
                let from = in_front as u32;
                if has_checksum && !checksum::append(packet, from, mask)
                    || summed_around && !bindings::skb_sum_for_outer(packet, from)
                {
                    return false;
                }
                if part.last {
                    // A timestamp request concerns the last byte, so it goes to the last packet,
                    // which also has the buffer's owner.
                    bindings::skb_copy_stamp(packet, whole);
                }
                packet = next;
            }
            index = index.wrapping_add(1);
        }
        true
    }
}

impl<P: Packets> Drop for Registration<P> {
    fn drop(&mut self) {
        self.joining.stop();
        // SAFETY: `new` has added the block. The function waits until no CPU uses it any more.
        unsafe { bindings::dev_remove_offload(self.block.as_ptr()) };
    }
}
