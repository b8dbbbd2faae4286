// SPDX-License-Identifier: GPL-2.0

//! A spin lock is released by a task that did not take it, perhaps on another processor.

use crate::net::bh_lock::BhLock;

fn send<T: Send>(_: &T) {}

fn release_elsewhere(lock: &BhLock<u32>) {
    send(lock);
    let guard = lock.lock();
    #[cfg(misuse)]
    send(&guard); //~ E0277
    drop(guard);
}
