// SPDX-License-Identifier: GPL-2.0

//! Merges received packets (generic receive offload). A driver passes on many packets at a time.
//! Packets that follow each other become one buffer, without a copy, before the protocol sees them.
//! On this path, every packet also gets its connection's hash, by which receive packet steering
//! chooses a processor.
//!
//! C headers: [`include/net/gro.h`](srctree/include/net/gro.h),
//! [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use super::{
    bindings,
    checksum::{self, CHECKSUM_LEN},
    masks,
    offload::Packets,
    pages::MOST_FRAGMENTS,
    percpu::PerCpu,
    random,
    skb::Buffer,
};
use crate::net::errno::prelude::*;
use core::{
    mem, ptr, slice,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, Ordering},
};
use kernel::ffi::c_int;

// The receive path only reads the following statics, so every processor may keep a copy of their
// cache line.

/// Whether the module is being unloaded. Then no further packet is held for merging.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// A counter of the merged buffers that drivers hold for further packets. GRO must flush them
/// through [`complete`] before the module is unloaded.
static HELD: AtomicPtr<PerCpu<1>> = AtomicPtr::new(ptr::null_mut());

/// The seed that makes the hashes of connections unpredictable.
static SEED: AtomicU32 = AtomicU32::new(0);

/// The Ethernet type of the packets, in network order.
static TYPE: AtomicU16 = AtomicU16::new(0);

/// [`Joining::stop`] polls the drivers at most this number of times, once a jiffy, until they hold
/// nothing. The number is limited because the buffers of a removed device are freed without a call
/// of [`complete`], and so stay counted for ever.
const POLLS: u32 = 250;

/// The packets whose payload follows one header: a single packet, or several merged packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Number of packets.
    pub(crate) count: u16,
    /// Payload bytes of each packet.
    pub(crate) size: u16,
}

/// Whether further packets may be merged into the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    May,
    MayNot,
}

/// How the payload of a packet moves to another buffer.
pub(super) enum Move {
    /// All payload is in pages. The first `skip` bytes in the pages are the header.
    Pages { skip: u32 },
    /// The payload begins in the linear part, whose memory is part of a page.
    Head { from: u32 },
}

/// The registration of the one protocol whose packets may be merged.
pub(super) struct Joining(KBox<PerCpu<1>>);

impl Joining {
    /// Prepares merging.
    pub(super) fn start(ethertype: u16) -> Result<Self> {
        let held = KBox::new(PerCpu::new()?, GFP_KERNEL)?;
        let seed = u32::from(random::u16()) << 16 | u32::from(random::u16());
        SEED.store(seed, Ordering::Relaxed);
        TYPE.store(ethertype.to_be(), Ordering::Relaxed);
        HELD.store(ptr::from_ref(&*held).cast_mut(), Ordering::Release);
        STOPPED.store(false, Ordering::Release);
        Ok(Joining(held))
    }

    /// Stops merging, and waits until drivers hold no merged buffer.
    pub(super) fn stop(&self) {
        STOPPED.store(true, Ordering::Release);
        // SAFETY: `stop` is called without locks, in a task.
        unsafe { bindings::synchronize_net() };
        for _ in 0..POLLS {
            // From now on [`count_held`] only subtracts, so a sum of 0 is right even if
            // `count_held` runs while the sum is computed.
            if self.0.sum(0) == 0 {
                break;
            }
            // SAFETY: `stop` is called without locks, in a task, which may sleep.
            unsafe {
                bindings::poll_holders();
                bindings::schedule_timeout_uninterruptible(1);
            }
        }
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        HELD.store(ptr::null_mut(), Ordering::Release);
    }
}

/// Adds `n` to the number of buffers that drivers hold. The number wraps around, so a negated `n`
/// is subtracted.
///
/// # Safety
///
/// Called within [`receive`] or [`complete`].
#[inline]
unsafe fn count_held(n: usize) {
    // SAFETY: The counters are freed only after the registration has ended, and its end waits for
    // running calls of [`receive`] and [`complete`].
    if let Some(held) = unsafe { HELD.load(Ordering::Acquire).as_ref() } {
        held.add(0, n);
    }
}

/// Returns the core's data on a packet while it may be merged (`NAPI_GRO_CB`).
///
/// # Safety
///
/// The buffer is valid.
#[inline]
unsafe fn gro_cb(skb: *mut bindings::sk_buff) -> *mut bindings::napi_gro_cb {
    // SAFETY: By the caller's promise, the buffer is valid. The field `cb` is aligned for
    // `napi_gro_cb`.
    unsafe { ptr::addr_of_mut!((*skb).cb).cast() }
}

/// Marks a packet for immediate delivery without merging.
///
/// # Safety
///
/// The core has passed the packet to GRO.
#[inline]
unsafe fn pass(skb: *mut bindings::sk_buff) {
    // SAFETY: By the caller's promise, the buffer has a `napi_gro_cb`, and no one else writes it
    // during the call.
    unsafe { (*gro_cb(skb)).flush = 1 };
}

/// Receives a packet, and merges it into a held buffer if possible. Returns a buffer of `list` that
/// the core must flush, or null.
///
/// # Safety
///
/// Called by the core in a softirq. `list` links the buffers that the driver holds. `skb` is not on
/// the list, and the core has it exclusively.
pub(super) unsafe extern "C" fn receive<P: Packets>(
    list: *mut bindings::list_head,
    skb: *mut bindings::sk_buff,
) -> *mut bindings::sk_buff {
    // SAFETY: By the caller's promise, `skb` and `list` are valid for all calls here, and the core
    // has the buffers of the list exclusively, too. A header that `skb_gro_header` returns has the
    // requested number of bytes and does not move until something is pulled. The buffers of the
    // list have their headers in the linear part.
    unsafe {
        let at = (*gro_cb(skb)).data_offset as u32;
        let header: *const u8 =
            bindings::skb_gro_header(skb, at.wrapping_add(P::HEADER_LEN as u32), at).cast();
        if header.is_null() {
            pass(skb);
            return ptr::null_mut();
        }
        // `header` points into the readable first bytes of the data, which begin `at` bytes before
        // `header`.
        let front = header.sub(at as usize);
        let sum = checksum_len::<P>(slice::from_raw_parts(header, P::HEADER_LEN));
        let around = P::HEADER_LEN.wrapping_add(sum);
        let behind = (*skb).len.wrapping_sub(at);
        let Some(len) = (behind as usize).checked_sub(around) else {
            pass(skb);
            return ptr::null_mut();
        };
        let seed = SEED.load(Ordering::Relaxed);
        let plain = bindings::gro_hash_plain(skb, header.cast(), P::FLOW_LEN as u32, seed);
        let header = slice::from_raw_parts(header, P::HEADER_LEN);
        let passes = (*gro_cb(skb)).flush != 0 || STOPPED.load(Ordering::Acquire);
        let Found { held, mergeable } = find::<P>(list, skb, front, at, plain);
        if mergeable && !passes {
            if let Some(more) = join::<P>(held, skb, header, at, len) {
                return match more {
                    More::May => ptr::null_mut(),
                    More::MayNot => held,
                };
            }
        }
        if !passes && P::begins(header, len) {
            bindings::gro_pull_network(skb, P::HEADER_LEN as u32);
        } else {
            pass(skb);
        }
        // The held buffer is flushed first, since its packets came earlier.
        held
    }
}

/// The result of a search for the held buffer of a packet's connection.
struct Found {
    /// The held buffer, or null if there is none.
    held: *mut bindings::sk_buff,
    /// Whether the packet may be merged into `held`. If not, `held` is only flushed, so that the
    /// packet does not overtake it.
    mergeable: bool,
}

/// Finds the held buffer of the same connection as `skb`.
///
/// The core sets `same_flow` in the held buffers whose headers and hash match. It does so before it
/// calls [`receive`], and `receive` sets the hash of a packet that came through no tunnel (a
/// `plain` packet). So a held buffer without `same_flow` may still match a `plain` packet. This
/// function itself then compares the headers in front of the packet.
///
/// # Safety
///
/// The requirements of [`receive`] hold. `front` is the start of the data that the core has made
/// readable, and the module's header starts at offset `at` in these data.
unsafe fn find<P: Packets>(
    list: *mut bindings::list_head,
    skb: *mut bindings::sk_buff,
    front: *const u8,
    at: u32,
    plain: bool,
) -> Found {
    // SAFETY: By the caller's promise, the list links buffers by their first field. The linear part
    // of a held buffer begins with the headers that were pulled. `gro_compare` has checked that
    // this buffer is of the same flow as `skb`, and that as many bytes were pulled from it as from
    // a buffer of this module. So the buffer is this module's, and its header is readable.
    unsafe {
        let header = slice::from_raw_parts(front.add(at as usize), P::HEADER_LEN);
        let mut place = (*list).next;
        while place != list {
            let held: *mut bindings::sk_buff = place.cast();
            place = (*place).next;
            let own = P::HEADER_LEN as u32;
            let found = bindings::gro_compare(held, skb, front.cast(), at, own, plain);
            if found == bindings::ENET_GRO_OTHER {
                continue;
            }
            let other = slice::from_raw_parts((*held).data.add(at as usize), P::HEADER_LEN);
            if other.get(..P::FLOW_LEN) == header.get(..P::FLOW_LEN) {
                return Found {
                    held,
                    mergeable: found == bindings::ENET_GRO_MERGEABLE,
                };
            }
        }
    }
    Found {
        held: ptr::null_mut(),
        mergeable: false,
    }
}

/// Returns the length of the checksum that follows a packet with `header`.
#[inline]
fn checksum_len<P: Packets>(header: &[u8]) -> usize {
    if P::has_checksum(header) {
        CHECKSUM_LEN
    } else {
        0
    }
}

/// Merges the packet `skb` into `held` on three conditions: `skb` is the next packet after those in
/// `held`, its memory can move, and all checksums have the same [mask](masks). The mask is stored
/// in place of the checksums, and the connection checks the mask later.
///
/// # Safety
///
/// The requirements of [`receive`] hold. `len` bytes and the packet's checksum, if it has one,
/// follow the packet's header.
unsafe fn join<P: Packets>(
    held: *mut bindings::sk_buff,
    skb: *mut bindings::sk_buff,
    header: &[u8],
    at: u32,
    len: usize,
) -> Option<More> {
    // SAFETY: By the caller's promise, both buffers are valid and the core has them exclusively.
    // `gro_movable` has checked that neither has a clone, so the header may be written and
    // references to pages may move.
    unsafe {
        let info = Buffer::from_raw(held).shared();
        let count = (*gro_cb(held)).count;
        let way = movable(held, skb, at.wrapping_add(P::HEADER_LEN as u32), len as u32)?;
        let first = slice::from_raw_parts_mut((*held).data.add(at as usize), P::HEADER_LEN);
        // If `held` is a single packet, it still has its checksum, which the core has counted as
        // payload.
        let has_checksum = P::has_checksum(header);
        let first_has_checksum = count == 1 && P::has_checksum(first);
        let mask = if has_checksum {
            Some(common_mask(held, skb, at)?)
        } else {
            None
        };
        let size = (*info).gso_size;
        let size = if first_has_checksum {
            size.wrapping_sub(CHECKSUM_LEN as u16)
        } else {
            size
        };
        let more = P::join(first, header, Held { count, size }, len)?;
        (*info).gso_size = size;
        if first_has_checksum {
            cut_sum(held);
        }
        if let Some(mask) = mask {
            // The mask is stored once, since the third and later packets of the run have the same
            // mask.
            if count == 1 {
                masks::set_of_run(held, mask);
            }
            cut_sum(skb);
        }
        let took_head = append(held, skb, way, len as u32);
        bindings::gro_joined(held, skb, took_head);
        if count == 1 {
            count_held(1);
        }
        Some(more)
    }
}

/// Returns the mask that the checksums of `skb` and of all packets in `held` have in common, if
/// there is one.
///
/// # Safety
///
/// The buffers are valid and the core has them exclusively. Each has a header at offset `at`. Each
/// buffer with one packet ends with a checksum.
#[cold]
#[inline(never)]
unsafe fn common_mask(
    held: *mut bindings::sk_buff,
    skb: *mut bindings::sk_buff,
    at: u32,
) -> Option<u32> {
    // SAFETY: By the caller's promise, the buffer is valid and exclusively the core's, and its only
    // packet ends with a checksum.
    let of_packet = |skb: *mut bindings::sk_buff| unsafe {
        let around = at.wrapping_add(CHECKSUM_LEN as u32);
        checksum::mask(skb, at, (*skb).len.checked_sub(around)?)
    };
    let mask = of_packet(skb)?;
    // SAFETY: By the caller's promise, `held` is valid. This module has taken it, so its
    // `napi_gro_cb` is valid, and a buffer of several packets stores their mask.
    let first = unsafe {
        if (*gro_cb(held)).count == 1 {
            of_packet(held)?
        } else {
            masks::of_run(held)
        }
    };
    (first == mask).then_some(mask)
}

/// Removes the checksum from the end of a buffer. The [`Move`] that [`way`] found stays possible,
/// since at least one byte of payload precedes the checksum.
///
/// # Safety
///
/// The buffer is valid, the core has it exclusively and it is not shared; a whole checksum follows
/// its header.
#[cold]
#[inline(never)]
unsafe fn cut_sum(skb: *mut bindings::sk_buff) {
    let mut left = CHECKSUM_LEN as u32;
    // SAFETY: By the caller's promise, the buffer is exclusively ours. Fragments below `nr_frags`
    // are initialised. A fragment that has lost all its bytes drops its reference and is no longer
    // counted. The rest of the checksum is in the linear part.
    unsafe {
        let info = Buffer::from_raw(skb).shared();
        (*skb).len = (*skb).len.wrapping_sub(left);
        while left > 0 && (*info).nr_frags > 0 {
            let index = (*info).nr_frags.wrapping_sub(1);
            let frags = ptr::addr_of_mut!((*info).frags).cast::<bindings::skb_frag_t>();
            let frag = frags.add(index.into());
            let part = left.min((*frag).len);
            (*frag).len = (*frag).len.wrapping_sub(part);
            (*skb).data_len = (*skb).data_len.wrapping_sub(part);
            left = left.wrapping_sub(part);
            if (*frag).len == 0 {
                bindings::skb_frag_unref(skb, index.into());
                (*info).nr_frags = index;
            }
        }
        (*skb).tail = (*skb).tail.wrapping_sub(left);
    }
}

/// Returns how the `len` bytes of payload of `skb`, from offset `from`, can move to `held`. Returns
/// `None` if they cannot, or if a clone shares one of the two buffers.
///
/// # Safety
///
/// Both buffers are valid, and no one else changes the two `sk_buff`s.
pub(super) unsafe fn movable(
    held: *mut bindings::sk_buff,
    skb: *mut bindings::sk_buff,
    from: u32,
    len: u32,
) -> Option<Move> {
    // SAFETY: By the caller's promise, both buffers are valid, and no one else changes the
    // two `sk_buff`s.
    unsafe {
        let most = (*held).len.saturating_add(len);
        bindings::gro_movable(held, skb, most)
            .then(|| way(held, skb, from))
            .flatten()
    }
}

/// Moves the last `len` bytes of `skb` to the end of the data of `held`. After that, `skb` can only
/// be freed. Returns whether `skb` has lost its linear part, too.
///
/// # Safety
///
/// [`movable`] returned `way` for these buffers, they are not shared, and neither has become longer
/// since.
pub(super) unsafe fn append(
    held: *mut bindings::sk_buff,
    skb: *mut bindings::sk_buff,
    way: Move,
    len: u32,
) -> bool {
    // SAFETY: By the caller's promise, `movable` has returned `way` for these buffers, which are
    // not shared.
    unsafe {
        let whole = (*held).len.wrapping_add(len);
        let (moved, took_head) = match way {
            Move::Pages { skip } => (move_pages(held, skb, skip), false),
            Move::Head { from } => (move_head(held, skb, from), true),
        };
        (*held).len = whole;
        (*held).data_len = (*held).data_len.wrapping_add(len);
        (*held).truesize = (*held).truesize.wrapping_add(moved);
        took_head
    }
}

/// Returns how the payload of `skb`, from offset `from`, can move to `held`. Returns `None` if it
/// cannot.
///
/// # Safety
///
/// The requirements of [`movable`] hold.
unsafe fn way(
    held: *mut bindings::sk_buff,
    skb: *mut bindings::sk_buff,
    from: u32,
) -> Option<Move> {
    // SAFETY: By the caller's promise, both buffers are valid, and no one else changes the
    // two `sk_buff`s.
    let (held, skb, more, linear) = unsafe {
        let linear = (*skb).len.wrapping_sub((*skb).data_len);
        (
            Buffer::from_raw(held),
            Buffer::from_raw(skb),
            bindings::skb_has_head_frag(skb),
            linear,
        )
    };
    let fragments = held.fragments().saturating_add(skb.fragments());
    if linear <= from {
        let skip = from.wrapping_sub(linear);
        return (fragments <= MOST_FRAGMENTS && skb.first_fragment_len() > skip)
            .then_some(Move::Pages { skip });
    }
    (more && fragments < MOST_FRAGMENTS).then_some(Move::Head { from })
}

/// Moves the page references of `skb`, without the first `skip` bytes, behind the page references
/// of `held`. Returns how many bytes of memory (`truesize`) moved.
///
/// # Safety
///
/// [`way`] has just returned [`Move::Pages`] with `skip` for these buffers, and they are not
/// shared.
unsafe fn move_pages(held: *mut bindings::sk_buff, skb: *mut bindings::sk_buff, skip: u32) -> u32 {
    // SAFETY: By the caller's promise, the array of `held` has room. The references change their
    // owner, since `nr_frags` of `skb` becomes 0.
    unsafe {
        let to = append_fragments(held, skb, 0);
        (*to).offset = (*to).offset.wrapping_add(skip);
        (*to).len = (*to).len.wrapping_sub(skip);
        (*Buffer::from_raw(skb).shared()).nr_frags = 0;
        let left = bindings::skb_own_truesize(skb);
        let moved = (*skb).truesize.saturating_sub(left);
        (*skb).truesize = left;
        (*skb).len = (*skb).len.wrapping_sub((*skb).data_len);
        (*skb).data_len = 0;
        moved
    }
}

/// Moves the linear part of `skb` from offset `from` on, and its page references, behind the page
/// references of `held`. Returns how many bytes of memory (`truesize`) moved. The rest is only the
/// `sk_buff`, which the core frees. If the buffers have an owner, the result includes the
/// `sk_buff`: `napi_skb_free_stolen_head` frees it without uncharging the owner, so `held` must
/// account for it.
///
/// # Safety
///
/// [`way`] has just returned [`Move::Head`] with `from` for these buffers, and they are not shared.
unsafe fn move_head(held: *mut bindings::sk_buff, skb: *mut bindings::sk_buff, from: u32) -> u32 {
    // SAFETY: By the caller's promise, the array of `held` has room, and the linear part is part of
    // a page. The reference to this page and those to the other pages change their owner.
    unsafe {
        let to = append_fragments(held, skb, 1);
        bindings::frag_of_head(to, skb, from);
        let left = if bindings::skb_disown(skb) {
            0
        } else {
            mem::size_of::<bindings::sk_buff>() as u32
        };
        let moved = (*skb).truesize.saturating_sub(left);
        (*skb).truesize = left;
        moved
    }
}

/// Copies the page references of `skb` behind the page references of `held`. Leaves `gap` entries
/// between the old and the copied references for the caller to fill in. Returns the first new entry
/// of `held`.
///
/// # Safety
///
/// The array of `held` has room for all new entries.
unsafe fn append_fragments(
    held: *mut bindings::sk_buff,
    skb: *mut bindings::sk_buff,
    gap: usize,
) -> *mut bindings::skb_frag_t {
    // SAFETY: By the caller's promise, the array of `held` has room. The two arrays do not overlap,
    // since they belong to different buffers.
    unsafe {
        let (info, other) = (
            Buffer::from_raw(held).shared(),
            Buffer::from_raw(skb).shared(),
        );
        let frags = ptr::addr_of_mut!((*info).frags).cast::<bindings::skb_frag_t>();
        let others = ptr::addr_of!((*other).frags).cast::<bindings::skb_frag_t>();
        let to = frags.add((*info).nr_frags.into());
        ptr::copy_nonoverlapping(others, to.add(gap), (*other).nr_frags.into());
        (*info).nr_frags = (*info)
            .nr_frags
            .wrapping_add((*other).nr_frags)
            .wrapping_add(gap as u8);
        (*info).flags |= (*other).flags & bindings::SKBFL_SHARED_FRAG as u8;
        to
    }
}

/// Handles a merged buffer that a driver flushes.
///
/// # Safety
///
/// Called by the core, which has the buffer exclusively. The buffer's header starts `at` bytes into
/// the data.
pub(super) unsafe extern "C" fn complete<P: Packets>(
    skb: *mut bindings::sk_buff,
    at: c_int,
) -> c_int {
    // SAFETY: By the caller's promise, the core has the buffer exclusively, and the header starts
    // `at` bytes into the data. `complete` may call `count_held`.
    unsafe {
        count_held(1_usize.wrapping_neg());
        let protocol = TYPE.load(Ordering::Relaxed);
        bindings::gro_set_packets(skb, at as u32, P::HEADER_LEN as u32, protocol);
    }
    0
}
