// SPDX-License-Identifier: GPL-2.0

//! A packet is changed after a queue took it over.

use crate::net::queue::Queue;
use crate::net::skb::Skb;

fn change_queued(queue: &mut Queue, mut skb: Skb) {
    skb.trim(1);
    queue.push(skb);
    #[cfg(misuse)]
    skb.trim(0); //~ E0382
}
