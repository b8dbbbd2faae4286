// SPDX-License-Identifier: GPL-2.0

//! A peeked datagram, which other readers share, is changed.

use crate::net::datagram::Received;

fn change(_received: &mut Received<'_>) {
    let _ = _received.len();
    #[cfg(misuse)]
    _received.trim(0); //~ E0596
}
