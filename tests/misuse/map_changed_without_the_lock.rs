// SPDX-License-Identifier: GPL-2.0

//! A socket is inserted into a map while the socket is not locked, so another task may be removing
//! the same socket.

use crate::net::map::{Key, Map};
use crate::net::sock::{Protocol, Sock};

fn join<P: Protocol>(map: &Map<P>, key: &Key, sock: &Sock<P>) {
    drop(map.insert(key, &sock.lock().locked()));
    #[cfg(misuse)]
    drop(map.insert(key, sock)); //~ E0308
}
