// SPDX-License-Identifier: GPL-2.0

//! Several packets in one buffer. [`joining`] makes such of received packets. A protocol sends a
//! run of equal packets as one buffer with one header (generic segmentation offload): a virtual
//! device passes it on whole, for a real one the core has it cut right before the driver.
//!
//! The buffers bear SCTP's type of segmentation, which virtual devices take and no card does.
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

/// The segmentation that marks our packets.
const OURS: u32 = bindings::SKB_GSO_SCTP as u32;

/// The marks of layers that put headers around a buffer on its way out. Each cuts them off, and
/// adds them again, itself. On receipt such a layer takes its mark away with its header.
const AROUND: u32 = (bindings::SKB_GSO_GRE
    | bindings::SKB_GSO_GRE_CSUM
    | bindings::SKB_GSO_IPXIP4
    | bindings::SKB_GSO_IPXIP6
    | bindings::SKB_GSO_UDP_TUNNEL
    | bindings::SKB_GSO_UDP_TUNNEL_CSUM
    | bindings::SKB_GSO_ESP) as u32;

/// What is in a received buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// One packet.
    Packet,
    /// Packets with so many bytes of payload each, but for the last, behind one header.
    Packets(u16),
    /// Packets of another kind, or put together by nobody in this kernel.
    Foreign,
}

impl Buffer {
    /// What is in the buffer. Only this kernel's own protocols make the kind that counts as ours:
    /// what a virtual machine or a tun device hands over is marked as untrusted.
    #[inline]
    pub(crate) fn contents(&self) -> Contents {
        self.contents_within(0)
    }

    /// As [`contents`](Self::contents), of a buffer that layers with these marks may have put
    /// headers around.
    #[inline]
    fn contents_within(&self, around: u32) -> Contents {
        /// Marks packets that are the buffers of a list, each of its own size.
        const BY_FRAGS: u16 = bindings::GSO_BY_FRAGS as u16;
        // SAFETY: The buffer is valid and borrowed.
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

    /// Says that the data are `count` packets, of `size` bytes each but for the last; also to
    /// clones that are made afterwards. Their header may be put in front later. `false` if there is
    /// a clone already.
    #[inline]
    pub(crate) fn set_packets(&mut self, size: u16, count: u16) -> bool {
        if self.is_cloned() {
            return false;
        }
        // SAFETY: The buffer is borrowed exclusively, and nobody shares what belongs to it.
        unsafe { bindings::skb_set_packets(self.as_ptr(), 0, size, count) };
        true
    }
}

/// One of the packets that a buffer is cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// How many come before it.
    pub(crate) index: u16,
    /// Bytes of payload.
    pub(crate) len: u16,
    /// Whether none comes behind it.
    pub(crate) last: bool,
}

/// A protocol whose packets may share a buffer.
pub(crate) trait Packets: 'static {
    /// Bytes of the header.
    const HEADER_LEN: usize;
    /// Bytes at its start that tell one connection from another of the same hosts, at most
    /// [`Self::HEADER_LEN`].
    const FLOW_LEN: usize;

    /// Whether a [sum](checksum) follows each packet with `header` when it is alone in its buffer:
    /// the core joins packets whose sums have the same [mask](masks), and makes sums with it when
    /// it has cut them. Several packets have none.
    fn has_checksum(header: &[u8]) -> bool;

    /// Makes `header`, the one of the whole buffer, that of `part`. It has [`Self::HEADER_LEN`]
    /// bytes, as all headers here.
    fn cut(header: &mut [u8], part: Part);

    /// Whether a packet with `header` and `len` bytes of payload or padding is held for others to
    /// join it.
    fn begins(header: &[u8], len: usize) -> bool;

    /// Makes `whole`, the header of `held` packets, that of one more, which has `header` and `len`
    /// bytes of payload or padding. `None` if it does not come behind them; then `whole` does not
    /// change. What is joined must be cut into the same packets again.
    fn join(whole: &mut [u8], header: &[u8], held: Held, len: usize) -> Option<More>;
}

/// The registration of a protocol whose buffers the core can have cut and joined, ended when
/// dropped.
pub(crate) struct Registration<P: Packets> {
    block: Listed<bindings::packet_offload>,
    joining: Joining,
    _protocol: PhantomData<fn() -> P>,
}

impl<P: Packets> Registration<P> {
    /// Starts cutting buffers of `ethertype`, host order.
    pub(crate) fn new(ethertype: u16, _module: &'static ThisModule) -> Result<Self> {
        // SAFETY: All zeroes is an offload on no list, without functions.
        let mut block: bindings::packet_offload = unsafe { core::mem::zeroed() };
        block.type_ = ethertype.to_be();
        block.callbacks.gso_segment = Some(Self::segment);
        block.callbacks.gro_receive = Some(gro::receive::<P>);
        block.callbacks.gro_complete = Some(gro::complete::<P>);
        let block = Listed::new(block)?;
        let joining = Joining::start(ethertype)?;
        // SAFETY: The block stays where it is until `drop` has taken it off.
        unsafe { bindings::dev_add_offload(block.as_ptr()) };
        Ok(Registration {
            block,
            joining,
            _protocol: PhantomData,
        })
    }

    /// Cuts a buffer. Returns the packets, or an error as a pointer.
    ///
    /// # Safety
    ///
    /// Called by the core with a buffer that is its alone, and whose data start behind the Ethernet
    /// header, or what a layer in between has put there instead; `SKB_GSO_CB` says where the
    /// outermost header starts.
    unsafe extern "C" fn segment(
        skb: *mut bindings::sk_buff,
        features: bindings::netdev_features_t,
    ) -> *mut bindings::sk_buff {
        // SAFETY: The caller's promise.
        let whole = unsafe { Buffer::from_raw_mut(skb) };
        let Contents::Packets(size) = whole.contents_within(AROUND) else {
            return EINVAL.to_ptr();
        };
        // SAFETY: The buffer is the core's alone, so its head may be reallocated.
        if !unsafe { bindings::pskb_may_pull(skb, P::HEADER_LEN as u32) } {
            return EINVAL.to_ptr();
        }
        // SAFETY: The Ethernet header lies in front of the data, and what the core knows of outer
        // ones is in the buffer. The features are those of the device that it is cut for.
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
        // SAFETY: Only looks at the pointer's value.
        if packets.is_null() || unsafe { bindings::is_err(packets.cast()) } {
            return packets;
        }
        let mut packet = packets;
        let mut index = 0_u16;
        while !packet.is_null() {
            // SAFETY: The packets are a list of new buffers, which are ours until we return them.
            // Each has the headers, which are its own, in its linear part, as `skb_segment` has put
            // them there.
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
                // An outer sum adds words up, which all headers in front of ours consist of, but
                // not ours.
                let from = in_front as u32;
                if has_checksum && !checksum::append(packet, from, mask)
                    || summed_around && !bindings::skb_sum_for_outer(packet, from)
                {
                    bindings::kfree_skb_list(packets);
                    return ENOMEM.to_ptr();
                }
                if part.last {
                    // A stamp is of the last byte, and the last packet is the one that bears the
                    // buffer's owner.
                    bindings::skb_pass_stamp(packet, skb);
                }
                packet = next;
            }
            index = index.wrapping_add(1);
        }
        packets
    }
}

impl<P: Packets> Drop for Registration<P> {
    fn drop(&mut self) {
        self.joining.stop();
        // SAFETY: Added by `new`; waits until no CPU uses the block any more.
        unsafe { bindings::dev_remove_offload(self.block.as_ptr()) };
    }
}
