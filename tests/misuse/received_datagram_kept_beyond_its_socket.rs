// SPDX-License-Identifier: GPL-2.0

//! A received datagram is kept after the call that keeps the socket alive, although the datagram's
//! memory may be charged to the socket.

use crate::net::family::Closing;
use crate::net::sock::{Datagram, Protocol};

fn keep<P: Protocol<Kind = Datagram>>(closing: Closing<'_, P>) {
    let received = closing.next_datagram(0);
    #[cfg(misuse)]
    drop(closing); //~ E0505
    let _ = received.is_ok();
}
