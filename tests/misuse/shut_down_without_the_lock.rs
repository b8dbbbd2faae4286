// SPDX-License-Identifier: GPL-2.0

//! A socket is shut down with no lock held.

use crate::net::sock::{Protocol, Sock};

fn shut_down<P: Protocol>(sock: &Sock<P>) {
    sock.lock().locked().add_shutdown(1);
    #[cfg(misuse)]
    sock.add_shutdown(1); //~ E0599
}
