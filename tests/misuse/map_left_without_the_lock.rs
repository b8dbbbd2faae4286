// SPDX-License-Identifier: GPL-2.0

//! A socket is removed from a map while the socket is not locked, so another task may be inserting
//! the same socket.

use crate::net::map::Map;
use crate::net::sock::{Protocol, Sock};

fn leave<P: Protocol>(map: &Map<P>, sock: &Sock<P>) {
    map.remove(&sock.lock().locked());
    #[cfg(misuse)]
    map.remove(sock); //~ E0308
}
