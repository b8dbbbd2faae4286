// SPDX-License-Identifier: GPL-2.0

//! A socket joins a table while another task may be changing the table's chains.

use crate::net::sock::{Protocol, Sock};
use crate::net::table::{PortLink, Table};

fn join<P: Protocol>(table: &Table<P, PortLink>, sock: &Sock<P>) {
    drop(table.lock().insert(1, sock));
    #[cfg(misuse)]
    drop(table.insert(1, sock)); //~ E0599
}
