// SPDX-License-Identifier: GPL-2.0

//! The state of a new child is used after the child was unlocked.

use crate::net::sock::{NewChild, Protocol};

fn unlock_too_early<P: Protocol>(mut child: NewChild<P>) {
    let locked = child.locked();
    #[cfg(misuse)]
    drop(child); //~ E0505
    drop(locked);
}
