// SPDX-License-Identifier: GPL-2.0

//! A task takes the receive path's lock while a softirq may interrupt the task.

use crate::net::sock::{Protocol, Sock};
use crate::net::softirq;

fn lock_with_softirqs<P: Protocol>(sock: &Sock<P>) {
    softirq::disabled(|softirq| drop(sock.lock_bh(softirq)));
    #[cfg(misuse)]
    drop(sock.lock_bh()); //~ E0061
}
