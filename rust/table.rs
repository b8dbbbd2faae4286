// SPDX-License-Identifier: GPL-2.0

//! Hash tables of sockets, searched under RCU and changed under a lock.
//!
//! A table holds a reference to each of its sockets. Sockets are freed after a grace period
//! (`SOCK_RCU_FREE`), so a socket that a search finds is valid for the read section without a
//! reference.
//!
//! A socket may move to another bucket, or to another table, without a grace period in between. A
//! search that is at this socket then continues on another chain. So the end of a chain identifies
//! its bucket, and a search that reaches the end of another bucket starts over.
//!
//! C header: [`include/linux/rculist_nulls.h`](srctree/include/linux/rculist_nulls.h)

use super::{
    bh_lock::{BhLock, BhLockGuard},
    bindings, rcu,
    sock::{Protocol, Sock, SockRef},
};
use crate::net::errno::prelude::*;
use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::{forget, offset_of},
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// A link that puts sockets into tables. A socket has two links. Each link can put the socket into
/// one table at a time.
///
/// # Safety
///
/// `OFFSET` is the offset of a node in `struct sock` that only tables with this link use. Only this
/// link uses the [`Membership`] that `member` returns.
pub(crate) unsafe trait Link: 'static {
    /// Offset of the node in `struct sock`.
    const OFFSET: usize;
    /// Returns the membership of a socket in the table into which this link puts the socket.
    fn member(memberships: &Memberships) -> &Membership;
}

/// The link of the table in which the receive path looks up a packet's socket (`skc_nulls_node`).
pub(crate) struct LookupLink;
/// The link of the table of ports in use (`skc_bind_node`).
pub(crate) struct PortLink;

// SAFETY: The core leaves `skc_nulls_node` to the protocol.
unsafe impl Link for LookupLink {
    const OFFSET: usize = offset_of!(bindings::sock, __sk_common.__bindgen_anon_6.skc_nulls_node);

    #[inline]
    fn member(memberships: &Memberships) -> &Membership {
        &memberships.lookup
    }
}

// SAFETY: The core leaves the node to the protocol. It declares `skc_bind_node` as a `hlist_node`,
// the node of a list that ends with null. Both node types have the same layout.
unsafe impl Link for PortLink {
    const OFFSET: usize = offset_of!(bindings::sock, __sk_common.__bindgen_anon_4.skc_bind_node);

    #[inline]
    fn member(memberships: &Memberships) -> &Membership {
        &memberships.port
    }
}

/// The table that a socket is in, identified by the table's first bucket, or null if the socket is
/// in no table. Written with the table locked.
#[derive(Default)]
pub(crate) struct Membership(AtomicPtr<Bucket>);

/// A socket's membership for each of its two links.
#[derive(Default)]
pub(crate) struct Memberships {
    lookup: Membership,
    port: Membership,
}

struct Bucket(UnsafeCell<bindings::hlist_nulls_head>);

impl Bucket {
    /// Returns the end of this bucket's chain: an odd address, which no node has.
    #[inline]
    fn end(&self) -> *mut bindings::hlist_nulls_node {
        ptr::from_ref(self)
            .cast_mut()
            .cast::<bindings::hlist_nulls_node>()
            .wrapping_byte_add(1)
    }

    /// Returns the first node of the chain, or its end.
    #[inline]
    fn first(&self) -> *mut bindings::hlist_nulls_node {
        // SAFETY: The head is an aligned pointer, which the lock holder stores with release
        // semantics.
        unsafe { AtomicPtr::from_ptr(ptr::addr_of_mut!((*self.0.get()).first)).load(Acquire) }
    }
}

#[inline]
fn is_end(link: *mut bindings::hlist_nulls_node) -> bool {
    link.addr() & 1 != 0
}

/// The position of a walk through a table or a map.
#[derive(Clone, Copy, Default)]
pub(crate) struct Walk {
    pub(super) bucket: u32,
    /// Number of sockets of the bucket `bucket` that the walk has visited.
    pub(super) visited: u32,
}

/// A hash table of sockets of protocol `P`. The number of buckets is a power of two.
///
/// # Invariants
///
/// The chains contain only nodes of sockets whose [`Membership`] is this table's first bucket. The
/// table holds one reference to each of these sockets.
pub(crate) struct Table<P: Protocol, L: Link> {
    /// The buckets, which must not move.
    buckets: KVVec<Bucket>,
    mask: u32,
    lock: BhLock<()>,
    _sockets: PhantomData<(SockRef<P>, fn() -> L)>,
}

// SAFETY: Buckets are changed under `lock` and read under RCU.
unsafe impl<P: Protocol, L: Link> Send for Table<P, L> {}
// SAFETY: Buckets are changed under `lock` and read under RCU.
unsafe impl<P: Protocol, L: Link> Sync for Table<P, L> {}

/// The sockets of a bucket, the latest first.
struct Chain<'a, P: Protocol, L: Link> {
    link: *mut bindings::hlist_nulls_node,
    end: *mut bindings::hlist_nulls_node,
    _sockets: PhantomData<(&'a Sock<P>, L)>,
}

impl<P: Protocol, L: Link> Chain<'_, P, L> {
    /// Returns whether the search has seen the whole bucket. The result is valid only after
    /// [`next`](Self::next) has returned `None`.
    #[inline]
    fn is_complete(&self) -> bool {
        self.link == self.end
    }
}

impl<'a, P: Protocol, L: Link> Iterator for Chain<'a, P, L> {
    type Item = &'a Sock<P>;

    #[inline]
    fn next(&mut self) -> Option<&'a Sock<P>> {
        let link = self.link;
        if is_end(link) {
            return None;
        }
        // SAFETY: A node of a chain is inside a socket of `P`, which is freed only after the read
        // section. If the socket leaves its table, the node's `next` does not change until the
        // socket is inserted into another table.
        unsafe {
            self.link = AtomicPtr::from_ptr(ptr::addr_of_mut!((*link).next)).load(Acquire);
            Some(&*link.byte_sub(L::OFFSET).cast::<Sock<P>>())
        }
    }
}

impl<P: Protocol, L: Link> Table<P, L> {
    /// Creates an empty table of `1 << bits` buckets.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(bits: u32) -> Result<Self> {
        let lock = BhLock::new((), kernel::static_lock_class!())?;
        let count = 1_usize << bits;
        let mut buckets = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..count {
            let head = bindings::hlist_nulls_head {
                first: ptr::null_mut(),
            };
            buckets.push(Bucket(UnsafeCell::new(head)), GFP_KERNEL_ACCOUNT)?;
        }
        for bucket in buckets.iter_mut() {
            let end = bucket.end();
            bucket.0.get_mut().first = end;
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

    /// Returns the address of the first bucket, by which a [`Membership`] identifies this table.
    #[inline]
    fn id(&self) -> *mut Bucket {
        self.buckets.as_ptr().cast_mut()
    }

    #[inline]
    fn chain<'a>(bucket: &Bucket, _section: &'a rcu::Read) -> Chain<'a, P, L> {
        Chain {
            link: bucket.first(),
            end: bucket.end(),
            _sockets: PhantomData,
        }
    }

    /// Returns the first socket in the bucket of `hash` for which `matches` returns true. If
    /// sockets move during the search, `matches` may be called twice for the same socket.
    #[inline]
    pub(crate) fn find<'a>(
        &self,
        hash: u32,
        section: &'a rcu::Read,
        mut matches: impl FnMut(&Sock<P>) -> bool,
    ) -> Option<&'a Sock<P>> {
        let bucket = self.bucket(hash)?;
        loop {
            let mut chain = Self::chain(bucket, section);
            let found = chain.find(|sock| matches(sock));
            if found.is_some() || chain.is_complete() {
                return found;
            }
        }
    }

    /// Returns the socket with the highest `fitness` in the bucket of `hash`. Among sockets with
    /// the same fitness, returns the socket that was inserted last. Ignores sockets whose fitness
    /// is `None`.
    #[inline]
    pub(crate) fn find_best<'a>(
        &self,
        hash: u32,
        section: &'a rcu::Read,
        fitness: impl Fn(&Sock<P>) -> Option<u32>,
    ) -> Option<&'a Sock<P>> {
        let bucket = self.bucket(hash)?;
        loop {
            let mut chain = Self::chain(bucket, section);
            let mut best: Option<(u32, &Sock<P>)> = None;
            for sock in chain.by_ref() {
                if let Some(value) = fitness(sock) {
                    if best.is_none_or(|(most, _)| value > most) {
                        best = Some((value, sock));
                    }
                }
            }
            if chain.is_complete() {
                return best.map(|(_, sock)| sock);
            }
        }
    }

    /// Calls `f` for every socket in the table, in a read section for each bucket. Call this in
    /// process context, because it lets other tasks run in between.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Sock<P>)) {
        for hash in 0..=self.mask {
            let section = rcu::Read::enter();
            self.find(hash, &section, |sock| {
                f(sock);
                false
            });
            drop(section);
            rcu::reschedule();
        }
    }

    /// Calls `f` for every socket from `from` on, in a read section for each bucket, until `f`
    /// fails. `from` is then the position of the socket for which `f` failed. Sockets may be
    /// inserted, removed or moved during the walk. Such a socket may be left out, and may cause
    /// other sockets to be left out or visited twice.
    ///
    /// # Errors
    ///
    /// The errors of `f`.
    pub(crate) fn walk<E>(
        &self,
        from: &mut Walk,
        mut f: impl FnMut(&Sock<P>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(bucket) = self.buckets.get(from.bucket as usize) {
            let section = rcu::Read::enter();
            loop {
                let mut chain = Self::chain(bucket, &section);
                for sock in chain.by_ref().skip(from.visited as usize) {
                    f(sock)?;
                    from.visited = from.visited.saturating_add(1);
                }
                if chain.is_complete() {
                    break;
                }
            }
            from.bucket = from.bucket.saturating_add(1);
            from.visited = 0;
        }
        Ok(())
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
        let guard = self.lock();
        for bucket in &self.buckets {
            while let Some(sock) = Self::chain(bucket, &guard.section).next() {
                drop(guard.remove(sock));
            }
        }
    }
}

/// A locked table, which no one else changes.
pub(crate) struct TableGuard<'a, P: Protocol, L: Link> {
    table: &'a Table<P, L>,
    section: rcu::Read,
    _lock: BhLockGuard<'a, ()>,
}

impl<P: Protocol, L: Link> TableGuard<'_, P, L> {
    /// Returns whether `matches` returns true for a socket in the bucket of `hash`.
    pub(crate) fn any(&self, hash: u32, matches: impl FnMut(&Sock<P>) -> bool) -> bool {
        self.table.find(hash, &self.section, matches).is_some()
    }

    /// Inserts a socket into the bucket of `hash`. The table holds it until [`Self::remove`].
    ///
    /// # Errors
    ///
    /// `EINVAL` if this link already holds the socket in a table, or if the socket's last reference
    /// is gone.
    pub(crate) fn insert(&self, hash: u32, sock: &Sock<P>) -> Result {
        let bucket = self.table.bucket(hash).ok_or(EINVAL)?;
        let held = sock.try_hold().ok_or(EINVAL)?;
        let Membership(member) = L::member(&sock.tables);
        member
            .compare_exchange(ptr::null_mut(), self.table.id(), Acquire, Relaxed)
            .map_err(|_| EINVAL)?;
        // The table keeps this reference.
        forget(held);
        // SAFETY: The table is locked. The node of this link was in no table, and since `member` is
        // set, no one else uses the node.
        unsafe { bindings::hlist_nulls_add_head_rcu(Self::link(sock), bucket.0.get()) };
        Ok(())
    }

    /// Removes a socket from the table and returns the table's reference to the socket. Returns
    /// `None` if the socket is not in the table.
    pub(crate) fn remove(&self, sock: &Sock<P>) -> Option<SockRef<P>> {
        let Membership(member) = L::member(&sock.tables);
        if member.load(Relaxed) != self.table.id() {
            return None;
        }
        // SAFETY: The socket is in this table, which is locked. The `SockRef` takes over the
        // table's reference.
        let held = unsafe {
            bindings::hlist_nulls_del_init_rcu(Self::link(sock));
            SockRef::from_raw(sock.as_ptr())
        };
        member.store(ptr::null_mut(), Release);
        Some(held)
    }

    #[inline]
    fn link(sock: &Sock<P>) -> *mut bindings::hlist_nulls_node {
        // SAFETY: `OFFSET` is the offset of a field of `struct sock`, which is at the start of the
        // socket.
        unsafe { sock.as_ptr().byte_add(L::OFFSET).cast() }
    }
}
