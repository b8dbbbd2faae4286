// SPDX-License-Identifier: GPL-2.0

//! A read section is left by a task that did not enter it.

use crate::net::rcu::Read;

fn send<T: Send>(_: &T) {}

fn leave_elsewhere() {
    let section = Read::enter();
    #[cfg(misuse)]
    send(&section); //~ E0277
    drop(section);
}
