// SPDX-License-Identifier: GPL-2.0-only

//! Network namespaces, each standing for a host of its own.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{ensure, Context, Result};
use nix::sched::{setns, unshare, CloneFlags};

/// A network namespace that lives as long as this value and the sockets made in it.
#[derive(Debug)]
pub struct Netns {
    handle: File,
}

fn current() -> Result<File> {
    File::open("/proc/thread-self/ns/net").context("opening the current network namespace")
}

/// Puts the thread back where it was, also when the work in between panics.
struct Return(File);

impl Drop for Return {
    fn drop(&mut self) {
        setns(&self.0, CloneFlags::CLONE_NEWNET).expect("returning to the former namespace");
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Netns {
    /// Makes a new, empty namespace.
    ///
    /// # Errors
    /// When the kernel refuses it, for example without root.
    pub fn create() -> Result<Self> {
        let maker = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).context("unshare(CLONE_NEWNET)")?;
            current()
        });
        let handle = maker.join().expect("the thread only makes two calls")?;
        Ok(Self { handle })
    }

    /// The namespace that `path` names.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(path: &str) -> Result<Self> {
        let handle = File::open(path).with_context(|| path.to_owned())?;
        Ok(Self { handle })
    }

    /// Runs `work` with the calling thread inside the namespace; sockets made there stay in it.
    ///
    /// # Errors
    /// When the thread cannot enter.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let _home = Return(current()?);
        setns(&self.handle, CloneFlags::CLONE_NEWNET).context("setns")?;
        Ok(work())
    }

    /// A path that names the namespace to other programs while this value lives.
    pub fn path(&self) -> String {
        format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.handle.as_raw_fd()
        )
    }

    /// The namespace's number, by which the kernel names it to programs.
    ///
    /// # Errors
    /// The errno of `fstat(2)`.
    pub fn number(&self) -> Result<u64> {
        Ok(self.handle.metadata().context("fstat")?.ino())
    }

    /// Runs `program` in the namespace and returns what it printed.
    ///
    /// # Errors
    /// When it cannot be started or fails; its own words are part of the message.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command.args(arguments);
        self.within(|| finish(&mut command, ""))?
    }

    /// Runs `act` with the namespace's own `/sys`, where its devices are, mounted at the path that
    /// it gets.
    ///
    /// # Errors
    /// When it cannot be mounted, and `act`'s own.
    pub fn within_sys(&self, act: impl FnOnce(&Path) -> Result<()> + Send) -> Result<()> {
        self.within(|| -> Result<()> {
            let place = std::env::temp_dir().join(format!("sys-{}", std::process::id()));
            fs::create_dir_all(&place)?;
            let (none, kind) = (None::<&str>, Some("sysfs"));
            nix::mount::mount(kind, &place, kind, nix::mount::MsFlags::empty(), none)?;
            let done = act(&place);
            nix::mount::umount(&place)?;
            done
        })?
    }

    /// Runs `ip -batch` with one command per line.
    ///
    /// # Errors
    /// As [`Netns::run`].
    pub fn ip(&self, lines: &str) -> Result<()> {
        let mut command = Command::new("ip");
        command.args(["-batch", "-"]);
        self.within(|| finish(&mut command, lines))??;
        Ok(())
    }

    /// The text of `/proc/net/FILE` as this namespace sees it.
    ///
    /// # Errors
    /// When the file is missing.
    pub fn proc_net(&self, file: &str) -> Result<String> {
        // /proc/net follows the process' first thread; the calling one is what has entered the
        // namespace.
        let path = format!("/proc/thread-self/net/{file}");
        self.within(|| std::fs::read_to_string(&path).with_context(|| path.clone()))?
    }
}

/// Runs `command` with `input` and returns what it printed.
///
/// # Errors
/// When it cannot be started or fails; its own words are part of the message.
pub fn finish(command: &mut Command, input: &str) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "{name} failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
