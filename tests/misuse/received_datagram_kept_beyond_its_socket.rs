// SPDX-License-Identifier: GPL-2.0

//! A received datagram outlives the call that keeps its socket alive, although the datagram's
//! memory may be charged to the socket.

use crate::net::family::Closing;
use crate::net::sock::{Datagram, Protocol};

fn keep<P: Protocol<Kind = Datagram>>(closing: Closing<'_, P>) {
    let received = closing.next_datagram(0);
    #[cfg(misuse)]
    drop(closing); //~ E0505
    let _ = received.is_ok();
}
