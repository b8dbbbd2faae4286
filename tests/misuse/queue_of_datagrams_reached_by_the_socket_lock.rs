// SPDX-License-Identifier: GPL-2.0

//! The receive queue of a datagram socket is accessed through the socket lock, although the queue
//! has a lock of its own.

use crate::net::sock::{Datagram, Protocol, Sock};

fn read<P: Protocol<Kind = Datagram>>(sock: &Sock<P>) {
    let mut guard = sock.lock();
    let mut _locked = guard.locked();
    #[cfg(misuse)]
    let _ = _locked.receive_queue().first(); //~ E0599
}
