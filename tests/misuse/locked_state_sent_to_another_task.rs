// SPDX-License-Identifier: GPL-2.0

//! The data that a lock protects are sent to another task while the sending task holds the lock.

use crate::net::sock::{Protocol, Sock};

fn send<T: Send>(_: &T) {}

fn lend_elsewhere<P: Protocol>(sock: &Sock<P>) {
    let mut guard = sock.lock();
    let locked = guard.locked();
    #[cfg(misuse)]
    send(&locked); //~ E0277
    drop(locked);
}
