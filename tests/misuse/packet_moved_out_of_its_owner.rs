// SPDX-License-Identifier: GPL-2.0

//! A packet is moved out of the value that owns it, and is written over a queued packet.

use crate::net::skb::{Buffer, Skb};

fn move_out(_queued: &mut Buffer, other: Skb) {
    #[cfg(misuse)]
    {
        *_queued = *other; //~ E0507
    }
    drop(other);
}
