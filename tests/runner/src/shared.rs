// SPDX-License-Identifier: GPL-2.0-only

//! Serves directories, which guests mount through virtiofs.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};

use crate::layout::Layout;
use crate::step;

/// Time limit for the server of a directory to become ready.
const PATIENCE: Duration = Duration::from_secs(20);

/// A directory that a guest mounts by its tag, and the process that serves this directory.
#[derive(Debug)]
pub struct Shared {
    tag: &'static str,
    socket: PathBuf,
    log: PathBuf,
    directory: PathBuf,
    read_only: bool,
    /// virtiofsd, which ends when the guest ends.
    server: RefCell<Child>,
}

impl Shared {
    /// Serves `directory` through a socket in the directory `place`.
    ///
    /// # Errors
    /// If virtiofsd does not start.
    pub fn serve(
        layout: &Layout,
        place: &Path,
        tag: &'static str,
        directory: &Path,
        read_only: bool,
    ) -> Result<Self> {
        let socket = place.join(tag);
        let log = layout.logs()?.join(format!("virtiofsd-{tag}.log"));
        let server = start(&socket, &log, directory, read_only)?;
        Ok(Self {
            tag,
            socket,
            log,
            directory: directory.to_owned(),
            read_only,
            server: RefCell::new(server),
        })
    }

    /// Adds the device from which a guest mounts the directory. Restarts the server if it has ended
    /// with an earlier guest.
    ///
    /// # Errors
    /// If virtiofsd does not start.
    pub fn attach(&self, command: &mut Command) -> Result<()> {
        let mut server = self.server.borrow_mut();
        if server.try_wait()?.is_some() {
            *server = start(&self.socket, &self.log, &self.directory, self.read_only)?;
        }
        let (tag, socket) = (self.tag, self.socket.display());
        command.arg("-chardev");
        command.arg(format!("socket,id={tag},path={socket}"));
        command.arg("-device");
        command.arg(format!("vhost-user-fs-pci,chardev={tag},tag={tag}"));
        Ok(())
    }

    /// Waits until the server has ended, which happens when its guest ends.
    ///
    /// # Errors
    /// If the server does not end in time.
    pub fn wait(&self) -> Result<()> {
        let mut server = self.server.borrow_mut();
        until(|| Ok(server.try_wait()?.is_some()))
    }
}

fn start(socket: &Path, log: &Path, directory: &Path, read_only: bool) -> Result<Child> {
    let output = fs::File::create(log).with_context(|| log.display().to_string())?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "/usr/libexec/virtiofsd"]);
    // With announced mount points, the guest would see separate file systems, which overlayfs does
    // not cross.
    command.args(["--sandbox", "none", "--no-announce-submounts"]);
    command.arg("--socket-path");
    command.arg(socket).arg("--shared-dir").arg(directory);
    if read_only {
        command.arg("--readonly");
    }
    let mut server = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .context("starting virtiofsd")?;
    until(|| {
        if let Some(status) = server.try_wait()? {
            bail!("virtiofsd: {status}:\n{}", step::tail(log, 10));
        }
        Ok(socket.exists())
    })?;
    Ok(server)
}

/// Polls until `is_so` returns true. Fails after [`PATIENCE`].
fn until(mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !is_so()? {
        ensure!(
            started.elapsed() < PATIENCE,
            "virtiofsd does not get ready or does not end"
        );
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Errors are ignored, because the calls fail only if the server has ended with QEMU.
        let server = self.server.get_mut();
        let _ = server.kill();
        let _ = server.wait();
    }
}
