// SPDX-License-Identifier: GPL-2.0

//! A socket leaves a map while another task may insert it.

use crate::net::map::Map;
use crate::net::sock::{Protocol, Sock};

fn leave<P: Protocol>(map: &Map<P>, sock: &Sock<P>) {
    map.remove(&sock.lock().locked());
    #[cfg(misuse)]
    map.remove(sock); //~ E0308
}
