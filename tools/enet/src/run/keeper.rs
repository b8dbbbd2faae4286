// SPDX-License-Identifier: MIT OR Apache-2.0

//! The process that keeps a command's sockets mapped. The command itself keeps the process number
//! of `enet run`, so signals, exit status and terminal are its own; and it may leave processes
//! behind, which are mapped as long as they run.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use nix::fcntl::OFlag;
use nix::sys::wait::waitpid;
use nix::unistd::{chdir, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe2, setsid, ForkResult};

use super::bpf::Link;
use super::group::Group;
use super::rules::{self, Rules};

/// Moves this process into `group`, whose sockets are mapped by `link` as long as it has a process;
/// `module` is held as long.
///
/// # Errors
/// When the module does not take the rules, or there can be no other process.
pub fn start(group: Group, rules: &Rules, link: Option<Link>, module: OwnedFd) -> Result<()> {
    let id = group.id()?;
    let has_rules = !rules.is_empty();
    if has_rules {
        if let Err(error) = rules.keep(id) {
            // The reason is what counts.
            let _ = rules::forget(id);
            let _ = group.remove();
            return Err(error);
        }
    }
    let (started, starting) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }.context("starting the keeper")? {
        ForkResult::Parent { child } => {
            // The keeper's parent ends at once, so that the command has no child that it did not
            // start.
            waitpid(child, None)?;
            group.join()?;
            // Closed when the command runs, or could not be started.
            std::mem::forget(starting);
            Ok(())
        }
        ForkResult::Child => {
            drop(starting);
            // SAFETY: as above.
            let last = unsafe { fork() };
            if let Ok(ForkResult::Child) = last {
                // There is nobody to tell. What is still held goes with the process.
                let _ = keep(started, &group, has_rules.then_some(id));
                drop((link, module));
            }
            std::process::exit(0)
        }
    }
}

fn keep(started: OwnedFd, group: &Group, rules: Option<u64>) -> Result<()> {
    setsid()?;
    chdir("/")?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    File::from(started).read_to_end(&mut Vec::new())?;
    group.await_empty()?;
    if let Some(id) = rules {
        rules::forget(id)?;
    }
    group.remove()?;
    Ok(())
}
