// SPDX-License-Identifier: GPL-2.0

//! A packet is moved out of its owning value, and overwrites a queued packet.

use crate::net::skb::{Buffer, Skb};

fn move_out(_queued: &mut Buffer, other: Skb) {
    #[cfg(misuse)]
    {
        *_queued = *other; //~ E0507
    }
    drop(other);
}
