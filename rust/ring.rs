// SPDX-License-Identifier: GPL-2.0

//! A ring of received bytes that a program maps: the kernel puts bytes in, the program takes them
//! out without a system call.
//!
//! The memory is a control page, followed by the bytes. A program maps the bytes twice in a row, so
//! that bytes that wrap around the end are contiguous for it. The program may write any value to
//! any byte at any time. So the kernel keeps its own count of the bytes put, uses the program's
//! count only to compute the room, and never reads bytes back.
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h)

use super::{
    bh_lock::BhLock, bindings, family::ADDRESS_LEN, locked::Locked, skb::Buffer, softirq::Softirq,
};
use crate::net::errno::prelude::*;
use core::{
    ops::Deref,
    ptr::{self, NonNull},
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};
use kernel::{
    alloc::{
        allocator::VmallocPageIter,
        flags::{GFP_KERNEL_ACCOUNT, __GFP_ZERO},
        VVec,
    },
    mm::virt::{flags::SHARED, VmaNew},
    page::PAGE_SIZE,
};

/// Maximum size of a ring in bytes.
pub(crate) const MOST: usize = 16 << 20;

/// Length of what precedes a datagram's bytes in a ring of datagrams.
const HEADER_LEN: usize = 8 + ADDRESS_LEN;

/// Alignment of datagrams in a ring, in bytes.
const ALIGNMENT: usize = 8;

/// The counts at the start of the control page. Each is in a cache line of its own, since the
/// kernel writes one and the program the other.
#[repr(C)]
struct Control {
    /// The number of bytes put so far. Written by the kernel, after the bytes.
    put: AtomicU64,
    _line: [u64; 7],
    /// The number of bytes taken so far. Written by the program, after it has read the bytes.
    taken: AtomicU64,
    _other_line: [u64; 7],
    /// Whether a receive call has something to return that is not in the ring. Written by the
    /// kernel.
    call: AtomicU32,
}

/// A ring of received bytes.
///
/// # Invariants
///
/// `pages` has a capacity of at least one page and `size` bytes, all initialised. `size` is a power
/// of two and a multiple of the page size.
pub(crate) struct Ring {
    pages: VVec<u8>,
    start: NonNull<u8>,
    size: usize,
    /// The number of bytes put so far. `Control::put` is a copy for the program.
    put: AtomicU64,
    _locked: Locked,
}

// SAFETY: The memory belongs to no task. All accesses to it are atomic, or copies of bytes whose
// values do not matter to the kernel.
unsafe impl Send for Ring {}
// SAFETY: The same holds for shared access: overlapping calls mix the program's bytes, and do no
// more than the program could do itself.
unsafe impl Sync for Ring {}

impl Ring {
    /// Creates a ring of `size` bytes. The memory is charged to the running task's memory cgroup,
    /// and counts against its user's `RLIMIT_MEMLOCK`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `size` is not a power of two, less than a page or more than [`MOST`], `ENOBUFS`
    /// if it exceeds the limit, `ENOMEM` if there is no memory.
    pub(crate) fn new(size: usize) -> Result<Self> {
        if !size.is_power_of_two() || !(PAGE_SIZE..=MOST).contains(&size) {
            return Err(EINVAL);
        }
        let len = PAGE_SIZE.saturating_add(size);
        let locked = Locked::new(len / PAGE_SIZE)?;
        let mut pages = VVec::<u8>::with_capacity(len, GFP_KERNEL_ACCOUNT | __GFP_ZERO)?;
        let start = NonNull::new(pages.as_mut_ptr()).ok_or(ENOMEM)?;
        // INVARIANT: The capacity is at least `len`, and `__GFP_ZERO` has initialised all of it.
        Ok(Ring {
            pages,
            start,
            size,
            put: AtomicU64::new(0),
            _locked: locked,
        })
    }

    /// Returns the size of the ring in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    #[inline]
    fn control(&self) -> &Control {
        // SAFETY: By the invariant, the first page is initialised, and it is aligned. All fields
        // that are read or written are atomic, so the program may change them at any time.
        unsafe { self.start.cast::<Control>().as_ref() }
    }

    /// Returns the number of bytes that the program has not taken. If the program's count makes no
    /// sense, the ring counts as full.
    #[inline]
    pub(crate) fn unread(&self) -> usize {
        // The order makes sure that the program has read the bytes that it counts as taken before
        // they are overwritten.
        let taken = self.control().taken.load(Acquire);
        let unread = self.put.load(Relaxed).wrapping_sub(taken);
        usize::try_from(unread).map_or(self.size, |unread| unread.min(self.size))
    }

    /// Puts `len` bytes of `skb` from offset `start` on into the ring. Returns `false`, and puts
    /// nothing, if there is no room. The caller makes sure that no other call of this function
    /// overlaps, or else the bytes of both are mixed.
    #[inline]
    pub(crate) fn put(&self, skb: &Buffer, start: usize, len: usize) -> bool {
        if skb.span(start, len).is_none() || len > self.room() {
            return false;
        }
        let put = self.put.load(Relaxed);
        let copied = self.copy(put, skb, start, len);
        if copied {
            self.publish(put.wrapping_add(len as u64));
        }
        copied
    }

    /// Puts a datagram, like [`put`](Self::put). See [`DatagramRing`].
    #[inline]
    fn put_datagram(&self, sender: &[u8; ADDRESS_LEN], skb: &Buffer) -> bool {
        let len = skb.len();
        let whole = HEADER_LEN.saturating_add(len).next_multiple_of(ALIGNMENT);
        if whole > self.room() {
            return false;
        }
        let put = self.put.load(Relaxed);
        let [l0, l1, l2, l3] = (len as u32).to_ne_bytes();
        let start = [l0, l1, l2, l3, 0, 0, 0, 0];
        self.write(put, &start);
        self.write(put.wrapping_add(start.len() as u64), sender);
        let copied = self.copy(put.wrapping_add(HEADER_LEN as u64), skb, 0, len);
        if copied {
            self.publish(put.wrapping_add(whole as u64));
        }
        copied
    }

    /// Returns the number of bytes that can be put.
    #[inline]
    fn room(&self) -> usize {
        self.size.saturating_sub(self.unread())
    }

    /// Returns the memory of at most `len` bytes from byte `at` of those put on: its start, and
    /// their number. The other bytes are at the start of the ring.
    #[inline]
    fn place(&self, at: u64, len: usize) -> (*mut u8, usize) {
        let place = at as usize & self.size.wrapping_sub(1);
        // SAFETY: By the invariant, the bytes of the ring follow the control page, and `place` is
        // less than `size`.
        let start = unsafe { self.start.as_ptr().add(PAGE_SIZE).add(place) };
        (start, len.min(self.size.saturating_sub(place)))
    }

    /// Copies `len` bytes of `skb` from offset `start` on to the place of byte `at` of those put.
    /// They are at most as many as the ring has, and lie within the buffer.
    #[inline]
    fn copy(&self, at: u64, skb: &Buffer, start: usize, len: usize) -> bool {
        let Some((start, count)) = skb.span(start, len.min(self.size)) else {
            return false;
        };
        let (to, first) = self.place(at, len);
        let (begin, _) = self.place(0, 0);
        // SAFETY: By `place`, the first part ends within the ring. The rest is less than the ring's
        // size. The span lies in the data of `skb`.
        unsafe {
            bindings::skb_copy_bits(skb.as_ptr(), start, to.cast(), first as i32) == 0
                && (first == len
                    || bindings::skb_copy_bits(
                        skb.as_ptr(),
                        start.wrapping_add(first as i32),
                        begin.cast(),
                        count.wrapping_sub(first as i32),
                    ) == 0)
        }
    }

    /// Copies `bytes`, which are fewer than the ring has, to the place of byte `at` of those put.
    #[inline]
    fn write<const N: usize>(&self, at: u64, bytes: &[u8; N]) {
        const { assert!(N < PAGE_SIZE) };
        let (to, first) = self.place(at, N);
        let (begin, _) = self.place(0, 0);
        // SAFETY: By `place`, the first part ends within the ring, and the rest is less than the
        // ring's size. The program may write there at any time, as [`Ring`] says.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, first);
            ptr::copy_nonoverlapping(bytes.as_ptr().add(first), begin, N.wrapping_sub(first));
        }
    }

    /// Tells the program that all bytes before byte `put` were put.
    #[inline]
    fn publish(&self, put: u64) {
        self.put.store(put, Relaxed);
        self.control().put.store(put, Release);
    }

    /// Tells the program whether a receive call has something to return that is not in the ring.
    #[inline]
    pub(crate) fn set_call(&self, call: bool) {
        self.control().call.store(call.into(), Release);
    }

    /// Maps the ring: the control page, and the bytes twice.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the mapping is private, begins behind the start, or does not have the right
    /// length; `EPERM` if it would be executable.
    pub(super) fn map(&self, vma: &VmaNew, pages_skipped: usize) -> Result {
        let len = vma.end().saturating_sub(vma.start());
        let whole = self.size.saturating_mul(2).saturating_add(PAGE_SIZE);
        if vma.flags() & SHARED == 0 || len != whole || pages_skipped != 0 {
            return Err(EINVAL);
        }
        vma.try_clear_mayexec().map_err(|_| EPERM)?;
        vma.set_dontcopy();
        vma.set_dontexpand();
        vma.set_dontdump();
        let mapped = vma.set_mixedmap();
        let mut address = vma.start();
        // SAFETY: `start` is the start of the allocation `pages`, which has this capacity and lives
        // as long as `self`.
        let all = || unsafe { VmallocPageIter::new(self.start, self.pages.capacity()) };
        for page in all().chain(all().skip(1)) {
            if address >= vma.end() {
                break;
            }
            mapped.vm_insert_page(address, &page)?;
            address = address.wrapping_add(PAGE_SIZE);
        }
        Ok(())
    }
}

/// A ring of datagrams, which several processors may put at once. In the ring, each is its length,
/// 32 bits of 0, the sender's address, and its data. Up to seven other bytes follow, so that the
/// next one is aligned.
pub(crate) struct DatagramRing {
    ring: Ring,
    producers: BhLock<()>,
}

impl DatagramRing {
    /// Creates a ring of `size` bytes, like [`Ring::new`].
    ///
    /// # Errors
    ///
    /// The errors of [`Ring::new`].
    pub(crate) fn new(size: usize) -> Result<Self> {
        Ok(DatagramRing {
            ring: Ring::new(size)?,
            producers: BhLock::new((), kernel::static_lock_class!())?,
        })
    }

    /// Puts a datagram from `sender`, the data of `skb`, into the ring. Returns `false`, and puts
    /// nothing, if there is no room.
    #[inline]
    pub(crate) fn put(
        &self,
        sender: &[u8; ADDRESS_LEN],
        skb: &Buffer,
        softirq: Softirq<'_>,
    ) -> bool {
        let _producers = self.producers.lock_in(softirq);
        self.ring.put_datagram(sender, skb)
    }
}

impl Deref for DatagramRing {
    type Target = Ring;

    #[inline]
    fn deref(&self) -> &Ring {
        &self.ring
    }
}
