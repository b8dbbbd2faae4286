// SPDX-License-Identifier: GPL-2.0

//! Tells kernel code that listens on a TCP socket of a connection that the socket's companion has
//! accepted.
//!
//! Kernel code sets the callback `sk_state_change` of its listener. Each of TCP's new sockets
//! inherits this callback and `sk_user_data`. When the socket's connection is established, TCP
//! calls the callback with the new socket. A companion's connection has no TCP socket before
//! `accept`. So this module calls the callback with a *bell*, a socket without a connection. During
//! the call, the bell has the listener's `sk_user_data` and the state of an established connection.
//! The bell is no TCP socket, and the callback must not keep it.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use super::*;
use crate::net::{bh_lock::BhLock, sock::TcpState};

/// The bell of a listener of kernel code.
pub(crate) struct Bell<P: Operations>(BhLock<SockRef<P>>);

impl<P: Operations> Bell<P> {
    /// Calls the callback of the TCP listener in front of `listener`, for a new connection. Does
    /// nothing if that listener has closed.
    ///
    /// The listener is closed under its callback lock, after its state has changed. So kernel code
    /// that has closed its listener is not called any more.
    pub(crate) fn ring(&self, listener: &Sock<P>) {
        let Some(front) = listener.tcp_front() else {
            return;
        };
        let bell = self.0.lock();
        let (front, sk) = (front.as_ptr(), bell.as_ptr());
        // SAFETY: Both sockets are valid. While the callback lock is held and the listener is open,
        // the callback and what `sk_user_data` points to are valid. The bell's lock is held, so no
        // one else uses the bell, and its fields are as before when the lock is released.
        unsafe {
            bindings::sk_lock_callbacks(front);
            if RawSock::from_raw(front).tcp_state() == TcpState::Listen as u8 {
                (*sk).sk_user_data = bindings::sk_inherited_user(front);
                (*sk).__sk_common.skc_state = TcpState::Established as u8;
                if let Some(change) = (*front).sk_state_change {
                    change(sk);
                }
                (*sk).__sk_common.skc_state = TcpState::Close as u8;
                (*sk).sk_user_data = ptr::null_mut();
            }
            bindings::sk_unlock_callbacks(front);
        }
    }
}

impl<M: Streams> StreamCall<'_, M> {
    /// Returns a new bell for the descriptor, made of a socket with the part `shared`. Returns
    /// `None` if the descriptor is a program's.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` or `ENOMEM` if there is no memory.
    pub(crate) fn bell(
        &self,
        shared: <M::Protocol as Protocol>::Shared,
    ) -> Result<Option<Bell<M::Protocol>>> {
        if !self.is_kernels() {
            return Ok(None);
        }
        let sock = without_descriptor::<M::Protocol>(self.sock(), 0, shared)?;
        let lock = BhLock::new(sock, kernel::static_lock_class!())?;
        Ok(Some(Bell(lock)))
    }

    /// Returns whether the descriptor is one of kernel code, and not a program's.
    pub(super) fn is_kernels(&self) -> bool {
        // SAFETY: The socket is valid, and the field never changes.
        unsafe { bindings::sk_is_kernels(self.sock().as_ptr()) }
    }
}
