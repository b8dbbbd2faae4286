// SPDX-License-Identifier: GPL-2.0

//! A reference is made from a borrowed socket, but the socket's reference count is not raised.
//! Dropping the reference then frees the socket early.

use crate::net::sock::{Protocol, Sock, SockRef};
use core::ptr::NonNull;

fn make_up<P: Protocol>(sock: &Sock<P>) {
    drop::<NonNull<Sock<P>>>(sock.into());
    #[cfg(misuse)]
    drop(SockRef(NonNull::from(sock))); //~ E0423
}
