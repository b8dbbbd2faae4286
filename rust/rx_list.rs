// SPDX-License-Identifier: GPL-2.0

//! Merges received packets if the core passes them on as one list. The core does so for a driver
//! with NAPI if GRO is off (`ethtool -K DEVICE gro off`). Packets that are neighbours in the list
//! and follow each other in one connection become one buffer, as in [`gro`]. So the connection
//! processes these packets together.
//!
//! C headers: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h) (`list_func`),
//! [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use super::{
    bindings,
    gro::{self, Held, More},
    offload::{Contents, Packets},
    skb::{Buffer, Skb},
};
use core::slice;

/// Length of the longest header of a protocol of this module, in bytes.
const LONGEST: usize = 16;

/// A buffer that packets may be merged into, and the number and size of its packets.
struct Run {
    skb: Skb,
    held: Held,
}

impl Run {
    /// Starts a run with `skb`, or returns `skb` if no packet can be merged into it.
    fn begin<P: Packets>(mut skb: Skb) -> Result<Self, Skb> {
        let mut bytes = [0; LONGEST];
        let Some((header, len)) = packet::<P>(&skb, &mut bytes) else {
            return Err(skb);
        };
        let Ok(size) = u16::try_from(len) else {
            return Err(skb);
        };
        let is_linear = |skb: &mut Skb| {
            // SAFETY: The buffer is ours, so its head may be reallocated.
            unsafe { bindings::pskb_may_pull(skb.as_ptr(), P::HEADER_LEN as u32) }
        };
        if !P::begins(header, len) || !is_linear(&mut skb) {
            return Err(skb);
        }
        let held = Held { count: 1, size };
        Ok(Run { skb, held })
    }

    /// Merges `skb` into the run, or returns `skb` if it does not follow the run's packets.
    fn join<P: Packets>(&mut self, skb: Skb) -> Result<More, Skb> {
        let mut bytes = [0; LONGEST];
        let Some((header, len)) = packet::<P>(&skb, &mut bytes) else {
            return Err(skb);
        };
        let (first, other) = (self.skb.as_ptr(), skb.as_ptr());
        let from = P::HEADER_LEN as u32;
        // SAFETY: Both buffers are exclusively ours, and `len` bytes follow the header of `other`.
        let way = unsafe {
            let same_flow =
                bindings::list_same_sender(first, other) && bindings::list_same_way(first, other);
            same_flow.then(|| gro::movable(first, other, from, len as u32))
        };
        let Some(way) = way.flatten() else {
            return Err(skb);
        };
        // SAFETY: `begin` has made the header linear, and `gro::movable` above has found that no
        // clone shares it.
        let whole = unsafe { slice::from_raw_parts_mut((*first).data, P::HEADER_LEN) };
        let Some(more) = P::join(whole, header, self.held, len) else {
            return Err(skb);
        };
        self.held.count = self.held.count.wrapping_add(1);
        // SAFETY: `movable` returned `way`, and `join` has since changed only bytes of the header,
        // which no one shares. `kfree_skb_partial` takes over the reference to `other`, whose
        // payload has moved.
        unsafe {
            let took_head = gro::append(first, other, way, len as u32);
            bindings::kfree_skb_partial(skb.into_raw(), took_head);
        }
        Ok(more)
    }

    /// Returns the buffer, after setting the number of its packets.
    fn end<P: Packets>(self) -> Skb {
        let Held { count, size } = self.held;
        if count > 1 {
            let header = P::HEADER_LEN as u32;
            // SAFETY: The buffer is ours, and `join` has merged a packet into it, so it has no
            // clone.
            unsafe { bindings::skb_set_packets(self.skb.as_ptr(), header, size, count) };
        }
        self.skb
    }
}

/// Returns the header of `skb` and the number of bytes after it, if `skb` is a single packet
/// without a checksum.
#[inline]
fn packet<'a, P: Packets>(skb: &Buffer, to: &'a mut [u8; LONGEST]) -> Option<(&'a [u8], usize)> {
    let header = to.get_mut(..P::HEADER_LEN)?;
    let len = skb.len().checked_sub(P::HEADER_LEN)?;
    let single = skb.contents() == Contents::Packet && skb.copy_bits(0, header);
    (single && !P::has_checksum(header)).then_some((header, len))
}

/// Calls `take` with all buffers that `next` returns, in order, and merged where possible.
pub(super) fn join<P: Packets>(mut next: impl FnMut() -> Option<Skb>, mut take: impl FnMut(Skb)) {
    let mut run: Option<Run> = None;
    while let Some(mut skb) = next() {
        if let Some(mut held) = run.take() {
            match held.join::<P>(skb) {
                Ok(More::May) => {
                    run = Some(held);
                    continue;
                }
                Ok(More::MayNot) => {
                    take(held.end::<P>());
                    continue;
                }
                Err(other) => {
                    take(held.end::<P>());
                    skb = other;
                }
            }
        }
        match Run::begin::<P>(skb) {
            Ok(begun) => run = Some(begun),
            Err(single) => take(single),
        }
    }
    if let Some(held) = run {
        take(held.end::<P>());
    }
}
