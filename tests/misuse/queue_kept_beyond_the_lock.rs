// SPDX-License-Identifier: GPL-2.0

//! The queue of a stream is used after the socket was unlocked.

use crate::net::queue::Queue;
use crate::net::sock::{Protocol, Sock, Stream};

fn unlock_too_early<P: Protocol<Kind = Stream>>(sock: &Sock<P>) {
    let mut guard = sock.lock();
    let mut locked = guard.locked();
    let queue = locked.receive_queue();
    #[cfg(misuse)]
    drop(guard); //~ E0505
    drop::<&mut Queue>(queue);
}
