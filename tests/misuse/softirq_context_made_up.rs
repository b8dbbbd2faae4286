// SPDX-License-Identifier: GPL-2.0

//! A task claims to be in softirq context.

use crate::net::softirq::{self, Softirq};

fn claim() {
    softirq::disabled(|_: Softirq<'_>| ());
    #[cfg(misuse)]
    let _ = Softirq::assume(); //~ E0624
}
