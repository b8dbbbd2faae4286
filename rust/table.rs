// SPDX-License-Identifier: GPL-2.0

//! Hash tables of sockets, searched under RCU and changed under a lock.
//!
//! Sockets are freed after a grace period (`SOCK_RCU_FREE`), so what a search finds is valid for
//! the read section without a reference. A socket must be out of its tables before its last
//! reference goes.
//!
//! C header: [`include/linux/rculist.h`](srctree/include/linux/rculist.h)

use super::{
    bh_lock::{BhLock, BhLockGuard},
    bindings, rcu,
    sock::{Protocol, Sock, SockRef},
};
use crate::net::errno::prelude::*;
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    ptr, slice,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

/// Which of a socket's two links a table uses.
pub(crate) trait Link {
    /// Offset of the `hlist_node` in `struct sock`.
    const OFFSET: usize;
}

/// The link of the table a socket's packets are looked up in (`skc_node`).
pub(crate) struct LookupLink;
/// The link of the table of taken ports (`skc_bind_node`).
pub(crate) struct PortLink;

impl Link for LookupLink {
    const OFFSET: usize =
        core::mem::offset_of!(bindings::sock, __sk_common.__bindgen_anon_6.skc_node);
}
impl Link for PortLink {
    const OFFSET: usize =
        core::mem::offset_of!(bindings::sock, __sk_common.__bindgen_anon_4.skc_bind_node);
}

#[repr(C)]
struct Bucket {
    head: UnsafeCell<bindings::hlist_head>,
    count: AtomicU32,
}

/// A hash table of sockets of protocol `P`, with a power of two of buckets.
pub(crate) struct Table<P: Protocol, L: Link> {
    buckets: *mut Bucket,
    mask: u32,
    lock: BhLock<()>,
    _sockets: PhantomData<(fn() -> P, L)>,
}

// SAFETY: Buckets are changed under `lock` and read under RCU.
unsafe impl<P: Protocol, L: Link> Send for Table<P, L> {}
// SAFETY: As above.
unsafe impl<P: Protocol, L: Link> Sync for Table<P, L> {}

impl<P: Protocol, L: Link> Table<P, L> {
    /// An empty table of `1 << bits` buckets.
    pub(crate) fn new(bits: u32) -> Result<Self> {
        let lock = BhLock::new(())?;
        let bytes = core::mem::size_of::<Bucket>() << bits;
        // SAFETY: Any size may be asked for, in process context.
        let buckets = unsafe { bindings::kvzalloc(bytes) }.cast::<Bucket>();
        if buckets.is_null() {
            return Err(ENOMEM);
        }
        Ok(Table {
            buckets,
            mask: (1 << bits) - 1,
            lock,
            _sockets: PhantomData,
        })
    }

    #[inline]
    fn buckets(&self) -> &[Bucket] {
        // SAFETY: Allocated in `new` with that many buckets, zeroed, which is empty.
        unsafe { slice::from_raw_parts(self.buckets, self.mask as usize + 1) }
    }

    #[inline]
    fn bucket(&self, hash: u32) -> Option<&Bucket> {
        self.buckets().get((hash & self.mask) as usize)
    }

    /// How many buckets there are.
    pub(crate) fn len(&self) -> usize {
        self.mask as usize + 1
    }

    /// How many sockets are in the bucket of `hash`.
    pub(crate) fn load(&self, hash: u32) -> u32 {
        self.bucket(hash)
            .map_or(0, |bucket| bucket.count.load(Ordering::Relaxed))
    }

    /// The first socket in the bucket of `hash` for which `matches` holds.
    #[inline]
    pub(crate) fn find<'a>(
        &self,
        hash: u32,
        _section: &'a rcu::Read,
        mut matches: impl FnMut(&Sock<P>) -> bool,
    ) -> Option<&'a Sock<P>> {
        let mut link = Self::first(self.bucket(hash)?);
        while !link.is_null() {
            // SAFETY: A link in the table is inside a socket that is freed after this section.
            let sock = unsafe { &*link.byte_sub(L::OFFSET).cast::<Sock<P>>() };
            if matches(sock) {
                return Some(sock);
            }
            link = Self::next(link);
        }
        None
    }

    /// A reference to any socket that `chosen` picks.
    pub(crate) fn hold_any(&self, chosen: impl Fn(&Sock<P>) -> bool) -> Option<SockRef<P>> {
        let guard = self.lock();
        (0..=self.mask).find_map(|hash| {
            // A socket leaves its tables, for which the lock is needed, before its last reference
            // goes: so one can be taken here.
            Some(self.find(hash, &guard.section, &chosen)?.hold())
        })
    }

    /// Calls `f` for every socket in the table.
    pub(crate) fn for_each(&self, section: &rcu::Read, mut f: impl FnMut(&Sock<P>)) {
        for hash in 0..=self.mask {
            self.find(hash, section, |sock| {
                f(sock);
                false
            });
        }
    }

    #[inline]
    fn first(bucket: &Bucket) -> *mut bindings::hlist_node {
        // SAFETY: The head is a pointer that writers publish with release semantics.
        unsafe {
            AtomicPtr::from_ptr(ptr::addr_of_mut!((*bucket.head.get()).first))
                .load(Ordering::Acquire)
        }
    }

    #[inline]
    fn next(link: *mut bindings::hlist_node) -> *mut bindings::hlist_node {
        // SAFETY: The link is in a socket that the read section keeps; removal leaves `next` as it
        // was, so a reader on its way finds the end.
        unsafe { AtomicPtr::from_ptr(ptr::addr_of_mut!((*link).next)).load(Ordering::Acquire) }
    }

    /// Locks the table for a change.
    #[inline]
    pub(crate) fn lock(&self) -> TableGuard<'_, P, L> {
        TableGuard {
            table: self,
            section: rcu::Read::enter(),
            _lock: self.lock.lock(),
        }
    }
}

impl<P: Protocol, L: Link> Drop for Table<P, L> {
    fn drop(&mut self) {
        // SAFETY: Allocated in `new`; no socket is left in the table when its namespace goes, and
        // readers of the receive path have gone with the devices.
        unsafe { bindings::kvfree(self.buckets.cast()) };
    }
}

/// A table that no one else changes.
pub(crate) struct TableGuard<'a, P: Protocol, L: Link> {
    table: &'a Table<P, L>,
    section: rcu::Read,
    _lock: BhLockGuard<'a, ()>,
}

impl<P: Protocol, L: Link> TableGuard<'_, P, L> {
    /// Whether a socket in the bucket of `hash` matches.
    pub(crate) fn any(&self, hash: u32, matches: impl FnMut(&Sock<P>) -> bool) -> bool {
        self.table.find(hash, &self.section, matches).is_some()
    }

    /// Puts a socket that is not in a table by this link into the bucket of `hash`.
    pub(crate) fn insert(&self, hash: u32, sock: &Sock<P>) {
        let Some(bucket) = self.table.bucket(hash) else {
            return;
        };
        // SAFETY: The table is locked; the socket's link is unused, as the caller promises.
        unsafe { bindings::hlist_add_head_rcu(Self::link(sock), bucket.head.get()) };
        bucket.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a socket out of the bucket of `hash`, if it is in the table.
    pub(crate) fn remove(&self, hash: u32, sock: &Sock<P>) {
        let link = Self::link(sock);
        // SAFETY: The table is locked. An unused link has a null `pprev`: sockets start zeroed,
        // and `hlist_del_init_rcu` leaves it so.
        unsafe {
            if (*link).pprev.is_null() {
                return;
            }
            bindings::hlist_del_init_rcu(link);
        }
        if let Some(bucket) = self.table.bucket(hash) {
            bucket.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[inline]
    fn link(sock: &Sock<P>) -> *mut bindings::hlist_node {
        // SAFETY: The offset of a field of `struct sock`, at the start of the socket.
        unsafe { sock.as_ptr().byte_add(L::OFFSET).cast() }
    }
}
