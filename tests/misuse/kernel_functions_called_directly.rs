// SPDX-License-Identifier: GPL-2.0

//! A kernel function is called directly instead of through the safe types.

use crate::net::rcu;

fn call() {
    rcu::barrier();
    #[cfg(misuse)]
    let _ = crate::net::bindings::rcu_barrier; //~ E0603
}
