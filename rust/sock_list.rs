// SPDX-License-Identifier: GPL-2.0

//! Ordered lists of sockets: first in, first out, and removal from the middle.
//!
//! The links are in the sockets, so nothing is allocated and every operation takes constant time. A
//! list holds a reference to each of its sockets.
//!
//! C header: [`include/linux/list.h`](srctree/include/linux/list.h)

use super::{
    bindings,
    sock::{Protocol, Sock, SockRef},
};
use crate::net::errno::prelude::*;
use core::{
    array,
    cell::UnsafeCell,
    marker::PhantomData,
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// A set of links that puts sockets into lists. A socket has two sets. Each set can put the socket
/// into the lists of one [`SockLists`] at a time.
///
/// # Safety
///
/// For a given `sock`, [`of`](Self::of) always returns the same field. No other implementation
/// returns this field.
pub(crate) unsafe trait Link<P: Protocol>: Sized + 'static {
    /// The type of a value that each socket stores beside its links, for the owner of the lists.
    /// For instance, a scheduler keeps its data about the socket there.
    type Slot: Default + Send;
    /// Returns the links of a socket.
    fn of(sock: &Sock<P>) -> &Links<P, Self>;
}

/// The links for lists that store a value, the protocol's [`Slot`](Protocol::Slot), beside the
/// links of each socket.
pub(crate) enum SlotLink {}
/// The links for the lists in which a listener keeps its children.
pub(crate) enum ChildLink {}

// SAFETY: `links` belongs to this set of links alone.
unsafe impl<P: Protocol> Link<P> for SlotLink {
    type Slot = P::Slot;

    #[inline]
    fn of(sock: &Sock<P>) -> &Links<P, Self> {
        &sock.links
    }
}

// SAFETY: `child_links` belongs to this set of links alone.
unsafe impl<P: Protocol> Link<P> for ChildLink {
    type Slot = ();

    #[inline]
    fn of(sock: &Sock<P>) -> &Links<P, Self> {
        &sock.child_links
    }
}

/// A socket's links and slot. The socket belongs to at most one [`SockLists`] for this set of
/// links, and only that `SockLists` accesses the links and the slot.
#[repr(C)]
pub(crate) struct Links<P: Protocol, L: Link<P>> {
    /// The socket's node, which is in a list while `held` is not `None`.
    node: UnsafeCell<bindings::list_head>,
    /// The first head of the lists that the socket belongs to, or null.
    owner: AtomicPtr<bindings::list_head>,
    /// The list's reference to the socket, while the socket is in one of the lists.
    held: UnsafeCell<Option<SockRef<P>>>,
    slot: UnsafeCell<L::Slot>,
}

impl<P: Protocol, L: Link<P>> Default for Links<P, L> {
    fn default() -> Self {
        Links {
            node: UnsafeCell::new(bindings::list_head {
                next: ptr::null_mut(),
                prev: ptr::null_mut(),
            }),
            owner: AtomicPtr::new(ptr::null_mut()),
            held: UnsafeCell::new(None),
            slot: UnsafeCell::default(),
        }
    }
}

/// `N` lists of sockets. A socket is in at most one of them. No lock is needed, because methods
/// that access the lists borrow this value exclusively.
///
/// # Invariants
///
/// The lists contain only nodes of sockets whose `owner` is the first head. `held` of such a socket
/// refers to the socket itself, so the node is valid. If the `owner` of a socket is the first head,
/// the other fields of the socket's [`Links`] are accessed only through an exclusive reference to
/// these lists.
pub(crate) struct SockLists<P: Protocol, const N: usize, L: Link<P> = SlotLink> {
    heads: KBox<UnsafeCell<[bindings::list_head; N]>>,
    _sockets: PhantomData<(SockRef<P>, fn() -> L)>,
}

// SAFETY: The lists, and the slots of their sockets, which are `Send`, are reached through
// exclusive references only, from any processor.
unsafe impl<P: Protocol, const N: usize, L: Link<P>> Send for SockLists<P, N, L> {}

impl<P: Protocol, const N: usize, L: Link<P>> SockLists<P, N, L> {
    /// Creates empty lists, charged to the memory cgroup of the calling task.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Self::with_flags(GFP_KERNEL_ACCOUNT)
    }

    /// Creates empty lists, in a context that may not sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new_atomic() -> Result<Self> {
        Self::with_flags(GFP_ATOMIC)
    }

    fn with_flags(flags: kernel::alloc::Flags) -> Result<Self> {
        const { assert!(N > 0) };
        let heads = array::from_fn(|_| bindings::list_head {
            next: ptr::null_mut(),
            prev: ptr::null_mut(),
        });
        let lists = SockLists {
            heads: KBox::new(UnsafeCell::new(heads), flags)?,
            _sockets: PhantomData,
        };
        for list in 0..N {
            // SAFETY: The heads have their own box, so they do not move.
            unsafe { bindings::INIT_LIST_HEAD(lists.head(list)) };
        }
        Ok(lists)
    }

    /// Returns the head of the list `list`, or of the last list if `list` is out of range. All
    /// heads are initialised.
    #[inline]
    fn head(&self, list: usize) -> *mut bindings::list_head {
        let first = self.heads.get().cast::<bindings::list_head>();
        first.wrapping_add(list.min(N - 1))
    }

    /// Returns the `owner` of a socket that belongs to these lists.
    #[inline]
    fn owner(&self) -> *mut bindings::list_head {
        self.head(0)
    }

    /// Makes the socket belong to these lists, with a slot. Returns `false` if the socket already
    /// belongs to these or other lists.
    pub(crate) fn admit(&mut self, sock: &Sock<P>, slot: L::Slot) -> bool {
        let links = L::of(sock);
        let won = links
            .owner
            .compare_exchange(ptr::null_mut(), self.owner(), Acquire, Relaxed)
            .is_ok();
        if won {
            // SAFETY: From now on the socket belongs to these lists, which are borrowed
            // exclusively.
            unsafe { *links.slot.get() = slot };
        }
        won
    }

    /// Returns the socket's links, if the socket belongs to these lists.
    #[inline]
    fn own<'a>(&self, sock: &'a Sock<P>) -> Option<&'a Links<P, L>> {
        let links = L::of(sock);
        (links.owner.load(Relaxed) == self.owner()).then_some(links)
    }

    /// Returns the slot of a socket that belongs to these lists.
    #[inline]
    pub(crate) fn slot<'a>(&'a mut self, sock: &'a Sock<P>) -> Option<&'a mut L::Slot> {
        let links = self.own(sock)?;
        // SAFETY: The socket belongs to these lists, which are borrowed exclusively for `'a`.
        Some(unsafe { &mut *links.slot.get() })
    }

    /// Appends a socket that belongs to these lists to the list `list`. Does nothing if the socket
    /// is already in a list, or if its last reference is gone.
    #[inline]
    pub(crate) fn push(&mut self, sock: &Sock<P>, list: usize) {
        let Some(links) = self.own(sock) else {
            return;
        };
        // SAFETY: The socket belongs to these lists, which are borrowed exclusively.
        let held = unsafe { &mut *links.held.get() };
        if held.is_some() {
            return;
        }
        *held = sock.try_hold();
        if held.is_some() {
            // SAFETY: `held` was empty, so the node is in no list. The reference in `held` keeps
            // the node valid. The head is initialised.
            unsafe { bindings::list_add_tail(links.node.get(), self.head(list)) };
        }
    }

    /// Removes the first socket of the list `list`. The socket still belongs to these lists.
    #[inline]
    pub(crate) fn pop(&mut self, list: usize) -> Option<SockRef<P>> {
        let head = self.head(list);
        // SAFETY: The head is initialised. By the invariant, each node in the list is the first
        // field of a socket's `Links`.
        let links = unsafe {
            if bindings::list_empty(head) {
                return None;
            }
            &*(*head).next.cast::<Links<P, L>>()
        };
        self.unlink(links)
    }

    /// Removes a socket from the list that it is in. The socket still belongs to these lists.
    /// Returns `None` if the socket is in no list.
    #[inline]
    pub(crate) fn remove(&mut self, sock: &Sock<P>) -> Option<SockRef<P>> {
        let links = self.own(sock)?;
        self.unlink(links)
    }

    /// Makes the socket belong to no lists. Returns the list's reference to the socket, if the
    /// socket was in a list.
    pub(crate) fn dismiss(&mut self, sock: &Sock<P>) -> Option<SockRef<P>> {
        let links = self.own(sock)?;
        let held = self.unlink(links);
        links.owner.store(ptr::null_mut(), Release);
        held
    }

    fn unlink(&mut self, links: &Links<P, L>) -> Option<SockRef<P>> {
        // SAFETY: The socket belongs to these lists, which are borrowed exclusively.
        let held = unsafe { (*links.held.get()).take() }?;
        // SAFETY: A socket was held, so the node is in one of these lists.
        unsafe { bindings::list_del(links.node.get()) };
        Some(held)
    }
}

impl<P: Protocol, const N: usize, L: Link<P>> Drop for SockLists<P, N, L> {
    fn drop(&mut self) {
        // Sockets may still belong to these lists, but none is in a list after this, so no node
        // points to a head.
        for list in 0..N {
            while self.pop(list).is_some() {}
        }
    }
}
