// SPDX-License-Identifier: GPL-2.0

//! The bytes of a packet stay borrowed while the packet is cut, although cutting may move them.

use crate::net::skb::Skb;

fn cut_under_a_borrow(mut skb: Skb) {
    let bytes = skb.head();
    #[cfg(misuse)]
    skb.trim(0); //~ E0502
    drop::<Option<u8>>(bytes.first().copied());
}
