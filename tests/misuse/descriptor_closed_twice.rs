// SPDX-License-Identifier: GPL-2.0

//! A socket is detached from its descriptor twice.

use crate::net::family::Closing;
use crate::net::sock::Protocol;

fn close_twice<P: Protocol>(closing: Closing<'_, P>) {
    drop(closing);
    #[cfg(misuse)]
    drop(closing); //~ E0382
}
