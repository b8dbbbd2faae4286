// SPDX-License-Identifier: GPL-2.0-only

//! `make storage` replicates a block device by DRBD between two guests, over sockets of the family
//! `ssocks`, and reads and writes a device of one guest from the other by iSCSI.
//!
//! The guests' root is a toolbox that has the tools, and a wire joins them, since the kernel's own
//! sockets are in the initial namespace. The scripts `tests/storage/drbd` and `tests/storage/iscsi`
//! take the steps.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context, Result};
use tempfile::TempDir;

use crate::hosts::{self, Options, Trees};
use crate::initramfs;
use crate::judge::Part;
use crate::layout::Layout;
use crate::qemu::{self, Clock, Wire};
use crate::step;

/// The scripts, in the directory that the guests share.
const SCRIPTS: [&str; 2] = ["drbd", "iscsi"];

/// The step by which a host loses its power and starts again.
const KILLED: &str = "killed";

/// Boots the hosts' guests, from one initramfs and one root.
struct Origin<'a> {
    layout: &'a Layout,
    trees: &'a Trees,
    initramfs: PathBuf,
    directory: &'a Path,
}

impl Origin<'_> {
    fn boot(&self, host: &str, wire: &Wire) -> Result<hosts::Host> {
        let sockets = self.directory.join(host);
        fs::create_dir_all(&sockets)?;
        let name = format!("storage-{host}");
        let place = (&name[..], self.initramfs.as_path());
        let (clock, wire) = (Clock::Free(2), Some(wire.clone()));
        hosts::boot(self.layout, place, self.trees, &sockets, clock, wire)
    }
}

/// A host, and its guest while it has power.
struct Host {
    name: &'static str,
    wire: Wire,
    guest: Option<hosts::Host>,
}

impl Host {
    /// Ends the guest at once, and boots it again.
    fn kill(&mut self, origin: &Origin<'_>) -> Result<()> {
        self.guest = None;
        self.guest = Some(origin.boot(self.name, &self.wire)?);
        Ok(())
    }

    fn guest(&mut self) -> Result<&mut hosts::Host> {
        self.guest.as_mut().context("the host has no power")
    }
}

/// Takes the steps of the scripts that the options name, or of all, each as a test. The steps of a
/// script build on each other, so the first that fails is the last.
///
/// # Errors
/// If there is no such script, or a guest does not boot.
pub fn run(layout: &Layout, options: &Options) -> Result<Part> {
    let mut scripts = options.parts.clone();
    if scripts.is_empty() {
        scripts.extend(SCRIPTS.map(str::to_owned));
    }
    for script in &scripts {
        ensure!(
            SCRIPTS.contains(&&script[..]),
            "no script {script}; there are: {}",
            SCRIPTS.join(", ")
        );
    }
    let directory = TempDir::with_prefix("storage-").context("a temporary directory")?;
    let origin = Origin {
        layout,
        trees: &options.trees,
        initramfs: initramfs::with_module(layout, "guest-storage", Vec::new(), Vec::new())?,
        directory: directory.path(),
    };
    let mut results = Part::new("storage");
    for script in &scripts {
        let mut machines = Vec::new();
        for (name, wire) in ["a", "b"].into_iter().zip(qemu::wire(directory.path())) {
            let guest = Some(origin.boot(name, &wire)?);
            machines.push(Host { name, wire, guest });
        }
        take_steps(script, &origin, &mut machines, &mut results)?;
        for (guest, _shared) in machines.into_iter().filter_map(|host| host.guest) {
            guest.end()?;
        }
    }
    Ok(results)
}

/// Takes the steps of `script` on the hosts `machines`.
fn take_steps(
    script: &str,
    origin: &Origin<'_>,
    machines: &mut [Host],
    results: &mut Part,
) -> Result<()> {
    let script_path = format!("bash /share/{script}");
    let (first, _) = machines[0].guest()?;
    let listed = first.ask(&format!("{script_path} list"))?;
    ensure!(listed.status == 0, "{script} list:\n{}", listed.text);
    for line in listed.text.lines() {
        let (name, on) = line.split_once(' ').context("a step without a host")?;
        ensure!(["a", "b", "both"].contains(&on), "{line}: no such host");
        let chosen = machines
            .iter_mut()
            .filter(|host| [host.name, "both"].contains(&on));
        for host in chosen {
            let test = format!("{script}_{name}_{}", host.name);
            step::say(&format!("storage: {test}"));
            if name == KILLED {
                host.kill(origin)?;
                continue;
            }
            let command = format!("{script_path} {name} {}", host.name);
            let (guest, _) = host.guest()?;
            let status = guest.run(&command, |line| println!("{line}"))?;
            let outcome = (status == 0).then_some(());
            results.take(
                &test,
                outcome.with_context(|| format!("exit status {status}")),
            );
            if status != 0 {
                return Ok(());
            }
        }
    }
    Ok(())
}
