// SPDX-License-Identifier: GPL-2.0

//! Files under `/proc/sys` are created by hand, and may outlive their namespace.

use crate::net::namespace::{Net, PerNet};
use crate::net::sysctl::PerNamespace;

fn make<N: PerNamespace>(net: &Net) {
    drop(N::of(net));
    #[cfg(misuse)]
    drop(<crate::net::sysctl::Directory<N> as PerNet>::new(net)); //~ E0603
}
