// SPDX-License-Identifier: GPL-2.0

//! The bytes of a packet are read after the packet was cut, although cutting may have moved the
//! bytes.

use crate::net::skb::Skb;

fn cut_under_a_borrow(mut skb: Skb) {
    let bytes = skb.head();
    #[cfg(misuse)]
    skb.trim(0); //~ E0502
    drop::<Option<u8>>(bytes.first().copied());
}
