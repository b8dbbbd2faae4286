// SPDX-License-Identifier: GPL-2.0

//! The queue of a stream is read with no lock held.

use crate::net::sock::{Protocol, Sock, Stream};

fn read<P: Protocol<Kind = Stream>>(sock: &Sock<P>) {
    let mut guard = sock.lock();
    let _ = guard.locked().receive_queue().first();
    drop(guard);
    #[cfg(misuse)]
    let _ = sock.receive_queue().first(); //~ E0599
}
