// SPDX-License-Identifier: GPL-2.0

//! A reference to a socket is dropped twice.

use crate::net::sock::{Protocol, SockRef};

fn give_back_twice<P: Protocol>(reference: SockRef<P>) {
    drop(reference);
    #[cfg(misuse)]
    drop(reference); //~ E0382
}
