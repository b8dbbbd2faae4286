// SPDX-License-Identifier: GPL-2.0

//! The data that the socket lock protects are borrowed twice at the same time.

use crate::net::sock::{Protocol, Sock};

fn borrow_twice<P: Protocol>(sock: &Sock<P>) {
    let mut guard = sock.lock();
    let one = guard.locked();
    #[cfg(misuse)]
    let _other = guard.locked(); //~ E0499
    drop(one);
}
