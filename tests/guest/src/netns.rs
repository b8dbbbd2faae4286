// SPDX-License-Identifier: GPL-2.0-only

//! Makes network namespaces, each of which stands for a host, and runs calls and programs in them.

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

/// A guard that returns the thread to its former namespace, even if the work in between panics.
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
    /// If the kernel refuses it, for example without root.
    pub fn create() -> Result<Self> {
        let maker = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).context("unshare(CLONE_NEWNET)")?;
            current()
        });
        let handle = maker.join().expect("the thread only makes two calls")?;
        Ok(Self { handle })
    }

    /// Opens the namespace at `path`.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(path: &str) -> Result<Self> {
        let handle = File::open(path).with_context(|| path.to_owned())?;
        Ok(Self { handle })
    }

    /// Runs `work` with the calling thread inside the namespace; sockets made there stay in it.
    ///
    /// # Errors
    /// If the thread cannot enter.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let _home = Return(current()?);
        setns(&self.handle, CloneFlags::CLONE_NEWNET).context("setns")?;
        Ok(work())
    }

    /// Returns a path by which other programs can open the namespace while this value lives.
    pub fn path(&self) -> String {
        format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.handle.as_raw_fd()
        )
    }

    /// Returns the namespace's inode number, by which the kernel identifies it to programs.
    ///
    /// # Errors
    /// The errno of `fstat(2)`.
    pub fn number(&self) -> Result<u64> {
        Ok(self.handle.metadata().context("fstat")?.ino())
    }

    /// Runs `program` in the namespace and returns its output.
    ///
    /// # Errors
    /// If it cannot be started or fails; the message has its standard error.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command.args(arguments);
        self.within(|| finish(&mut command, ""))?
    }

    /// Calls `act` in this namespace with the place of a new mount of sysfs, which shows this
    /// namespace's devices.
    ///
    /// # Errors
    /// If it cannot be mounted, or `act` fails.
    pub fn within_sys(&self, act: impl FnOnce(&Path) -> Result<()> + Send) -> Result<()> {
        self.within_mount("sysfs", act)
    }

    /// Calls `act` in this namespace with the place of a new mount of a file system of `kind`,
    /// which shows this namespace.
    ///
    /// # Errors
    /// If it cannot be mounted, or `act` fails.
    pub fn within_mount(
        &self,
        kind: &str,
        act: impl FnOnce(&Path) -> Result<()> + Send,
    ) -> Result<()> {
        self.within(|| -> Result<()> {
            let place = std::env::temp_dir().join(format!("{kind}-{}", std::process::id()));
            fs::create_dir_all(&place)?;
            let (none, kind) = (None::<&str>, Some(kind));
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

    /// Returns the text of `/proc/net/FILE` as this namespace sees it.
    ///
    /// # Errors
    /// If the file is missing.
    pub fn proc_net(&self, file: &str) -> Result<String> {
        // `/proc/net` shows the namespace of the process's first thread, but the calling thread is
        // the one that has entered the namespace.
        let path = format!("/proc/thread-self/net/{file}");
        self.within(|| std::fs::read_to_string(&path).with_context(|| path.clone()))?
    }
}

/// Runs `command` with `input` and returns its output.
///
/// # Errors
/// If it cannot be started or fails; the message has its standard error.
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
