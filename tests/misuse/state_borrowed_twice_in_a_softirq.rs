// SPDX-License-Identifier: GPL-2.0

//! The data that the receive path's lock protects are borrowed twice at the same time.

use crate::net::sock::{Protocol, Sock};
use crate::net::softirq::Softirq;

fn borrow_twice<P: Protocol>(sock: &Sock<P>, softirq: Softirq<'_>) {
    let mut guard = sock.lock_bh(softirq);
    let one = guard.locked();
    #[cfg(misuse)]
    let _other = guard.locked(); //~ E0499
    drop(one);
}
