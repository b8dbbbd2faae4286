// SPDX-License-Identifier: GPL-2.0

//! Code finds a socket in a map, and assumes that it could take a reference to the socket. But the
//! socket's reference count may already be zero. If the count were raised and lowered again, the
//! socket would be freed twice.

use crate::net::map::{Key, Map};
use crate::net::rcu;
use crate::net::sock::{Protocol, SockRef};

fn hold<P: Protocol>(map: &Map<P>, key: &Key) {
    let section = rcu::Read::enter();
    let Some(found) = map.find(key, &section) else {
        return;
    };
    let held: Option<SockRef<P>> = found.try_hold();
    #[cfg(misuse)]
    let held: SockRef<P> = held; //~ E0308
    drop(held);
}
