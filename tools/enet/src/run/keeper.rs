// SPDX-License-Identifier: MIT OR Apache-2.0

//! The keeper, a process that keeps a command's sockets mapped. The command itself runs in the
//! process of `enet run`, so the command has that process's number, signals, exit status and
//! terminal. Processes that the command leaves behind stay mapped as long as they run.

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

/// Moves this process into `group`, and starts a process that holds `link` and `module` until the
/// group is empty. `link` maps the group's sockets.
///
/// # Errors
/// If the module does not accept the rules, or no process can be started.
pub fn start(group: Group, rules: &Rules, link: Option<Link>, module: OwnedFd) -> Result<()> {
    let id = group.id()?;
    let has_rules = !rules.is_empty();
    if has_rules {
        if let Err(error) = rules.keep(id) {
            // Errors of the clean-up are ignored because the first error is the one to report.
            let _ = rules::forget(id);
            let _ = group.remove();
            return Err(error);
        }
    }
    let (started, starting) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }.context("starting the keeper")? {
        ForkResult::Parent { child } => {
            // The keeper's parent exits at once, so that the command does not inherit a child.
            waitpid(child, None)?;
            group.join()?;
            // `starting`, the write end of the pipe, stays open until this process executes the
            // command or exits. Before the keeper watches the group, it waits until `starting` is
            // closed.
            std::mem::forget(starting);
            Ok(())
        }
        ForkResult::Child => {
            drop(starting);
            // SAFETY: the forked process has one thread, as its parent had.
            let last = unsafe { fork() };
            if let Ok(ForkResult::Child) = last {
                // Errors are ignored, because none can be reported here. When the process ends, all
                // that it holds is released.
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
