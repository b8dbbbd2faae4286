// SPDX-License-Identifier: GPL-2.0-only

//! `make mpi-hosts` runs Open MPI over ESP between hosts that are namespaces of a guest. `make
//! programs` runs TCP programs over mapped sockets, which are TCP sockets whose streams ESP may
//! carry.
//!
//! The guest's root is a toolbox that has the programs. A script sets up the hosts and runs the
//! programs on them: `mpi/tests/hosts`, `tests/programs/hosts` or `tests/storage/costs`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use clap::Args;
use tempfile::TempDir;

use crate::commands::{Commands, Verb};
use crate::initramfs;
use crate::judge::Part;
use crate::layout::Layout;
use crate::qemu::{Clock, Wire};
use crate::shared::Shared;
use crate::step;

/// Time limit for a part of the script; a multiple of the part's usual time on two processors.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);

/// The command that runs the script in the guest.
const HOSTS: &str = "bash /share/hosts";

/// In the script's list, this prefix marks parts that this kernel cannot run.
const LEFT_OUT: &str = "left out: ";

/// The directories that guests mount.
#[derive(Debug, Args)]
pub struct Trees {
    /// The tree with the programs, which becomes the guest's root.
    #[arg(long)]
    tree: PathBuf,
    /// The directory with the script, and with the files that the script needs.
    #[arg(long)]
    share: PathBuf,
}

/// Options of a run of the script.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    pub trees: Trees,
    /// Use one processor whose clock counts instructions.
    #[arg(long)]
    pub counted: bool,
    /// Parts of the script to run; if none is named, all parts other than measurements.
    pub parts: Vec<String>,
}

/// A guest, and the directories that are served to it.
pub type Host = (Commands, [Shared; 2]);

/// Boots a guest whose root is `trees.tree`, with `trees.share` at `/share`. `directory` is for the
/// sockets of the processes that serve both.
///
/// # Errors
/// If the guest does not boot.
pub fn boot(
    layout: &Layout,
    place: (&str, &Path),
    trees: &Trees,
    directory: &Path,
    clock: Clock,
    wire: Option<Wire>,
) -> Result<Host> {
    let serve =
        |tag, served: &Path, read_only| Shared::serve(layout, directory, tag, served, read_only);
    let shared = [
        serve("toolbox", &trees.tree, true)?,
        serve("share", &trees.share, false)?,
    ];
    let guest = Commands::boot_from(layout, place, Verb::Tree, clock, PATIENCE, wire, &shared)?;
    Ok((guest, shared))
}

/// Runs the requested parts of the script, each as a test, and returns their results as a part
/// `name`.
///
/// # Errors
/// If the guest does not boot, or the hosts cannot be set up.
pub fn run(layout: &Layout, name: &'static str, options: &Options) -> Result<Part> {
    let initramfs =
        initramfs::with_module(layout, &format!("guest-{name}"), Vec::new(), Vec::new())?;
    let directory = TempDir::with_prefix(format!("{name}-")).context("a temporary directory")?;
    let clock = if options.counted {
        Clock::Instructions
    } else {
        Clock::Free(2)
    };
    let place = (name, initramfs.as_path());
    let (mut guest, _shared) = boot(layout, place, &options.trees, directory.path(), clock, None)?;
    let mut results = Part::new(name);
    let mut parts = options.parts.clone();
    if parts.is_empty() {
        let listed = guest.ask(&format!("{HOSTS} list"))?;
        ensure!(listed.status == 0, "hosts list:\n{}", listed.text);
        for line in listed.text.lines() {
            match line.strip_prefix(LEFT_OUT) {
                None => parts.push(line.to_owned()),
                Some(part) => {
                    step::say(&format!("{name}: {line}: this kernel cannot do it"));
                    results.left_out.push(part.to_owned());
                }
            }
        }
    }
    for part in &parts {
        step::say(&format!("{name}: {part}"));
        let status = guest.run(&format!("{HOSTS} {part}"), |line| println!("{line}"))?;
        let outcome = (status == 0)
            .then_some(())
            .with_context(|| format!("exit status {status}"));
        results.take(part, outcome);
    }
    guest.end()?;
    Ok(results)
}
