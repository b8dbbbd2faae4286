// SPDX-License-Identifier: GPL-2.0

//! Data that a lock protects are used after the lock was released.

use crate::net::bh_lock::BhLock;

fn unlock_too_early(lock: &BhLock<[u8; 2]>) {
    let mut guard = lock.lock();
    let byte = guard.first_mut();
    #[cfg(misuse)]
    drop(guard); //~ E0505
    drop::<Option<&mut u8>>(byte);
}
