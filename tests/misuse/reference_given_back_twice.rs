// SPDX-License-Identifier: GPL-2.0

//! A reference to a socket is given back twice.

use crate::net::sock::{Protocol, Sock};

fn give_back_twice<P: Protocol>(sock: &Sock<P>) {
    let reference = sock.hold();
    drop(reference);
    #[cfg(misuse)]
    drop(reference); //~ E0382
}
