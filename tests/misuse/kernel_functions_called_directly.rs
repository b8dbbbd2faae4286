// SPDX-License-Identifier: GPL-2.0

//! A function of the kernel is called past the safe types.

use crate::net::rcu;

fn call() {
    rcu::barrier();
    #[cfg(misuse)]
    let _ = crate::net::bindings::rcu_barrier; //~ E0603
}
