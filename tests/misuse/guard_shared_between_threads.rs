// SPDX-License-Identifier: GPL-2.0

//! The guard of a lock is shared between threads, although the lock protects a `Cell`, which is not
//! `Sync`.

use crate::net::bh_lock::BhLock;
use core::cell::Cell;

fn share<T: Sync>(_: &T) {}

fn share_cell(one: &BhLock<Cell<u32>>, other: &BhLock<u32>) {
    let (one, other) = (one.lock(), other.lock());
    #[cfg(misuse)]
    share(&one); //~ E0277
    share(&other);
    drop(one);
}
