// SPDX-License-Identifier: GPL-2.0

//! The state stays borrowed while the packets of the backlog are processed, although they change
//! the state.

use crate::net::sock::{Protocol, Sock};

fn flush_under_a_borrow<P: Protocol>(sock: &Sock<P>) {
    let mut guard = sock.lock();
    let locked = guard.locked();
    #[cfg(misuse)]
    guard.flush_backlog(); //~ E0499
    drop(locked);
}
