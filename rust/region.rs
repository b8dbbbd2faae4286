// SPDX-License-Identifier: GPL-2.0

//! Regions: memory of a program that is pinned, so that packets can be copied to it without the
//! program, in any context.
//!
//! A program names a region by a key, which cannot be guessed. A table of regions belongs to a
//! descriptor. When the descriptor is closed, its regions [end](Regions::end).
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h) (`pin_user_pages_fast`)

use super::{bindings, locked::Locked, random, rcu, skb::Buffer, sock::task_is_killed};
use crate::net::errno::prelude::*;
use core::{
    ptr,
    sync::atomic::{
        fence, AtomicBool, AtomicPtr,
        Ordering::{Acquire, Relaxed, Release},
    },
};
use kernel::{
    ffi::{c_int, c_ulong},
    init::InPlaceInit,
    new_mutex,
    page::PAGE_SIZE,
    sync::Mutex,
};

/// The most regions of a table.
const PLACES: usize = 1 << 10;

/// A key has the number of the region's place in its lower 16 bits. The bits above are random.
const KEY_SHIFT: u32 = 16;

/// Length of a number that is put at once, in bytes.
const NUMBER: usize = 8;

/// Number of pages that are pinned or unpinned at a time. The kernel pins without interrupts.
const BATCH: usize = 512;

/// Maximum length of a region, in bytes.
const MOST: usize = 1 << 32;

/// Memory of a program that is pinned.
///
/// # Invariants
///
/// `pages` are pinned for writing. They have at least `first + len` bytes.
struct Region {
    key: u64,
    pages: KVVec<*mut bindings::page>,
    /// Offset of the region's first byte in the first page.
    first: usize,
    len: usize,
    _locked: Locked,
}

// SAFETY: Pinned pages belong to no task.
unsafe impl Send for Region {}
// SAFETY: A shared reference only copies bytes to the pages, whose values do not matter to the
// kernel. The program may write them at any time, too.
unsafe impl Sync for Region {}

impl Region {
    /// Pins `len` bytes of the running task's memory at `address`.
    fn new(key: u64, address: u64, len: u64) -> Result<Self> {
        let address = usize::try_from(address).map_err(|_| EFAULT)?;
        let len = usize::try_from(len).map_err(|_| EINVAL)?;
        if len == 0 || len > MOST {
            return Err(EINVAL);
        }
        address.checked_add(len).ok_or(EFAULT)?;
        let first = address % PAGE_SIZE;
        let count = first.saturating_add(len).div_ceil(PAGE_SIZE);
        let locked = Locked::new(count)?;
        // INVARIANT: There are no pages yet, and the region is not used before all of them are
        // pinned. If that fails, it is dropped.
        let mut region = Region {
            key,
            pages: KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?,
            first,
            len,
            _locked: locked,
        };
        let mut start = address.saturating_sub(first);
        while region.pages.len() < count {
            let part = count.saturating_sub(region.pages.len()).min(BATCH);
            let pinned = region.pin(start, part)?;
            start = start.saturating_add(pinned.saturating_mul(PAGE_SIZE));
            rcu::reschedule();
            if task_is_killed() {
                return Err(EINTR);
            }
        }
        Ok(region)
    }

    /// Pins at most `count` further pages of the running task's memory, from the page at `start`
    /// on. Returns their number, which is not 0.
    fn pin(&mut self, start: usize, count: usize) -> Result<usize> {
        let room = self.pages.spare_capacity_mut();
        let count = count.min(room.len());
        let flags = bindings::FOLL_WRITE | bindings::FOLL_LONGTERM;
        // SAFETY: This is a call of the task whose memory is pinned, and it may sleep. `room` has
        // place for `count` pointers.
        let pinned = unsafe {
            bindings::pin_user_pages_fast(
                start as c_ulong,
                count as c_int,
                flags,
                room.as_mut_ptr().cast(),
            )
        };
        let pinned = usize::try_from(pinned).map_err(|_| Error::from_errno(pinned))?;
        if pinned == 0 {
            return Err(EFAULT);
        }
        // SAFETY: The call above has written this many pointers, at most `count`.
        unsafe { self.pages.inc_len(pinned.min(count)) };
        Ok(pinned)
    }

    /// Copies `len` bytes of `skb` from offset `start` on to the region, from `offset` on. Eight
    /// bytes at an aligned place are a [number](Self::put_number). Returns `false` if they do not
    /// lie within the region. Can be called in any context.
    fn put(&self, offset: u64, skb: &Buffer, start: usize, len: usize) -> bool {
        let end = offset.checked_add(len as u64);
        if skb.span(start, len).is_none() || end.is_none_or(|end| end > self.len as u64) {
            return false;
        }
        // A program that sees bytes of this put also sees those of earlier puts.
        fence(Release);
        let (mut from, mut left) = (start, len);
        let mut to = self.first.saturating_add(offset as usize);
        if len == NUMBER && to % NUMBER == 0 {
            return self.put_number(to, skb, start);
        }
        while left > 0 {
            let Some(page) = self.pages.get(to / PAGE_SIZE) else {
                return false;
            };
            let within = to % PAGE_SIZE;
            let part = left.min(PAGE_SIZE.saturating_sub(within));
            // SAFETY: By the invariant, the page is pinned for writing, and the part ends within
            // it. The span lies in the data of `skb`.
            let error = unsafe {
                bindings::skb_copy_to_user_page(
                    skb.as_ptr(),
                    from as c_int,
                    *page,
                    within as u32,
                    part as u32,
                )
            };
            if error != 0 {
                return false;
            }
            from = from.saturating_add(part);
            to = to.saturating_add(part);
            left = left.saturating_sub(part);
        }
        true
    }

    /// Copies a number, the bytes of `skb` from offset `start` on, to the place `to` of the pages.
    /// A program that reads it sees the old number or the new one. If it sees the new one, it also
    /// sees what was put before under the same lock.
    fn put_number(&self, to: usize, skb: &Buffer, start: usize) -> bool {
        let mut bytes = [0; NUMBER];
        let Some(page) = self
            .pages
            .get(to / PAGE_SIZE)
            .filter(|_| skb.copy_bits(start, &mut bytes))
        else {
            return false;
        };
        // SAFETY: By the invariant, the page is pinned for writing, and the number lies within it,
        // as it is aligned. The program may access it at any time, so the store is atomic.
        unsafe {
            bindings::page_store_release(*page, (to % PAGE_SIZE) as u32, u64::from_ne_bytes(bytes))
        };
        true
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        for batch in self.pages.chunks_mut(BATCH) {
            // SAFETY: By the invariant, the pages are pinned, and no one else unpins them. Regions
            // are dropped in process context only: see `Regions`.
            unsafe {
                bindings::unpin_user_pages_dirty_lock(
                    batch.as_mut_ptr(),
                    batch.len() as c_ulong,
                    true,
                )
            };
            rcu::reschedule();
        }
    }
}

/// A table of regions.
///
/// # Invariants
///
/// Each place is null, or a region that the table owns. Only holders of the lock change places, and
/// once the table has ended, only `end`. A region is dropped once it is unreachable for new
/// readers, and a grace period of RCU has passed.
pub(crate) struct Regions {
    places: KVVec<AtomicPtr<Region>>,
    changes: Pin<KBox<Mutex<()>>>,
    /// Whether the table has ended. Then it has no region for readers, and takes none.
    has_ended: AtomicBool,
}

impl Regions {
    /// Creates a table without regions.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let mut places = KVVec::with_capacity(PLACES, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..PLACES {
            places.push(AtomicPtr::new(ptr::null_mut()), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Regions {
            places,
            changes: KBox::pin_init(new_mutex!(()), GFP_KERNEL_ACCOUNT)?,
            has_ended: AtomicBool::new(false),
        })
    }

    /// Makes a region of `len` bytes of the running task's memory at `address`, and returns its
    /// key. May sleep. The pages count against the user's `RLIMIT_MEMLOCK`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a length of 0 or more than 4 GiB, `EFAULT` for memory that the task cannot
    /// write or that cannot be pinned, `ENOBUFS` if the limit is exceeded, `ENOSPC` if there are
    /// too many regions, `EBADF` if the table has [ended](Self::end), `EINTR` after a fatal signal,
    /// `ENOMEM`.
    pub(crate) fn add(&self, address: u64, len: u64) -> Result<u64> {
        let key = random::u64() << KEY_SHIFT;
        let mut region = KBox::new(Region::new(key, address, len)?, GFP_KERNEL_ACCOUNT)?;
        let _changes = self.changes.lock();
        if self.has_ended() {
            return Err(EBADF);
        }
        let mut places = self.places.iter().enumerate();
        let free = places.find(|(_, place)| place.load(Relaxed).is_null());
        let (index, place) = free.ok_or(ENOSPC)?;
        region.key |= index as u64;
        let key = region.key;
        // INVARIANT: The place was null, and the lock is held. The store publishes the region's
        // fields.
        place.store(KBox::into_raw(region), Release);
        Ok(key)
    }

    /// Ends the region with this key. Nothing writes to its memory once the call has returned. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is no such region.
    pub(crate) fn remove(&self, key: u64) -> Result {
        let changes = self.changes.lock();
        let place = self.place_of(key).filter(|_| !self.has_ended());
        let place = place.ok_or(ENOENT)?;
        let region = place.load(Relaxed);
        // SAFETY: By the invariant, a pointer that is not null is a region, and it stays valid
        // while the lock is held.
        if unsafe { region.as_ref() }.is_none_or(|region| region.key != key) {
            return Err(ENOENT);
        }
        place.store(ptr::null_mut(), Relaxed);
        drop(changes);
        rcu::synchronize();
        // SAFETY: The place owned the region, and was cleared before the grace period. So no reader
        // has the region any more.
        drop(unsafe { KBox::from_raw(region) });
        Ok(())
    }

    /// Ends all regions, and takes no more. Nothing writes to their memory once the call has
    /// returned. May sleep. A table that is dropped before leaks its regions.
    pub(crate) fn end(&self) {
        let changes = self.changes.lock();
        let again = self.has_ended.swap(true, Relaxed);
        drop(changes);
        let is_empty = |place: &AtomicPtr<Region>| place.load(Relaxed).is_null();
        if again || self.places.iter().all(is_empty) {
            return;
        }
        // After the grace period, all readers see that the table has ended. No other call changes
        // places of such a table.
        rcu::synchronize();
        for place in &*self.places {
            let region = place.swap(ptr::null_mut(), Relaxed);
            if !region.is_null() {
                // SAFETY: The place owned the region. No reader looks at places any more.
                drop(unsafe { KBox::from_raw(region) });
            }
        }
    }

    /// Returns whether the table has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }

    /// Copies `len` bytes of `skb` from offset `start` on to the region with this key, from
    /// `offset` on. Returns `false`, and may have copied some of the bytes, if there is no such
    /// region, or if they do not lie within the region. Can be called in any context.
    pub(crate) fn put(
        &self,
        key: u64,
        offset: u64,
        skb: &Buffer,
        start: usize,
        len: usize,
    ) -> bool {
        let _section = rcu::Read::enter();
        let Some(place) = self.place_of(key).filter(|_| !self.has_ended()) else {
            return false;
        };
        // SAFETY: By the invariant, the pointer is null or a region, which stays valid until the
        // read section has ended.
        let region = unsafe { place.load(Acquire).as_ref() };
        region.is_some_and(|region| region.key == key && region.put(offset, skb, start, len))
    }

    fn place_of(&self, key: u64) -> Option<&AtomicPtr<Region>> {
        self.places.get(usize::from(key as u16))
    }
}
