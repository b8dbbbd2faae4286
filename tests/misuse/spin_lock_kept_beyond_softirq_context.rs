// SPDX-License-Identifier: GPL-2.0

//! The receive path's lock is held after softirqs are enabled again.

use crate::net::sock::{BhGuard, Protocol, Sock};
use crate::net::softirq;

fn keep<P: Protocol>(sock: &Sock<P>) {
    let mut _kept: Option<BhGuard<'_, P>> = None;
    softirq::disabled(|softirq| {
        let guard = sock.lock_bh(softirq);
        #[cfg(misuse)]
        {
            _kept = Some(guard); //~ E0521
        }
    });
}
