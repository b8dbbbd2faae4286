// SPDX-License-Identifier: GPL-2.0

//! A socket is unlocked by a task that did not lock it.

use crate::net::sock::{Protocol, SockRef};

fn send<T: Send>(_: &T) {}

fn unlock_elsewhere<P: Protocol>(sock: SockRef<P>) {
    send(&sock);
    let guard = sock.lock();
    #[cfg(misuse)]
    send(&guard); //~ E0277
    drop(guard);
}
