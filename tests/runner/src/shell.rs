// SPDX-License-Identifier: GPL-2.0-only

//! `make shell`: a guest for experiments by hand, with a shell on each of two hosts. The guest's
//! root is a toolbox with the usual tools. Its `/usr/local` has the files of `make install`. The
//! project's directory `build/share` is `/share` in the guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use clap::Args;
use tempfile::TempDir;

use crate::architecture::Architecture;
use crate::initramfs;
use crate::judge::Part;
use crate::layout::Layout;
use crate::qemu::{machine, Boot, Clock, Wire};
use crate::shared::Shared;
use crate::shell_walk;
use crate::step;

/// Options of `make shell`.
#[derive(Debug, Args)]
pub struct Options {
    /// The tree that becomes the guest's root.
    #[arg(long)]
    tree: PathBuf,
    /// The directory that becomes the guest's `/usr/local`.
    #[arg(long)]
    local: PathBuf,
    /// The directory for the socket of host b's shell.
    #[arg(long)]
    sockets: PathBuf,
    /// Type the documents' commands instead of opening a shell for a person.
    #[arg(long)]
    walk: bool,
}

/// Addresses of the two hosts' devices, as in the documents.
const MACS: [&str; 2] = ["02:00:00:00:00:01", "02:00:00:00:00:02"];

/// Columns and rows of a terminal that does not break the documents' lines.
const WALKED: (&str, &str) = ("300", "50");

/// Opens a shell in a guest, with the directory `build/share` as `/share`, and waits until the
/// shell ends. With `walk`, types the documents' commands instead, and returns the result.
///
/// # Errors
/// If something does not build, or QEMU or virtiofsd cannot be run.
pub fn run(layout: &Layout, options: &Options) -> Result<Option<Part>> {
    ensure!(
        layout.architecture == Architecture::Amd64,
        "the root of the shell's guest has the host's programs: with {} use 'make scenarios'",
        layout.release
    );
    let share = layout.build().join("share");
    fs::create_dir_all(&share).with_context(|| share.display().to_string())?;
    let initramfs = initramfs::with_module(layout, "guest-shell", Vec::new(), Vec::new())?;
    let directory = TempDir::with_prefix("shell-").context("a temporary directory")?;
    let serve = |tag, served: &Path, read_only| {
        Shared::serve(layout, directory.path(), tag, served, read_only)
    };
    let shared = [
        serve("toolbox", &options.tree, true)?,
        serve("local", &options.local, true)?,
        serve("share", &share, false)?,
    ];
    let (columns, rows) = if options.walk {
        (WALKED.0.to_owned(), WALKED.1.to_owned())
    } else {
        terminal_size()
    };
    let verb = ["shell".to_owned(), columns, rows];
    let boot = Boot {
        name: "shell",
        initramfs: &initramfs,
        verb: &verb,
        clock: Clock::Free(2),
        options: "",
        wire: Some(Wire::Within(MACS)),
        shared: &shared,
        quiet: true,
        deadline: Duration::MAX,
    };
    step::say(&format!(
        "booting a guest with {}, 10 to 20 seconds; /share is {}",
        layout.release,
        share.display()
    ));
    let mut command = machine(layout, &boot)?;
    let second = options.sockets.join("b");
    // An error is ignored, because the socket exists only if an earlier guest was killed.
    let _ = fs::remove_file(&second);
    let port = format!("unix:{},server=on,wait=off", second.display());
    if options.walk {
        command.args(["-serial", "stdio", "-serial", &port]);
        return shell_walk::run(layout, command, &second).map(Some);
    }
    let status = command
        .args(["-serial", "mon:stdio", "-serial", &port])
        .status()
        .context("starting QEMU")?;
    ensure!(status.success(), "QEMU: {status}");
    Ok(None)
}

/// Returns columns and rows of this terminal. The guest's terminal gets these numbers, because it
/// cannot ask this terminal for them.
fn terminal_size() -> (String, String) {
    let size = Command::new("stty")
        .arg("size")
        .stdin(Stdio::inherit())
        .stderr(Stdio::null())
        .output();
    let size = size.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let size = size.unwrap_or_default();
    match size.split_whitespace().collect::<Vec<_>>()[..] {
        [rows, columns] if columns != "0" => (columns.to_owned(), rows.to_owned()),
        _ => ("80".to_owned(), "24".to_owned()),
    }
}
