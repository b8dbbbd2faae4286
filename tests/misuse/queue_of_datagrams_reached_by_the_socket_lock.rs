// SPDX-License-Identifier: GPL-2.0

//! A datagram socket's queue, which has a lock of its own, is reached through the socket lock.

use crate::net::sock::{Datagram, Protocol, Sock};

fn read<P: Protocol<Kind = Datagram>>(sock: &Sock<P>) {
    let mut guard = sock.lock();
    let mut _locked = guard.locked();
    #[cfg(misuse)]
    let _ = _locked.receive_queue().first(); //~ E0599
}
