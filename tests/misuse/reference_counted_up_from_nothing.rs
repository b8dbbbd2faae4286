// SPDX-License-Identifier: GPL-2.0

//! A socket that was found in a map is treated as held, although its reference count may already be
//! zero. In that case the socket would be freed twice.

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
