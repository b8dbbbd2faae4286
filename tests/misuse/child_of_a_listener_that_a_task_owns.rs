// SPDX-License-Identifier: GPL-2.0

//! A softirq clones a listener while a task may own the listener and change it.

use crate::net::sock::{NewChild, Protocol, Sock};
use crate::net::softirq::Softirq;

fn spawn<P: Protocol>(sock: &Sock<P>, shared: P::Shared, softirq: Softirq<'_>) {
    let mut guard = sock.lock_bh(softirq);
    #[cfg(misuse)]
    drop(NewChild::spawn(&mut guard, shared, softirq)); //~ E0308
    #[cfg(not(misuse))]
    if let Some(mut listener) = guard.locked() {
        drop(NewChild::spawn(&mut listener, shared, softirq));
    }
}
