// SPDX-License-Identifier: MIT OR Apache-2.0

//! The keeper, a process that keeps a command's sockets mapped. The command itself runs in the
//! process of `enet run`, so the command has that process's number, signals, exit status and
//! terminal. Processes that the command leaves behind stay mapped as long as they run.
//!
//! The keeper blocks all signals. It is in the control group of `enet run`, and systemd, for
//! example, sends SIGTERM to each process of the group that it stops. Only SIGKILL ends the keeper
//! before the command's group is empty. After SIGKILL, the group's rules stay in the module until
//! `enet unmap --stale` removes them or the module is unloaded.

#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{OwnedFd, RawFd};

use anyhow::{bail, Context, Result};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::wait::{waitpid, WaitStatus};
use nix::unistd::{
    chdir, close, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe2, setsid, ForkResult,
};

use super::bpf::Link;
use super::group::Made;
use super::rules::{self, Rules};

/// Moves this process into `group`, and starts a process that holds `link` and `module` until the
/// group is empty. `link` maps the group's sockets.
///
/// # Errors
/// If the module does not accept the rules, or no process can be started.
pub fn start(group: Made, rules: &Rules, link: Option<Link>, module: OwnedFd) -> Result<()> {
    let id = group.id()?;
    let rule_holder = (!rules.is_empty()).then_some(id);
    let kept = rule_holder.map_or(Ok(()), |id| rules.keep(id));
    let result = kept.and_then(|()| fork_keeper(&group, rule_holder, link, module));
    if result.is_err() {
        // Errors of this clean-up are ignored: the first error is returned. If the keeper has
        // already started, it cleans up, too.
        let _ = rule_holder.map(rules::forget);
    }
    result
}

/// Starts the keeper, and moves this process into `group`. When the keeper ends, it removes the
/// rules of the group with the number `rules`.
fn fork_keeper(
    group: &Made,
    rules: Option<u64>,
    link: Option<Link>,
    module: OwnedFd,
) -> Result<()> {
    let (started, starting) = pipe2(OFlag::O_CLOEXEC)?;
    // The keeper inherits the mask, so no signal ends it early. The command gets the caller's mask.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    // SAFETY: this process has one thread.
    let forked = unsafe { fork() };
    if !matches!(forked, Ok(ForkResult::Child)) {
        mask.thread_set_mask()?;
    }
    match forked.context("starting the keeper")? {
        ForkResult::Parent { child } => {
            // The keeper's parent exits at once, so that the command does not inherit a child.
            match waitpid(child, None) {
                // If the caller ignores SIGCHLD, the kernel reaps the child itself, and `waitpid`
                // fails with ECHILD.
                Ok(WaitStatus::Exited(_, 0)) | Err(Errno::ECHILD) => {}
                Ok(status) => bail!("starting the keeper: {status:?}"),
                Err(error) => return Err(error.into()),
            }
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
                let _ = keep(started, group, rules);
                drop((link, module));
            }
            std::process::exit(i32::from(last.is_err()))
        }
    }
}

fn keep(started: OwnedFd, group: &Made, rules: Option<u64>) -> Result<()> {
    // Errors of `detach` are ignored: if the keeper returned here, the command would not be mapped
    // any more.
    let _ = detach();
    File::from(started).read_to_end(&mut Vec::new())?;
    group.await_empty()?;
    if let Some(id) = rules {
        rules::forget(id)?;
    }
    group.remove()?;
    Ok(())
}

/// Leaves the caller's session, directory and descriptors.
fn detach() -> Result<()> {
    setsid()?;
    chdir("/")?;
    close_inherited()?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    Ok(())
}

/// Closes the descriptors that the caller of `enet run` has left to its command. The command alone
/// decides how long a pipe, a lock or a listening socket among them stays open.
fn close_inherited() -> Result<()> {
    let entries = fs::read_dir("/proc/self/fd")?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for number in numbers.collect::<Vec<RawFd>>() {
        if number > 2 && is_inherited(number) {
            // Linux closes the descriptor even if `close` fails, for example on NFS.
            let _ = close(number);
        }
    }
    Ok(())
}

/// Returns whether a descriptor was open when this program started. All descriptors that this
/// program opens itself are close-on-exec.
fn is_inherited(number: RawFd) -> bool {
    // SAFETY: F_GETFD takes no pointer and changes nothing. The call fails for a number that is no
    // descriptor any more, such as that of the directory whose entries were listed.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}
