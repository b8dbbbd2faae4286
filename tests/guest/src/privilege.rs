// SPDX-License-Identifier: GPL-2.0-only

//! Makes calls without privileges.

use std::io;

use nix::sys::resource::{setrlimit, Resource};
use nix::unistd::{setgroups, setresgid, setresuid, Gid, Uid};

use crate::prelude::*;

/// Runs `work` in a thread that has dropped its capabilities, like a user's program.
///
/// # Errors
/// If they cannot be dropped.
pub fn without_capabilities<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| {
        let plain = scope.spawn(|| {
            give_up_capabilities().context("capset")?;
            Ok(work())
        });
        joined(plain)?
    })
}

/// Clears all capabilities of the calling thread by `capset(2)`. Without SECBIT_NOROOT, a program
/// that the thread starts as root would regain them.
fn give_up_capabilities() -> io::Result<()> {
    // linux/securebits.h
    const SECBIT_NOROOT: libc::c_ulong = 1;
    // SAFETY: This changes bits of the calling thread only.
    check(unsafe { libc::prctl(libc::PR_SET_SECUREBITS, SECBIT_NOROOT) })?;
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    // Two entries, for capabilities 0 to 31 and 32 to 63, of three words each: the effective,
    // permitted and inheritable capabilities.
    let none = [0u32; 6];
    // SAFETY: The header and the two entries are laid out as capset(2) specifies for version 3, and
    // live across the call.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) }).map(drop)
}

/// Makes this process a user's without groups and capabilities, for good.
///
/// # Errors
/// If the kernel refuses it.
pub fn become_nobody() -> Outcome {
    const NOBODY: u32 = 65534;
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    setgroups(&[])?;
    setresgid(group, group, group)?;
    setresuid(user, user, user).context("becoming a user")
}

/// Sets the memory that this process and its children may lock, for good.
///
/// # Errors
/// If the kernel refuses it.
pub fn may_lock(bytes: u64) -> Outcome {
    setrlimit(Resource::RLIMIT_MEMLOCK, bytes, bytes).context("RLIMIT_MEMLOCK")
}
