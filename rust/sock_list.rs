// SPDX-License-Identifier: GPL-2.0

//! Ordered lists of sockets: first in, first out, and out of the middle when one goes.
//!
//! The links are in the sockets, so nothing is allocated and every operation takes the same few
//! instructions. A socket that is in a list is held by it.
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

/// One of the two sets of links by which a socket can be in lists: by each in those of one
/// [`SockLists`] at a time.
///
/// # Safety
///
/// [`of`](Self::of) returns a part of the socket that it is given, always the same one, and another
/// than any other set of links does.
pub(crate) unsafe trait Link<P: Protocol>: Sized + 'static {
    /// The value that lists store with a socket.
    type Slot: Default + Send;
    /// The links of a socket.
    fn of(sock: &Sock<P>) -> &Links<P, Self>;
}

/// The links of lists that store the protocol's [`Slot`](Protocol::Slot) with a socket.
pub(crate) enum SlotLink {}
/// The links of a listener's lists of its children.
pub(crate) enum ChildLink {}

// SAFETY: The field is this set's alone.
unsafe impl<P: Protocol> Link<P> for SlotLink {
    type Slot = P::Slot;

    #[inline]
    fn of(sock: &Sock<P>) -> &Links<P, Self> {
        &sock.links
    }
}

// SAFETY: The field is this set's alone.
unsafe impl<P: Protocol> Link<P> for ChildLink {
    type Slot = ();

    #[inline]
    fn of(sock: &Sock<P>) -> &Links<P, Self> {
        &sock.child_links
    }
}

/// A socket's links and slot. It belongs to one [`SockLists`] at most, and only that one looks
/// inside.
#[repr(C)]
pub(crate) struct Links<P: Protocol, L: Link<P>> {
    /// Linked while `held` is a socket.
    node: UnsafeCell<bindings::list_head>,
    /// The first head of the lists that the socket belongs to, or null.
    owner: AtomicPtr<bindings::list_head>,
    /// The reference of a socket that is in one of them.
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

/// `N` lists of sockets, each of which is in one of them at most, guarded by whatever guards the
/// value.
///
/// # Invariants
///
/// The nodes in the lists are those of sockets whose `owner` is the first head and whose `held` is
/// the socket itself: each is in memory as long as that reference. Of a socket whose `owner` is the
/// first head, all other links are used through an exclusive reference to these lists only.
pub(crate) struct SockLists<P: Protocol, const N: usize, L: Link<P> = SlotLink> {
    heads: KBox<UnsafeCell<[bindings::list_head; N]>>,
    _sockets: PhantomData<(SockRef<P>, fn() -> L)>,
}

// SAFETY: The lists, and the slots of their sockets, which are `Send`, are reached through
// exclusive references only, from any processor.
unsafe impl<P: Protocol, const N: usize, L: Link<P>> Send for SockLists<P, N, L> {}

impl<P: Protocol, const N: usize, L: Link<P>> SockLists<P, N, L> {
    /// Empty lists, charged to the memory cgroup of the calling task.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Self::with_flags(GFP_KERNEL_ACCOUNT)
    }

    /// Empty lists, made in a context that may not sleep.
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
            // SAFETY: In a box of their own the heads do not move.
            unsafe { bindings::INIT_LIST_HEAD(lists.head(list)) };
        }
        Ok(lists)
    }

    /// The head of a list; of the last one, if there are not so many. All of them are initialised.
    #[inline]
    fn head(&self, list: usize) -> *mut bindings::list_head {
        let first = self.heads.get().cast::<bindings::list_head>();
        first.wrapping_add(list.min(N - 1))
    }

    /// What the `owner` of a socket is that belongs to these lists.
    #[inline]
    fn owner(&self) -> *mut bindings::list_head {
        self.head(0)
    }

    /// Makes the socket belong to these lists, with a slot. `false` if it belongs to some already.
    pub(crate) fn admit(&mut self, sock: &Sock<P>, slot: L::Slot) -> bool {
        let links = L::of(sock);
        let won = links
            .owner
            .compare_exchange(ptr::null_mut(), self.owner(), Acquire, Relaxed)
            .is_ok();
        if won {
            // SAFETY: The socket belongs to these lists from now on, which are borrowed
            // exclusively.
            unsafe { *links.slot.get() = slot };
        }
        won
    }

    /// The socket's links, if it belongs to these lists.
    #[inline]
    fn own<'a>(&self, sock: &'a Sock<P>) -> Option<&'a Links<P, L>> {
        let links = L::of(sock);
        (links.owner.load(Relaxed) == self.owner()).then_some(links)
    }

    /// The slot of a socket that belongs to these lists.
    #[inline]
    pub(crate) fn slot<'a>(&'a mut self, sock: &'a Sock<P>) -> Option<&'a mut L::Slot> {
        let links = self.own(sock)?;
        // SAFETY: The socket is these lists', which are borrowed exclusively for as long.
        Some(unsafe { &mut *links.slot.get() })
    }

    /// Appends a socket that belongs to the lists to one of them, unless it is in one already, or
    /// its last reference is gone.
    #[inline]
    pub(crate) fn push(&mut self, sock: &Sock<P>, list: usize) {
        let Some(links) = self.own(sock) else {
            return;
        };
        // SAFETY: The socket is these lists', which are borrowed exclusively.
        let held = unsafe { &mut *links.held.get() };
        if held.is_some() {
            return;
        }
        *held = sock.try_hold();
        if held.is_some() {
            // SAFETY: The node is in no list, since `held` was empty, and stays in memory with the
            // reference; the head is initialised.
            unsafe { bindings::list_add_tail(links.node.get(), self.head(list)) };
        }
    }

    /// Takes the first socket out of a list; it still belongs to them.
    #[inline]
    pub(crate) fn pop(&mut self, list: usize) -> Option<SockRef<P>> {
        let head = self.head(list);
        // SAFETY: The head is initialised, and by the invariant its nodes are in the links of
        // sockets, whose first field they are.
        let links = unsafe {
            if bindings::list_empty(head) {
                return None;
            }
            &*(*head).next.cast::<Links<P, L>>()
        };
        self.unlink(links)
    }

    /// Takes a socket out wherever it is, to go on belonging to the lists; `None` if it is in none.
    #[inline]
    pub(crate) fn remove(&mut self, sock: &Sock<P>) -> Option<SockRef<P>> {
        let links = self.own(sock)?;
        self.unlink(links)
    }

    /// Ends that the socket belongs to these lists. Returns its reference, if it was in one.
    pub(crate) fn dismiss(&mut self, sock: &Sock<P>) -> Option<SockRef<P>> {
        let links = self.own(sock)?;
        let held = self.unlink(links);
        links.owner.store(ptr::null_mut(), Release);
        held
    }

    fn unlink(&mut self, links: &Links<P, L>) -> Option<SockRef<P>> {
        // SAFETY: The socket is these lists', which are borrowed exclusively.
        let held = unsafe { (*links.held.get()).take() }?;
        // SAFETY: A socket was held, so the node is in one of these lists.
        unsafe { bindings::list_del(links.node.get()) };
        Some(held)
    }
}

impl<P: Protocol, const N: usize, L: Link<P>> Drop for SockLists<P, N, L> {
    fn drop(&mut self) {
        // A socket that still belongs to the lists is not linked after this: nothing points to a
        // head.
        for list in 0..N {
            while self.pop(list).is_some() {}
        }
    }
}
