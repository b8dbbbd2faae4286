// SPDX-License-Identifier: GPL-2.0

//! A packet is freed twice.

use crate::net::skb::Skb;

fn free_twice(skb: Skb) {
    skb.consume();
    #[cfg(misuse)]
    skb.purge(); //~ E0382
}
