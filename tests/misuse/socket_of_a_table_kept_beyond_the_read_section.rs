// SPDX-License-Identifier: GPL-2.0

//! A socket that was found in a port table is used after the end of the read section.

use crate::net::rcu;
use crate::net::sock::{Protocol, Sock};
use crate::net::table::{PortLink, Table};

fn leave_too_early<P: Protocol>(table: &Table<P, PortLink>) {
    let section = rcu::Read::enter();
    let sock = table.find(1, &section, |_| true);
    #[cfg(misuse)]
    drop(section); //~ E0505
    drop::<Option<&Sock<P>>>(sock);
}
