// SPDX-License-Identifier: GPL-2.0

//! A packet is read after it was freed.

use crate::net::skb::Skb;

fn read_freed(skb: Skb) {
    let _ = skb.len();
    skb.consume();
    #[cfg(misuse)]
    let _ = skb.len(); //~ E0382
}
