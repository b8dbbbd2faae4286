// SPDX-License-Identifier: GPL-2.0-only

//! Calls by a thread that has no capability.

use std::io;

use crate::prelude::*;

/// Runs `work` in a thread that has given up its effective capabilities, as a user's program has
/// none.
///
/// # Errors
/// When they cannot be given up.
pub fn without_capabilities<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| {
        let plain = scope.spawn(|| {
            give_up_capabilities().context("capset")?;
            Ok(work())
        });
        joined(plain)?
    })
}

/// `capset(2)` of the calling thread: nothing effective. What it is permitted ends with the thread.
/// A program that it starts gets nothing back by being root's.
fn give_up_capabilities() -> io::Result<()> {
    // linux/securebits.h
    const SECBIT_NOROOT: libc::c_ulong = 1;
    // SAFETY: changes bits of the calling thread.
    check(unsafe { libc::prctl(libc::PR_SET_SECUREBITS, SECBIT_NOROOT) })?;
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    // Effective, permitted and inheritable, 32 capabilities each, twice.
    let none = [0u32; 6];
    // SAFETY: the header and the two sets are laid out as capset(2) says for version 3, and live
    // across the call.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) }).map(drop)
}
