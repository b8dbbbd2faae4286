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
    cell::UnsafeCell,
    marker::PhantomData,
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// A socket's links and slot. It belongs to one list at most, and only that one looks inside.
#[repr(C)]
pub(super) struct Links<P: Protocol> {
    /// Linked while `held` is a socket.
    node: UnsafeCell<bindings::list_head>,
    /// The head of the list that the socket belongs to, or null.
    owner: AtomicPtr<bindings::list_head>,
    /// The reference of a socket that is in the list.
    held: UnsafeCell<Option<SockRef<P>>>,
    slot: UnsafeCell<P::Slot>,
}

impl<P: Protocol> Default for Links<P> {
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

/// A list of sockets, guarded by whatever guards the value.
///
/// # Invariants
///
/// The nodes in the list are those of sockets whose `owner` is this list's head and whose `held` is
/// the socket itself: each is in memory as long as that reference. Of a socket whose `owner` is this
/// list's head, all other links are used through an exclusive reference to this list only.
pub(crate) struct SockList<P: Protocol> {
    head: KBox<UnsafeCell<bindings::list_head>>,
    _sockets: PhantomData<SockRef<P>>,
}

// SAFETY: The list, and the slots of its sockets, which are `Send`, are reached through exclusive
// references only, from any processor.
unsafe impl<P: Protocol> Send for SockList<P> {}

impl<P: Protocol> SockList<P> {
    /// An empty list, made in a context that may not sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new_atomic() -> Result<Self> {
        let head = bindings::list_head {
            next: ptr::null_mut(),
            prev: ptr::null_mut(),
        };
        let head = KBox::new(UnsafeCell::new(head), GFP_ATOMIC)?;
        // SAFETY: In a box of its own the head does not move.
        unsafe { bindings::INIT_LIST_HEAD(head.get()) };
        Ok(SockList {
            head,
            _sockets: PhantomData,
        })
    }

    /// Makes the socket belong to this list, with a new slot. `false` if it belongs to one already.
    pub(crate) fn admit(&mut self, sock: &Sock<P>) -> bool {
        let links = &sock.links;
        let won = links
            .owner
            .compare_exchange(ptr::null_mut(), self.head.get(), Acquire, Relaxed)
            .is_ok();
        if won {
            // SAFETY: The socket belongs to this list from now on, which is borrowed exclusively.
            unsafe { *links.slot.get() = P::Slot::default() };
        }
        won
    }

    /// The socket's links, if it belongs to this list.
    #[inline]
    fn own<'a>(&self, sock: &'a Sock<P>) -> Option<&'a Links<P>> {
        let links = &sock.links;
        (links.owner.load(Relaxed) == self.head.get()).then_some(links)
    }

    /// The slot of a socket that belongs to this list.
    #[inline]
    pub(crate) fn slot<'a>(&'a mut self, sock: &'a Sock<P>) -> Option<&'a mut P::Slot> {
        let links = self.own(sock)?;
        // SAFETY: The socket is this list's, which is borrowed exclusively for as long.
        Some(unsafe { &mut *links.slot.get() })
    }

    /// Appends a socket that belongs to the list, unless it is in it already, or its last reference is
    /// gone.
    #[inline]
    pub(crate) fn push(&mut self, sock: &Sock<P>) {
        let Some(links) = self.own(sock) else {
            return;
        };
        // SAFETY: The socket is this list's, which is borrowed exclusively.
        let held = unsafe { &mut *links.held.get() };
        if held.is_some() {
            return;
        }
        *held = sock.try_hold();
        if held.is_some() {
            // SAFETY: The node is in no list, since `held` was empty, and stays in memory with the
            // reference; the head is initialised.
            unsafe { bindings::list_add_tail(links.node.get(), self.head.get()) };
        }
    }

    /// Takes the first socket out of the list, to which it still belongs.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<SockRef<P>> {
        // SAFETY: The head is initialised, and by the invariant its nodes are in the links of sockets,
        // whose first field they are.
        let links = unsafe {
            if bindings::list_empty(self.head.get()) {
                return None;
            }
            &*(*self.head.get()).next.cast::<Links<P>>()
        };
        self.unlink(links)
    }

    /// Takes a socket out wherever it is, to go on belonging to the list; `None` if it is not in it.
    #[inline]
    pub(crate) fn remove(&mut self, sock: &Sock<P>) -> Option<SockRef<P>> {
        let links = self.own(sock)?;
        self.unlink(links)
    }

    /// Ends that the socket belongs to this list. Returns its reference, if it was in it.
    pub(crate) fn dismiss(&mut self, sock: &Sock<P>) -> Option<SockRef<P>> {
        let links = self.own(sock)?;
        let held = self.unlink(links);
        links.owner.store(ptr::null_mut(), Release);
        held
    }

    fn unlink(&mut self, links: &Links<P>) -> Option<SockRef<P>> {
        // SAFETY: The socket is this list's, which is borrowed exclusively.
        let held = unsafe { (*links.held.get()).take() }?;
        // SAFETY: A socket was held, so the node is in this list.
        unsafe { bindings::list_del(links.node.get()) };
        Some(held)
    }
}

impl<P: Protocol> Drop for SockList<P> {
    fn drop(&mut self) {
        // A socket that still belongs to the list is not linked after this: nothing points to the head.
        while self.pop().is_some() {}
    }
}
