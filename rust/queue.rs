// SPDX-License-Identifier: GPL-2.0

//! The queue of received buffers that the core gives every socket (`sk_receive_queue`), and a
//! second queue of this module for out-of-order buffers (TCP: `out_of_order_queue`).
//!
//! The socket lock guards a stream's queue, which is reached through
//! [`Locked::receive_queue`](super::sock::Locked::receive_queue). A datagram socket's queue has its
//! own lock, which the core's functions take: see [`super::datagram`].
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use super::{
    bindings,
    skb::{Buffer, Skb},
    sock::RawSock,
};
use core::{
    marker::{PhantomData, PhantomPinned},
    ptr,
};

/// A queue of received buffers, borrowed from the lock that guards it.
///
/// Like [`Buffer`], the type has no size in Rust, so a `&mut Queue` cannot be used to move one
/// queue into the place of another.
///
/// # Invariants
///
/// The list is part of a valid socket. Its buffers are charged to that socket's receive memory.
#[repr(C)]
pub(crate) struct Queue {
    _opaque: [u8; 0],
    /// Makes the type neither `Send`, `Sync` nor `Unpin`.
    _marker: PhantomData<(*mut bindings::sk_buff_head, PhantomPinned)>,
}

/// Returns whether the list at `head` is empty.
///
/// # Safety
///
/// `head` is a valid list. A lock need not be held, since `next` is read in one load.
#[inline]
pub(super) unsafe fn is_empty(head: *mut bindings::sk_buff_head) -> bool {
    // SAFETY: By the caller's promise, `head` is valid. The head of an empty list points to itself.
    unsafe {
        let next = ptr::addr_of!((*head).__bindgen_anon_1.__bindgen_anon_1.next);
        ptr::read_volatile(next) == head.cast()
    }
}

impl Queue {
    /// # Safety
    ///
    /// `head` is the receive queue of a valid socket, and no one else uses it for as long as `'a`.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(head: *mut bindings::sk_buff_head) -> &'a mut Queue {
        // SAFETY: `Queue` has no size, and the address is aligned and not null.
        unsafe { &mut *head.cast() }
    }

    #[inline]
    fn list(&self) -> *mut bindings::sk_buff_head {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns the head, which closes the ring of buffers and has the same links as a buffer.
    #[inline]
    fn head(&self) -> *mut bindings::sk_buff {
        self.list().cast()
    }

    #[inline]
    fn next(&self, skb: *mut bindings::sk_buff) -> Option<*mut bindings::sk_buff> {
        // SAFETY: `skb` is always the head or a buffer of this queue, which stays in the queue
        // during the borrow.
        let next = unsafe { (*skb).__bindgen_anon_1.__bindgen_anon_1.next };
        (next != self.head()).then_some(next)
    }

    /// Returns the buffers, from the head on.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Buffer> {
        let mut place = self.next(self.head());
        core::iter::from_fn(move || {
            let skb = place?;
            place = self.next(skb);
            // SAFETY: The buffer is in the queue, which does not change while it is borrowed.
            Some(unsafe { Buffer::from_raw(skb) })
        })
    }

    /// Returns the buffer at the head.
    #[inline]
    pub(crate) fn first(&self) -> Option<&Buffer> {
        let skb = self.next(self.head())?;
        // SAFETY: The buffer is in the queue, which is borrowed, so the buffer stays there
        // unchanged.
        Some(unsafe { Buffer::from_raw(skb) })
    }

    /// Returns the buffer at the head, for writing.
    #[inline]
    pub(crate) fn first_mut(&mut self) -> Option<&mut Buffer> {
        let skb = self.next(self.head())?;
        // SAFETY: The buffer is in the queue, which is borrowed exclusively.
        Some(unsafe { Buffer::from_raw_mut(skb) })
    }

    /// Returns the buffer at the tail, for writing.
    #[inline]
    pub(crate) fn last_mut(&mut self) -> Option<&mut Buffer> {
        // SAFETY: `prev` of the head is the last buffer of the queue, or the head itself. The queue
        // is borrowed exclusively.
        unsafe {
            let last = (*self.head()).__bindgen_anon_1.__bindgen_anon_1.prev;
            (last != self.head()).then(|| Buffer::from_raw_mut(last))
        }
    }

    /// Appends a buffer, and charges it to the receive memory of `sock`.
    ///
    /// # Safety
    ///
    /// The queue belongs to `sock`.
    #[inline]
    pub(super) unsafe fn push(&mut self, sock: &RawSock, skb: Skb) {
        let raw = skb.into_raw();
        // SAFETY: The queue, which is borrowed exclusively, takes over the reference. The buffer is
        // charged to `sock`, which purges this queue before its memory is freed.
        unsafe { bindings::skb_queue_owned(self.list(), raw, sock.as_ptr()) };
    }

    /// Inserts a buffer after the last queued buffer for which `follows` returns true, or else at
    /// the head. Charges the buffer to the receive memory of `sock`.
    ///
    /// # Safety
    ///
    /// The queue belongs to `sock`.
    pub(super) unsafe fn insert(
        &mut self,
        sock: &RawSock,
        skb: Skb,
        follows: impl Fn(&Buffer) -> bool,
    ) {
        let head = self.head();
        let before = |skb: *mut bindings::sk_buff| {
            // SAFETY: The head and the buffers form a ring. The queue is borrowed exclusively.
            unsafe { (*skb).__bindgen_anon_1.__bindgen_anon_1.prev }
        };
        let mut place = before(head);
        // SAFETY: `place` is not the head, so it is a buffer of this queue.
        while place != head && !follows(unsafe { Buffer::from_raw(place) }) {
            place = before(place);
        }
        let raw = skb.into_raw();
        // SAFETY: `place` is in the ring. The queue, which is borrowed exclusively, takes over the
        // reference. The buffer is charged to `sock`, which purges this queue before its memory is
        // freed.
        unsafe { bindings::skb_queue_owned_after(self.list(), place, raw, sock.as_ptr()) };
    }

    /// Removes the buffer at the head and uncharges it.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Skb> {
        // SAFETY: The queue is borrowed exclusively. The function returns null, or a buffer with
        // the queue's reference, which becomes ours. The buffer may outlive the socket, since it is
        // no longer charged.
        unsafe { Skb::from_raw(bindings::skb_dequeue_owned(self.list())) }
    }

    /// Returns whether the queue is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// Frees all queued buffers.
    pub(crate) fn purge(&mut self) {
        while let Some(skb) = self.pop() {
            skb.purge();
        }
    }
}
