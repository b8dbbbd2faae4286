// SPDX-License-Identifier: GPL-2.0

//! A socket that was found in a map is used after the end of the read section.

use crate::net::map::{Key, Map};
use crate::net::rcu;
use crate::net::sock::{Protocol, Sock};

fn leave_too_early<P: Protocol>(map: &Map<P>, key: &Key) {
    let section = rcu::Read::enter();
    let sock = map.find(key, &section);
    #[cfg(misuse)]
    drop(section); //~ E0505
    drop::<Option<&Sock<P>>>(sock);
}
