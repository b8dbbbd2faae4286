// SPDX-License-Identifier: GPL-2.0

//! The token of softirq context is kept after softirqs are enabled again.

use crate::net::softirq::{self, Softirq};

fn keep() {
    let mut _kept: Option<Softirq<'_>> = None;
    softirq::disabled(|_softirq| {
        #[cfg(misuse)]
        {
            _kept = Some(_softirq); //~ E0521
        }
    });
}
