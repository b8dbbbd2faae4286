// SPDX-License-Identifier: GPL-2.0-only

//! `make shell`: a guest to try things by hand. Its root is the toolbox that this program runs in, so that every tool of
//! that is there, and a directory of the user's is shared in; both by virtiofs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use tempfile::TempDir;

use crate::architecture::Architecture;
use crate::initramfs::{self, Contents};
use crate::layout::Layout;
use crate::programs;
use crate::qemu::{machine, Boot, Clock};
use crate::shared::Shared;
use crate::step;

/// Packages with the programs that the guest has beside the toolbox'.
const PACKAGES: &[&str] = &["enet-switch", "enet-tools", "netgauge"];

/// These programs.
const PROGRAMS: &[&str] = &["enet", "enet-switch", "netgauge"];

/// An example that is useful as a tool.
const EXAMPLE: &str = "esp_nc";

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
    let shared = [
        Shared::serve(layout, directory.path(), "toolbox", Path::new("/"), true)?,
        Shared::serve(layout, directory.path(), "share", &share, false)?,
    ];
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
        shared: &shared,
        deadline: Duration::MAX,
    };
    step::say(&format!(
        "booting a guest with {}; /share is {}",
        layout.release,
        share.display()
    ));
    // The second serial port goes nowhere here.
    let status = machine(layout, &boot)?
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
