// SPDX-License-Identifier: GPL-2.0-only

//! `make storage` replicates a block device by DRBD between two guests, over sockets of the family
//! `ssocks`.
//!
//! The guests' root is a toolbox that has DRBD's tools, and a wire joins them, since DRBD's sockets
//! are in the initial namespace of a kernel. The script `tests/storage/node` takes the steps.

use std::fs;

use anyhow::{ensure, Context, Result};
use tempfile::TempDir;

use crate::hosts::{self, Trees};
use crate::initramfs;
use crate::judge::Part;
use crate::layout::Layout;
use crate::qemu::{self, Clock};
use crate::step;

/// The command that runs the script in a guest.
const NODE: &str = "bash /share/node";

/// Takes the script's steps, each as a test. The steps build on each other, so the first that fails
/// is the last.
///
/// # Errors
/// If a guest does not boot.
pub fn run(layout: &Layout, trees: &Trees) -> Result<Part> {
    let initramfs = initramfs::with_module(layout, "guest-storage", Vec::new(), Vec::new())?;
    let directory = TempDir::with_prefix("storage-").context("a temporary directory")?;
    let mut guests = Vec::new();
    for (host, wire) in ["a", "b"].into_iter().zip(qemu::wire(directory.path())) {
        let sockets = directory.path().join(host);
        fs::create_dir(&sockets)?;
        let name = format!("storage-{host}");
        let place = (&name[..], initramfs.as_path());
        let booted = hosts::boot(layout, place, trees, &sockets, Clock::Free(2), Some(wire))?;
        guests.push((host, booted));
    }
    let mut results = Part::new("storage");
    let listed = guests[0].1 .0.ask(&format!("{NODE} list"))?;
    ensure!(listed.status == 0, "node list:\n{}", listed.text);
    'steps: for line in listed.text.lines() {
        let (name, on) = line.split_once(' ').context("a step without a host")?;
        ensure!(["a", "b", "both"].contains(&on), "{line}: no such host");
        let chosen = guests
            .iter_mut()
            .filter(|(host, _)| [host, "both"].contains(&on));
        for (host, (guest, _)) in chosen {
            let test = format!("{name}_{host}");
            step::say(&format!("storage: {test}"));
            let status = guest.run(&format!("{NODE} {name} {host}"), |line| println!("{line}"))?;
            let outcome = (status == 0).then_some(());
            results.take(
                &test,
                outcome.with_context(|| format!("exit status {status}")),
            );
            if status != 0 {
                break 'steps;
            }
        }
    }
    for (_, (guest, _shared)) in guests {
        guest.end()?;
    }
    Ok(results)
}
