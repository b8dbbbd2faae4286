// SPDX-License-Identifier: GPL-2.0

//! Joining received packets (generic receive offload): a driver hands over many packets at a time,
//! and those that follow each other become one buffer before anybody looks at them, without a copy.
//! Here every packet also gets its connection's hash, by which receive packet steering chooses a
//! processor.
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

// What follows is only read while packets come: every processor has a copy of the cache line.

/// The module is going: nothing is held any more.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Buffers with several packets that drivers hold for more. GRO must flush them through
/// [`complete`] before the module goes.
static HELD: AtomicPtr<PerCpu<1>> = AtomicPtr::new(ptr::null_mut());

/// Makes connections' hashes unforeseeable.
static SEED: AtomicU32 = AtomicU32::new(0);

/// The Ethernet type of the packets, network order.
static TYPE: AtomicU16 = AtomicU16::new(0);

/// How often the drivers are polled, once a jiffy, until they hold nothing. Buffers of a device
/// that was removed meanwhile are freed without [`complete`], and counted for ever.
const POLLS: u32 = 250;

/// What is behind the header of a packet, or of several that were joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// How many packets.
    pub(crate) count: u16,
    /// Payload bytes of each.
    pub(crate) size: u16,
}

/// Whether more packets may join those that were joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    May,
    MayNot,
}

/// How the payload of a packet moves to another buffer.
pub(super) enum Move {
    /// All of it is in pages, of which `skip` bytes are the header's.
    Pages { skip: u32 },
    /// It begins in the linear part, which is a page's.
    Head { from: u32 },
}

/// Joining, of the one protocol that may have its packets joined.
pub(super) struct Joining(KBox<PerCpu<1>>);

impl Joining {
    /// Prepares joining.
    pub(super) fn start(ethertype: u16) -> Result<Self> {
        let held = KBox::new(PerCpu::new()?, GFP_KERNEL)?;
        let seed = u32::from(random::u16()) << 16 | u32::from(random::u16());
        SEED.store(seed, Ordering::Relaxed);
        TYPE.store(ethertype.to_be(), Ordering::Relaxed);
        HELD.store(ptr::from_ref(&*held).cast_mut(), Ordering::Release);
        STOPPED.store(false, Ordering::Release);
        Ok(Joining(held))
    }

    /// Ends joining, and waits until drivers have let go of what they hold.
    pub(super) fn stop(&self) {
        STOPPED.store(true, Ordering::Release);
        // SAFETY: Called without locks, in a task.
        unsafe { bindings::synchronize_net() };
        for _ in 0..POLLS {
            // From now on the numbers only fall, so that a sum of 0 is right however long adding
            // takes.
            if self.0.sum(0) == 0 {
                break;
            }
            // SAFETY: As above.
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

/// Adds `n` to the number of buffers that drivers hold; -1 as it wraps.
///
/// # Safety
///
/// Called within [`receive`] or [`complete`].
#[inline]
unsafe fn count_held(n: usize) {
    // SAFETY: What the pointer refers to is freed after the registration has ended, which waits for
    // these functions.
    if let Some(held) = unsafe { HELD.load(Ordering::Acquire).as_ref() } {
        held.add(0, n);
    }
}

/// The core's notes on a packet while it may be joined (`NAPI_GRO_CB`).
///
/// # Safety
///
/// The buffer is valid.
#[inline]
unsafe fn notes(skb: *mut bindings::sk_buff) -> *mut bindings::napi_gro_cb {
    // SAFETY: The caller's promise: the place of a field, which is aligned for such notes.
    unsafe { ptr::addr_of_mut!((*skb).cb).cast() }
}

/// Has a packet go on alone, and at once.
///
/// # Safety
///
/// The core hands the packet over for joining.
#[inline]
unsafe fn pass(skb: *mut bindings::sk_buff) {
    // SAFETY: The caller's promise: the buffer has the core's notes, and nobody else writes them
    // during the call.
    unsafe { (*notes(skb)).flush = 1 };
}

/// Takes a packet in. Returns a buffer of the list that is to be let go, or null.
///
/// # Safety
///
/// Called by the core in a softirq, with the list of the buffers that the driver holds, and one
/// more that is the core's alone.
pub(super) unsafe extern "C" fn receive<P: Packets>(
    list: *mut bindings::list_head,
    skb: *mut bindings::sk_buff,
) -> *mut bindings::sk_buff {
    // SAFETY: The caller's promise, for all calls here; the buffers of the list are the core's
    // alone, too. A header that the core returns has as many bytes as were asked for, and stays
    // where it is as long as nothing is pulled. Buffers in the list have theirs in the linear part.
    unsafe {
        let at = (*notes(skb)).data_offset as u32;
        let header: *const u8 =
            bindings::skb_gro_header(skb, at.wrapping_add(P::HEADER_LEN as u32), at).cast();
        if header.is_null() {
            pass(skb);
            return ptr::null_mut();
        }
        // The core has given a place within the first bytes of the data.
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
        let passes = (*notes(skb)).flush != 0 || STOPPED.load(Ordering::Acquire);
        let Found { held, alike } = find::<P>(list, skb, front, at, plain);
        if alike && !passes {
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
        // Those that came before go first.
        held
    }
}

/// The held buffer of a packet's connection.
struct Found {
    /// The buffer, or null.
    held: *mut bindings::sk_buff,
    /// Whether the packet may join it. Otherwise the buffer is only let go, so that nothing
    /// overtakes it.
    alike: bool,
}

/// The held buffer of the connection that `skb` belongs to.
///
/// What each layer in front has found of a held one is right if no bit of it is lost: the core
/// begins with the hash, which is ours since the held one came, unless it was in a tunnel. So what
/// is in front of a `plain` packet is compared here.
///
/// # Safety
///
/// As [`receive`]; `front` is where the data start that the core has made readable, and headers
/// start `at` bytes into them.
unsafe fn find<P: Packets>(
    list: *mut bindings::list_head,
    skb: *mut bindings::sk_buff,
    front: *const u8,
    at: u32,
    plain: bool,
) -> Found {
    // SAFETY: The caller's promise: the list links buffers, by their first field. The linear part
    // of a held one begins with what was pulled, and ours have pulled their header; what has pulled
    // as much in the same way is one of ours.
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
                    alike: found == bindings::ENET_GRO_ALIKE,
                };
            }
        }
    }
    Found {
        held: ptr::null_mut(),
        alike: false,
    }
}

/// Bytes of the sum behind a packet with `header`.
#[inline]
fn checksum_len<P: Packets>(header: &[u8]) -> usize {
    if P::has_checksum(header) {
        CHECKSUM_LEN
    } else {
        0
    }
}

/// Joins a packet to those of `held`, if it comes behind them, its memory can move, and the sums
/// have one [mask](masks), which is kept in their place: whoever knows the connection judges that.
///
/// # Safety
///
/// As [`receive`]; `len` bytes and the packet's sum, if it has one, follow its header.
unsafe fn join<P: Packets>(
    held: *mut bindings::sk_buff,
    skb: *mut bindings::sk_buff,
    header: &[u8],
    at: u32,
    len: usize,
) -> Option<More> {
    // SAFETY: The caller's promise. Nobody else has a clone of either buffer, as `gro_movable`
    // finds, so the header may be written and references to pages may move.
    unsafe {
        let info = Buffer::from_raw(held).shared();
        let count = (*notes(held)).count;
        let way = movable(held, skb, at.wrapping_add(P::HEADER_LEN as u32), len as u32)?;
        let first = slice::from_raw_parts_mut((*held).data.add(at as usize), P::HEADER_LEN);
        // One that is alone still has its sum, which the core has taken for payload.
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
            // The third and later packets of the run have the same mask.
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

/// The mask of the sums of a packet and of those of `held`, if they have one.
///
/// # Safety
///
/// The buffers are valid and the core's alone, with a header at `at`. A sum is at the end of each
/// that has one packet.
#[cold]
#[inline(never)]
unsafe fn common_mask(
    held: *mut bindings::sk_buff,
    skb: *mut bindings::sk_buff,
    at: u32,
) -> Option<u32> {
    // SAFETY: The caller's promise.
    let of_packet = |skb: *mut bindings::sk_buff| unsafe {
        let around = at.wrapping_add(CHECKSUM_LEN as u32);
        checksum::mask(skb, at, (*skb).len.checked_sub(around)?)
    };
    let mask = of_packet(skb)?;
    // SAFETY: As above.
    let first = unsafe {
        if (*notes(held)).count == 1 {
            of_packet(held)?
        } else {
            masks::of_run(held)
        }
    };
    (first == mask).then_some(mask)
}

/// Takes the sum off the end of a buffer. What `way` found stays so: at least a byte of payload is
/// in front.
///
/// # Safety
///
/// The buffer is valid, the core's alone and shared with nobody, and has so many bytes behind its
/// header.
#[cold]
#[inline(never)]
unsafe fn cut_sum(skb: *mut bindings::sk_buff) {
    let mut left = CHECKSUM_LEN as u32;
    // SAFETY: The caller's promise. A fragment below the count is initialised, and one without
    // bytes gives its reference back as it stops to count. The rest is in the linear part.
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

/// How the `len` bytes of payload of `skb`, from `from` on, can move to `held`; `None` if they
/// cannot, or if a clone shares one of the two.
///
/// # Safety
///
/// Both are valid, and nobody changes their descriptors.
pub(super) unsafe fn movable(
    held: *mut bindings::sk_buff,
    skb: *mut bindings::sk_buff,
    from: u32,
    len: u32,
) -> Option<Move> {
    // SAFETY: The caller's promise.
    unsafe {
        let most = (*held).len.saturating_add(len);
        bindings::gro_movable(held, skb, most)
            .then(|| way(held, skb, from))
            .flatten()
    }
}

/// Moves the last `len` bytes of `skb` behind the data of `held`. What is left of `skb` is only
/// good to be freed. Whether it has lost its linear part, too.
///
/// # Safety
///
/// [`movable`] has found this `way`, nobody shares the buffers, and nothing has become longer
/// since.
pub(super) unsafe fn append(
    held: *mut bindings::sk_buff,
    skb: *mut bindings::sk_buff,
    way: Move,
    len: u32,
) -> bool {
    // SAFETY: The caller's promise.
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

/// How the payload of `skb`, from `from` on, can move to `held`; `None` if it cannot.
///
/// # Safety
///
/// As [`movable`].
unsafe fn way(
    held: *mut bindings::sk_buff,
    skb: *mut bindings::sk_buff,
    from: u32,
) -> Option<Move> {
    // SAFETY: The caller's promise.
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

/// Moves the references to pages of `skb` behind those of `held`, without the first `skip` bytes.
/// Returns the memory that moved.
///
/// # Safety
///
/// `way` has just said so, and nobody shares the buffers.
unsafe fn move_pages(held: *mut bindings::sk_buff, skb: *mut bindings::sk_buff, skip: u32) -> u32 {
    // SAFETY: The caller's promise: the array has room, and the references get another owner, since
    // the old one counts none any more.
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

/// Moves the linear part of `skb` from `from` on, and its references to pages, behind those of
/// `held`. Returns the memory that moved; the core frees the rest, which is the descriptor. If the
/// two have an owner, `held` stands for all that the owner is charged for from then on:
/// `napi_skb_free_stolen_head` gives no owner anything back.
///
/// # Safety
///
/// As [`move_pages`].
unsafe fn move_head(held: *mut bindings::sk_buff, skb: *mut bindings::sk_buff, from: u32) -> u32 {
    // SAFETY: The caller's promise: the array has room, the linear part is a page's, whose
    // reference gets another owner together with those to other pages.
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

/// Copies the references to pages of `skb` behind those of `held` and `gap` more. Returns the first
/// place behind those that were there.
///
/// # Safety
///
/// The array has room for all of them.
unsafe fn append_fragments(
    held: *mut bindings::sk_buff,
    skb: *mut bindings::sk_buff,
    gap: usize,
) -> *mut bindings::skb_frag_t {
    // SAFETY: The caller's promise. The arrays are those of two buffers.
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

/// A driver lets go of several packets that were joined.
///
/// # Safety
///
/// Called by the core with a buffer that is its alone, whose header starts `at` bytes into the
/// data.
pub(super) unsafe extern "C" fn complete<P: Packets>(
    skb: *mut bindings::sk_buff,
    at: c_int,
) -> c_int {
    // SAFETY: The caller's promise.
    unsafe {
        count_held(1_usize.wrapping_neg());
        let protocol = TYPE.load(Ordering::Relaxed);
        bindings::gro_set_packets(skb, at as u32, P::HEADER_LEN as u32, protocol);
    }
    0
}
