// SPDX-License-Identifier: MIT OR Apache-2.0

//! The disposition of SIGPIPE. Rust's runtime ignores the signal before `main` starts, and
//! [`Command::exec`](std::os::unix::process::CommandExt::exec) sets it to its default. A command
//! gets the disposition that `enet run` was started with instead: systemd, for example, ignores the
//! signal for its units (`IgnoreSIGPIPE=`). The runtime changes no other disposition that a command
//! inherits, and not the signal mask.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::signal::{signal, SigHandler, Signal};

/// Whether this process was started with SIGPIPE ignored.
static IGNORED: AtomicBool = AtomicBool::new(false);

/// The C library calls the functions in this section before `main`, and so before Rust's runtime
/// starts.
#[used]
#[link_section = ".init_array"]
static AT_START: extern "C" fn() = look;

extern "C" fn look() {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the new action is null, so the call changes nothing. It writes the present action to
    // `action`, which has the right size and lives across the call.
    let result = unsafe { libc::sigaction(libc::SIGPIPE, ptr::null(), action.as_mut_ptr()) };
    if result == 0 {
        // SAFETY: the call has succeeded, so it has written the whole action.
        let action = unsafe { action.assume_init() };
        IGNORED.store(action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
    }
}

fn ignore() -> Result<(), Errno> {
    // SAFETY: no handler is installed, so no code can run in a signal's context.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) }.map(drop)
}

/// Executes `command` in this process, with the disposition of SIGPIPE that this process was
/// started with. Returns only if the execution fails.
pub fn exec(command: &mut Command) -> io::Error {
    if IGNORED.load(Ordering::Relaxed) {
        // SAFETY: the closure runs in this process before it executes the command, because
        // `Command::exec` does not fork. It makes one system call.
        unsafe { command.pre_exec(|| Ok(ignore()?)) };
    }
    let error = command.exec();
    // `exec` may have set SIGPIPE to its default before it failed. A message into a closed pipe
    // would then kill this process. If `ignore` fails, the disposition stays as it is.
    let _ = ignore();
    error
}
