// SPDX-License-Identifier: GPL-2.0

//! The last reference to a socket is dropped while the socket is locked, so unlocking would write
//! to freed memory.

use crate::net::sock::{Protocol, SockRef};

fn release_while_locked<P: Protocol>(sock: SockRef<P>) {
    let guard = sock.lock();
    #[cfg(misuse)]
    drop(sock); //~ E0505
    drop(guard);
}
