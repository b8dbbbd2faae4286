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
    sock::{Protocol, Sock},
};
use crate::net::errno::prelude::*;
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
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

#[repr(transparent)]
struct Bucket(UnsafeCell<bindings::hlist_head>);

/// A hash table of sockets of protocol `P`, with a power of two of buckets. It ends with its
/// namespace, when no socket is left in it and a grace period has passed since.
pub(crate) struct Table<P: Protocol, L: Link> {
    buckets: KVVec<Bucket>,
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
        let lock = BhLock::new((), kernel::static_lock_class!())?;
        let count = 1_usize << bits;
        let mut buckets = KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            let empty = bindings::hlist_head {
                first: ptr::null_mut(),
            };
            buckets.push(Bucket(UnsafeCell::new(empty)), GFP_KERNEL)?;
        }
        Ok(Table {
            buckets,
            mask: (1 << bits) - 1,
            lock,
            _sockets: PhantomData,
        })
    }

    #[inline]
    fn bucket(&self, hash: u32) -> Option<&Bucket> {
        self.buckets.get((hash & self.mask) as usize)
    }

    /// The sockets in the bucket of `hash`, those first that came last.
    #[inline]
    fn sockets<'a>(
        &self,
        hash: u32,
        _section: &'a rcu::Read,
    ) -> impl Iterator<Item = &'a Sock<P>> + use<'a, P, L> {
        let mut link = self.bucket(hash).map_or(ptr::null_mut(), Self::first);
        core::iter::from_fn(move || {
            if link.is_null() {
                return None;
            }
            // SAFETY: A link in the table is inside a socket that is freed after the section.
            let sock = unsafe { &*link.byte_sub(L::OFFSET).cast::<Sock<P>>() };
            link = Self::next(link);
            Some(sock)
        })
    }

    /// The first socket in the bucket of `hash` for which `matches` holds.
    #[inline]
    pub(crate) fn find<'a>(
        &self,
        hash: u32,
        section: &'a rcu::Read,
        mut matches: impl FnMut(&Sock<P>) -> bool,
    ) -> Option<&'a Sock<P>> {
        self.sockets(hash, section).find(|sock| matches(sock))
    }

    /// The socket in the bucket of `hash` that `fitness` values most, of equals the one that came
    /// last; none that it does not value.
    #[inline]
    pub(crate) fn find_best<'a>(
        &self,
        hash: u32,
        section: &'a rcu::Read,
        fitness: impl Fn(&Sock<P>) -> Option<u32>,
    ) -> Option<&'a Sock<P>> {
        let mut best: Option<(u32, &Sock<P>)> = None;
        for sock in self.sockets(hash, section) {
            if let Some(value) = fitness(sock) {
                if best.is_none_or(|(most, _)| value > most) {
                    best = Some((value, sock));
                }
            }
        }
        best.map(|(_, sock)| sock)
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

    /// As [`Self::for_each`], in process context: the read section lasts no longer than for a bucket.
    pub(crate) fn for_each_at_leisure(&self, mut f: impl FnMut(&Sock<P>)) {
        for hash in 0..=self.mask {
            let section = rcu::Read::enter();
            self.find(hash, &section, |sock| {
                f(sock);
                false
            });
        }
    }

    #[inline]
    fn first(bucket: &Bucket) -> *mut bindings::hlist_node {
        // SAFETY: The head is a pointer that writers publish with release semantics.
        unsafe {
            AtomicPtr::from_ptr(ptr::addr_of_mut!((*bucket.0.get()).first)).load(Ordering::Acquire)
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
        unsafe { bindings::hlist_add_head_rcu(Self::link(sock), bucket.0.get()) };
    }

    /// Takes a socket out of the table; false if it is not in it.
    pub(crate) fn remove(&self, sock: &Sock<P>) -> bool {
        let link = Self::link(sock);
        // SAFETY: The table is locked. An unused link has a null `pprev`: sockets start zeroed,
        // and `hlist_del_init_rcu` leaves it so.
        unsafe {
            if (*link).pprev.is_null() {
                return false;
            }
            bindings::hlist_del_init_rcu(link);
        }
        true
    }

    #[inline]
    fn link(sock: &Sock<P>) -> *mut bindings::hlist_node {
        // SAFETY: The offset of a field of `struct sock`, at the start of the socket.
        unsafe { sock.as_ptr().byte_add(L::OFFSET).cast() }
    }
}
