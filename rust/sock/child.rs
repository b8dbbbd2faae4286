// SPDX-License-Identifier: GPL-2.0

//! Children of listening sockets.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h) (`sk_clone`)

use super::{Locked, Protocol, Sock, SockRef};
use crate::net::{allocation::Context, bindings, softirq::Softirq};
use core::ptr::NonNull;
use kernel::types::NotThreadSafe;

/// A child created from a listener. The child is locked until this value is dropped. By then there
/// must be another reference to the child.
pub(crate) struct NewChild<P: Protocol> {
    sock: SockRef<P>,
    _held: NotThreadSafe,
}

impl<P: Protocol> NewChild<P> {
    /// Creates a child that copies the listener's options and has its own `shared` and a new
    /// state.
    pub(crate) fn spawn(
        listener: &mut Locked<'_, P>,
        shared: P::Shared,
        _softirq: Softirq<'_>,
    ) -> Option<Self> {
        let listener = listener.sock().as_ptr();
        // SAFETY: The listener is locked. The function returns the copy with its lock held.
        let sk = unsafe { bindings::sk_clone(listener, Context::Softirq.gfp(), true) };
        let sk = NonNull::new(sk)?.as_ptr();
        // SAFETY: `sk` is a new socket to which no one else has a reference. It is a byte copy of
        // the listener. The listener still owns everything to which the copied parts refer, so
        // `init` overwrites these parts without dropping them. The child is in no table.
        unsafe {
            Sock::<P>::init(sk, shared);
            (*sk).sk_ack_backlog = 0;
            (*sk).sk_max_ack_backlog = 0;
            (*sk).sk_shutdown = 0;
            // A program identifies a socket by its cookie, so the copied cookie is cleared. The
            // child gets its own when a program asks for the cookie.
            (*sk).__sk_common.skc_cookie.counter = 0;
            // The copied pointer to the listener's front is cleared, since the child has no
            // reference to the front.
            bindings::sk_forget_front(sk);
        }
        // SAFETY: `sk_clone` made two references, one for us and one for a descriptor. The child
        // has no descriptor yet, so the descriptor's reference is dropped.
        let sock = unsafe {
            bindings::sock_put(sk);
            SockRef::from_raw(sk)
        };
        Some(NewChild {
            sock,
            _held: NotThreadSafe,
        })
    }

    /// Returns everything that the child's lock guards.
    pub(crate) fn locked(&mut self) -> Locked<'_, P> {
        // SAFETY: `sk_clone` locked the child, and no task owns it.
        unsafe { self.sock.assume_locked() }
    }
}

impl<P: Protocol> Drop for NewChild<P> {
    fn drop(&mut self) {
        // SAFETY: `sk_clone` locked the child. The child is alive during this call, since the
        // reference of `self.sock` is released only after `drop` returns.
        unsafe { bindings::bh_unlock_sock(self.sock.as_ptr()) };
    }
}
