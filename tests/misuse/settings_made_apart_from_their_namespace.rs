// SPDX-License-Identifier: GPL-2.0

//! Files under `/proc/sys` are created without the type that removes them with their namespace, so
//! they may outlive it.

use crate::net::namespace::{Net, PerNet};
use crate::net::sysctl::PerNamespace;

fn make<N: PerNamespace>(net: &Net) {
    drop(N::of(net));
    #[cfg(misuse)]
    drop(<crate::net::sysctl::Directory<N> as PerNet>::new(net)); //~ E0603
}
