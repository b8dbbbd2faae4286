//! Directories that guests mount, by virtiofs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};

use crate::layout::Layout;
use crate::step;

/// How long the server of a directory may take to be ready.
const PATIENCE: Duration = Duration::from_secs(20);

/// A directory that a guest mounts by its tag, and the process that serves it.
#[derive(Debug)]
pub struct Shared {
    tag: &'static str,
    socket: PathBuf,
    server: Child,
}

impl Shared {
    /// Serves `directory`; the socket is in `place`.
    ///
    /// # Errors
    /// When virtiofsd does not start.
    pub fn serve(
        layout: &Layout,
        place: &Path,
        tag: &'static str,
        directory: &Path,
        read_only: bool,
    ) -> Result<Self> {
        let socket = place.join(tag);
        let log = layout.logs()?.join(format!("virtiofsd-{tag}.log"));
        let output = fs::File::create(&log).with_context(|| log.display().to_string())?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "/usr/libexec/virtiofsd"]);
        command.args(["--sandbox", "none", "--socket-path"]);
        command.arg(&socket).arg("--shared-dir").arg(directory);
        if read_only {
            command.arg("--readonly");
        }
        let server = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("starting virtiofsd")?;
        let mut shared = Self {
            tag,
            socket,
            server,
        };
        let started = Instant::now();
        while !shared.socket.exists() {
            if let Some(status) = shared.server.try_wait()? {
                bail!("virtiofsd: {status}:\n{}", step::tail(&log, 10));
            }
            ensure!(
                started.elapsed() < PATIENCE,
                "virtiofsd does not get ready; its log is {}",
                log.display()
            );
            thread::sleep(Duration::from_millis(20));
        }
        Ok(shared)
    }

    /// Adds the device that a guest mounts it from.
    pub fn attach(&self, command: &mut Command) {
        let (tag, socket) = (self.tag, self.socket.display());
        command.arg("-chardev");
        command.arg(format!("socket,id={tag},path={socket}"));
        command.arg("-device");
        command.arg(format!("vhost-user-fs-pci,chardev={tag},tag={tag}"));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // It may have ended with QEMU.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
