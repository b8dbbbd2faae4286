// SPDX-License-Identifier: GPL-2.0

//! The networking core's functions for datagram sockets: charged buffers, the receive queue,
//! readiness. These functions take the queue's own lock.
//!
//! C headers: [`include/net/sock.h`](srctree/include/net/sock.h),
//! [`net/core/datagram.c`](srctree/net/core/datagram.c)

use super::{
    bindings,
    family::Call,
    skb::{Buffer, Skb},
    sock::{field, Datagram, Protocol, Sock},
    trace::DropReason,
    uapi,
};
use crate::net::errno::prelude::*;
use core::{marker::PhantomData, mem, ops::Deref, ptr::NonNull};
use kernel::ffi::c_int;

/// A received datagram, for the duration of a receive call. The module only reads the datagram,
/// since after `MSG_PEEK` it also stays in the receive queue.
///
/// # Invariants
///
/// The pointer is a valid buffer, and this value holds one reference to it. The buffer may be
/// charged to a socket, which stays valid for `'a`.
pub(crate) struct Received<'a>(NonNull<bindings::sk_buff>, PhantomData<&'a ()>);

impl Received<'_> {
    /// Frees the datagram as consumed, not as dropped.
    pub(crate) fn consume(self) {
        let raw = self.0.as_ptr();
        mem::forget(self);
        // SAFETY: The function takes over our reference.
        unsafe { bindings::consume_skb(raw) };
    }
}

impl Deref for Received<'_> {
    type Target = Buffer;

    #[inline]
    fn deref(&self) -> &Buffer {
        // SAFETY: By the type's invariant, the buffer is valid. Other holders of a reference to it
        // also only read it.
        unsafe { Buffer::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for Received<'_> {
    fn drop(&mut self) {
        // SAFETY: The function takes over the reference that the value held.
        unsafe { bindings::kfree_skb(self.0.as_ptr()) };
    }
}

impl<P: Protocol<Kind = Datagram>> Sock<P> {
    /// Allocates a buffer for `size` bytes of data after `headroom`, charged to the send buffer
    /// until the device has sent it. Waits for room unless `nonblocking`.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the send buffer is full, `EPIPE` after shutdown, `ENOBUFS` if there is no
    /// memory. `EINTR` and `ERESTARTSYS` after a signal, `ENODEV` while the module is unloaded. The
    /// socket's own pending error.
    #[inline]
    pub(crate) fn alloc_send(
        &self,
        headroom: usize,
        size: usize,
        nonblocking: bool,
    ) -> Result<Skb> {
        if !P::vtable().pin(self) {
            return Err(ENODEV);
        }
        let free = !self.has_error()
            && self.shutdown() & uapi::SEND_SHUTDOWN == 0
            && self.in_devices() < self.send_limit();
        if let Some(skb) = free
            .then(|| Skb::alloc_charged(self, headroom, size))
            .flatten()
        {
            // SAFETY: The buffer is ours. The socket is borrowed, so it is valid, and its memory is
            // freed only after the buffers that it owns.
            unsafe { bindings::skb_set_owner_w(skb.as_ptr(), self.as_ptr()) };
            return Ok(skb);
        }
        let mut code: c_int = 0;
        // SAFETY: A send call, in process context, calls this. After success the buffer is ours.
        unsafe {
            let skb = bindings::sock_alloc_send_pskb(
                self.as_ptr(),
                headroom.saturating_add(size),
                0,
                nonblocking.into(),
                &mut code,
                0,
            );
            match Skb::from_raw(skb) {
                Some(skb) => {
                    skb.reserve(headroom);
                    Ok(skb)
                }
                None => Err(Error::from_errno(code)),
            }
        }
    }

    /// Queues a received datagram and wakes a reader, if the receive buffer has room. Otherwise,
    /// returns the datagram and the reason for dropping it. The core has already counted the drop.
    #[inline]
    pub(crate) fn queue_datagram(&self, skb: Skb) -> core::result::Result<(), (Skb, DropReason)> {
        let raw = skb.into_raw();
        // SAFETY: The buffer is ours. After success it belongs to the queue; after an error it is
        // still ours.
        unsafe {
            let code = bindings::__sock_queue_rcv_skb(self.as_ptr(), raw);
            if code == 0 {
                return Ok(());
            }
            let reason = if Error::from_errno(code) == ENOMEM {
                DropReason::ReceiveBuffer
            } else {
                DropReason::NoMemory
            };
            // `raw` comes from an `Skb`, so it is not null, and the default `Ok` is not used.
            Skb::from_raw(raw).map_or(Ok(()), |skb| Err((skb, reason)))
        }
    }

    /// Returns the length of the datagram at the head of the queue in bytes, for `SIOCINQ`.
    pub(crate) fn first_datagram_len(&self) -> u32 {
        // SAFETY: The queue's own lock is held, so the buffer at its head is not removed while
        // `len` is read.
        unsafe {
            let queue = field!(self, sk_receive_queue);
            let lock = core::ptr::addr_of_mut!((*queue).lock);
            bindings::spin_lock_bh(lock);
            let skb = bindings::skb_peek(queue);
            let len = if skb.is_null() { 0 } else { (*skb).len };
            bindings::spin_unlock_bh(lock);
            len
        }
    }
}

impl<P: Protocol<Kind = Datagram>> Call<'_, P> {
    /// Returns the next datagram and the offset to read it from; with `MSG_PEEK` the datagram stays
    /// queued. Returns `None` if the queue is empty after shutdown. `flags` and `SO_RCVTIMEO`
    /// determine how long the call waits.
    ///
    /// # Errors
    ///
    /// `EAGAIN`, `EINTR`, `ERESTARTSYS`, and the socket's own pending error.
    #[inline]
    pub(crate) fn next_datagram(&self, flags: c_int) -> Result<Option<(Received<'_>, usize)>> {
        let mut code: c_int = 0;
        let mut offset: c_int = if flags & uapi::MSG_PEEK != 0 {
            // -1 means that no offset is set. With an offset of 0 or more, `__skb_recv_datagram`
            // skips empty datagrams that an earlier call has peeked at.
            self.peek_offset().map_or(-1, |offset| offset as c_int)
        } else {
            0
        };
        // SAFETY: A receive call, in process context, calls this.
        let skb = unsafe {
            bindings::__skb_recv_datagram(
                self.as_ptr(),
                field!(self, sk_receive_queue),
                flags as u32,
                &mut offset,
                &mut code,
            )
        };
        // INVARIANT: `skb` is null or carries a reference, which the new `Received` takes over. The
        // call outlives that `Received`.
        match NonNull::new(skb) {
            Some(skb) => Ok(Some((Received(skb, PhantomData), offset.max(0) as usize))),
            None if code == 0 => Ok(None),
            None => Err(Error::from_errno(code)),
        }
    }

    /// Returns the readiness of a datagram socket, as `EPOLL*`.
    pub(crate) fn datagram_readiness(&self) -> u32 {
        let mut ready = self.error_readiness();
        // Only datagram sockets respect `SO_SELECT_ERR_QUEUE`; TCP ignores this option.
        if self.has_flag(bindings::sock_flags_SOCK_SELECT_ERR_QUEUE) && self.has_reports() {
            ready |= uapi::EPOLLPRI;
        }
        let shutdown = self.shutdown();
        if shutdown & uapi::RCV_SHUTDOWN != 0 {
            ready |= uapi::EPOLLRDHUP | uapi::EPOLLIN | uapi::EPOLLRDNORM;
        }
        if shutdown == uapi::SHUTDOWN_MASK {
            ready |= uapi::EPOLLHUP;
        }
        if !self.receives_nothing() {
            ready |= uapi::EPOLLIN | uapi::EPOLLRDNORM;
        }
        if self.in_devices() < self.send_limit() / 2 {
            ready |= uapi::EPOLLOUT | uapi::EPOLLWRNORM | uapi::EPOLLWRBAND;
        } else {
            self.want_write_space();
        }
        ready
    }
}
