// SPDX-License-Identifier: GPL-2.0

//! Sockets that stand in line: first in, first out, and out of the middle when they go.
//!
//! The links are in the sockets, so nothing is allocated and every operation takes the same few
//! instructions. A socket that stands in line is held.
//!
//! C header: [`include/linux/list.h`](srctree/include/linux/list.h)

use super::{
    bindings,
    sock::{Protocol, Sock, SockRef},
};
use crate::net::errno::prelude::*;
use core::{
    cell::UnsafeCell,
    ptr,
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

/// A protocol whose sockets can stand in line.
pub(crate) trait Lined: Protocol {
    /// What a line knows of a socket that belongs to it.
    type Ticket: Default + 'static;

    /// The socket's place, the same at every call.
    fn place(shared: &Self::Shared) -> &Place<Self>;
}

/// A socket's link and ticket. It belongs to one line at most, and only that one looks inside.
#[repr(C)]
pub(crate) struct Place<P: Lined> {
    /// Linked while `held` is a socket.
    node: UnsafeCell<bindings::list_head>,
    /// The head of the line that the place belongs to, or null.
    line: AtomicPtr<bindings::list_head>,
    /// The reference of a socket that stands in line.
    held: UnsafeCell<Option<SockRef<P>>>,
    ticket: UnsafeCell<P::Ticket>,
}

// SAFETY: All but `line`, which is atomic, is used only by the line that `line` names, through an
// exclusive reference to it.
unsafe impl<P: Lined> Sync for Place<P> {}

impl<P: Lined> Default for Place<P> {
    fn default() -> Self {
        Place {
            node: UnsafeCell::new(bindings::list_head {
                next: ptr::null_mut(),
                prev: ptr::null_mut(),
            }),
            line: AtomicPtr::new(ptr::null_mut()),
            held: UnsafeCell::new(None),
            ticket: UnsafeCell::default(),
        }
    }
}

/// A line of sockets. Whoever has it guards it by a lock.
///
/// # Invariants
///
/// The nodes in the list are those of places whose `line` is this list's head and whose `held` is a
/// socket; each place is in memory as long as that reference.
pub(crate) struct Line<P: Lined> {
    head: KBox<UnsafeCell<bindings::list_head>>,
    _sockets: core::marker::PhantomData<SockRef<P>>,
}

// SAFETY: The list is reached through exclusive references only, from any processor.
unsafe impl<P: Lined> Send for Line<P> {}

impl<P: Lined> Line<P> {
    /// An empty line, made where the caller may not sleep.
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
        Ok(Line {
            head,
            _sockets: core::marker::PhantomData,
        })
    }

    /// Makes the socket belong to this line, with a new ticket, unless it belongs to one already.
    /// The caller has the socket locked.
    pub(crate) fn admit(&mut self, sock: &Sock<P>) {
        let place = P::place(sock.shared());
        if place.line.load(Relaxed).is_null() {
            // SAFETY: The place belongs to no line, so nobody looks at its ticket; the caller's
            // lock keeps others from admitting it at this moment.
            unsafe { *place.ticket.get() = P::Ticket::default() };
            place.line.store(self.head.get(), Relaxed);
        }
    }

    /// The socket's place, if it belongs to this line.
    #[inline]
    fn own<'a>(&self, sock: &'a Sock<P>) -> Option<&'a Place<P>> {
        let place = P::place(sock.shared());
        (place.line.load(Relaxed) == self.head.get()).then_some(place)
    }

    /// The ticket of a socket that belongs to this line.
    #[inline]
    pub(crate) fn ticket<'a>(&'a mut self, sock: &'a Sock<P>) -> Option<&'a mut P::Ticket> {
        let place = self.own(sock)?;
        // SAFETY: The place is this line's, and the line is borrowed exclusively for as long.
        Some(unsafe { &mut *place.ticket.get() })
    }

    /// Puts a socket that belongs to the line at its end, unless it stands there already.
    #[inline]
    pub(crate) fn push(&mut self, sock: &Sock<P>) {
        let Some(place) = self.own(sock) else {
            return;
        };
        // SAFETY: The place is this line's, which is borrowed exclusively.
        let held = unsafe { &mut *place.held.get() };
        if held.is_none() {
            *held = Some(sock.hold());
            // SAFETY: The node is in no list, since `held` was empty, and stays in memory with the
            // reference; the head is initialised.
            unsafe { bindings::list_add_tail(place.node.get(), self.head.get()) };
        }
    }

    /// Takes the first socket out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<SockRef<P>> {
        // SAFETY: The head is initialised, and by the invariant its nodes are in places, whose
        // first field they are.
        let place = unsafe {
            if bindings::list_empty(self.head.get()) {
                return None;
            }
            &*(*self.head.get()).next.cast::<Place<P>>()
        };
        self.unlink(place)
    }

    /// Takes a socket out wherever it stands; none if it does not.
    #[inline]
    pub(crate) fn remove(&mut self, sock: &Sock<P>) -> Option<SockRef<P>> {
        let place = self.own(sock)?;
        self.unlink(place)
    }

    /// The socket belongs to this line no more; its reference, if it stood in it. The caller has
    /// the socket locked.
    pub(crate) fn dismiss(&mut self, sock: &Sock<P>) -> Option<SockRef<P>> {
        let place = self.own(sock)?;
        let held = self.unlink(place);
        place.line.store(ptr::null_mut(), Relaxed);
        held
    }

    fn unlink(&mut self, place: &Place<P>) -> Option<SockRef<P>> {
        // SAFETY: The place is this line's, which is borrowed exclusively.
        let held = unsafe { (*place.held.get()).take() }?;
        // SAFETY: A socket was held, so the node is in this list.
        unsafe { bindings::list_del(place.node.get()) };
        Some(held)
    }
}
