// SPDX-License-Identifier: GPL-2.0

//! A locked table is sent to another task, although only the processor that took the lock may
//! release it.

use crate::net::sock::Protocol;
use crate::net::table::{PortLink, Table};

fn send<T: Send>(value: T) {
    drop(value);
}

fn hand_over<P: Protocol>(table: &Table<P, PortLink>) {
    send(table);
    #[cfg(misuse)]
    send(table.lock()); //~ E0277
}
