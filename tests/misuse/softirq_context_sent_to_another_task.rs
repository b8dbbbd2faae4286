// SPDX-License-Identifier: GPL-2.0

//! The token of softirq context is used by another task, on a processor where softirqs may be
//! enabled.

use crate::net::softirq;

fn share<T: Sync>(_: &T) {}

fn share_context() {
    softirq::disabled(|softirq| {
        #[cfg(misuse)]
        share(&softirq); //~ E0277
        let _ = softirq;
    });
}
