// SPDX-License-Identifier: GPL-2.0

//! A datagram is changed that a look at the queue shares with other readers.

use crate::net::datagram::Received;

fn change(_received: &mut Received<'_>) {
    let _ = _received.len();
    #[cfg(misuse)]
    _received.trim(0); //~ E0596
}
