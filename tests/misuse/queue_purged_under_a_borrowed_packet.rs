// SPDX-License-Identifier: GPL-2.0

//! A queue is purged while one of its packets is borrowed.

use crate::net::sock::{Protocol, Sock, Stream};

fn purge_too_early<P: Protocol<Kind = Stream>>(sock: &Sock<P>) {
    let mut guard = sock.lock();
    let mut locked = guard.locked();
    let queue = locked.receive_queue();
    let first = queue.first();
    #[cfg(misuse)]
    queue.purge(); //~ E0502
    drop(first);
}
