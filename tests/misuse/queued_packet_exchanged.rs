// SPDX-License-Identifier: GPL-2.0

//! A queued packet is replaced by an owned one, which is not linked into the list.

use crate::net::skb::{Buffer, Skb};
use crate::net::sock::{Protocol, Sock, Stream};

fn exchange<P: Protocol<Kind = Stream>>(sock: &Sock<P>, other: Skb) {
    let mut guard = sock.lock();
    let mut locked = guard.locked();
    if let Some(first) = locked.receive_queue().first_mut() {
        #[cfg(misuse)]
        let first: &mut Skb = first; //~ E0308
        drop::<&mut Buffer>(first);
    }
    drop(other);
}
