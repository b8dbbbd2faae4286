//! `make shell`: a guest to try things by hand. Its root is the toolbox that this program runs in, so that every tool of
//! that is there, and a directory of the user's is shared in; both by virtiofs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use tempfile::TempDir;

use crate::architecture::Architecture;
use crate::initramfs::{self, Contents};
use crate::layout::Layout;
use crate::programs;
use crate::qemu::{machine, Boot, Clock};
use crate::step;

/// Packages with the programs that the guest has beside the toolbox'.
const PACKAGES: &[&str] = &["enet-switch", "enet-tools", "netgauge"];

/// These programs.
const PROGRAMS: &[&str] = &["enet", "enet-switch", "netgauge"];

/// An example that is useful as a tool.
const EXAMPLE: &str = "esp_nc";

/// The guest's memory, as QEMU is told.
const MEMORY: &str = "1024M";

/// How long the server of a directory may take to be ready.
const PATIENCE: Duration = Duration::from_secs(20);

/// Opens a shell in a guest, with the directory `build/share` as `/share`, and waits for its end.
///
/// # Errors
/// When something does not build, or QEMU or virtiofsd cannot be run.
pub fn run(layout: &Layout) -> Result<()> {
    ensure!(
        layout.architecture == Architecture::Amd64,
        "the root of the shell's guest is the toolbox, whose programs are the host's: with {} use 'make scenarios'",
        layout.release
    );
    let share = layout.build().join("share");
    fs::create_dir_all(&share).with_context(|| share.display().to_string())?;
    let initramfs = file_system(layout)?;
    let directory = TempDir::with_prefix("shell-").context("a temporary directory")?;
    let toolbox = Shared::serve(layout, directory.path(), "toolbox", Path::new("/"), true)?;
    let own = Shared::serve(layout, directory.path(), "share", &share, false)?;
    let verb: Vec<_> = ["shell"]
        .iter()
        .chain(PROGRAMS)
        .chain([&EXAMPLE])
        .map(|word| (*word).to_owned())
        .collect();
    let boot = Boot {
        name: "shell",
        initramfs: &initramfs,
        verb: &verb,
        clock: Clock::Free(2),
        wire: None,
        deadline: Duration::MAX,
    };
    step::say(&format!(
        "booting a guest with {}; /share is {}",
        layout.release,
        share.display()
    ));
    let mut command = machine(layout, &boot);
    command.arg("-object");
    command.arg(format!(
        "memory-backend-memfd,id=memory,size={MEMORY},share=on"
    ));
    command.args(["-machine", "memory-backend=memory"]);
    for shared in [&toolbox, &own] {
        shared.attach(&mut command);
    }
    // The second serial port goes nowhere here.
    let status = command
        .args(["-serial", "mon:stdio"])
        .status()
        .context("starting QEMU")?;
    ensure!(status.success(), "QEMU: {status}");
    Ok(())
}

fn file_system(layout: &Layout) -> Result<PathBuf> {
    let _lock = layout.lock()?;
    programs::build_module(layout)?;
    programs::build_packages(layout, PACKAGES)?;
    programs::build_example(layout, EXAMPLE)?;
    let mut programs: Vec<_> = PROGRAMS.iter().map(|name| layout.program(name)).collect();
    programs.push(layout.example(EXAMPLE));
    initramfs::build(
        layout,
        &Contents {
            place: layout.build().join("guest-shell"),
            programs,
            files: Vec::new(),
            module: layout.module(),
        },
    )
}

/// A directory that a guest mounts by its tag, and the process that serves it.
struct Shared {
    tag: &'static str,
    socket: PathBuf,
    server: Child,
}

impl Shared {
    fn serve(
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

    fn attach(&self, command: &mut Command) {
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
