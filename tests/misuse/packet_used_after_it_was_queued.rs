// SPDX-License-Identifier: GPL-2.0

//! A packet is changed after it was moved into a queue.

use crate::net::skb::Skb;
use crate::net::sock::{Protocol, Sock, Stream};

fn change_queued<P: Protocol<Kind = Stream>>(sock: &Sock<P>, mut skb: Skb) {
    skb.trim(1);
    sock.lock().locked().queue_received(skb);
    #[cfg(misuse)]
    skb.trim(0); //~ E0382
}
