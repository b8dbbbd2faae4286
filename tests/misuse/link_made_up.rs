// SPDX-License-Identifier: GPL-2.0

//! Safe code implements `Link`, whose `OFFSET` may then be wrong: tables would write their list
//! nodes over other fields of the socket.

use crate::net::table::{Link, Membership, Memberships, PortLink};

struct MadeUp;

fn is_link<L: Link>() {}

fn use_it() {
    is_link::<PortLink>();
}

#[cfg(misuse)]
impl Link for MadeUp { //~ E0200
    const OFFSET: usize = 0;

    fn member(memberships: &Memberships) -> &Membership {
        PortLink::member(memberships)
    }
}
