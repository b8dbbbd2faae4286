// SPDX-License-Identifier: GPL-2.0-only

//! Sends millions of hostile frames. In a guest, the program `scenarios` makes, sends and counts
//! the frames.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::commands;
use crate::layout::Layout;
use crate::qemu::Clock;

/// Options of the frame fuzzer.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Number of hostile frames.
    #[arg(long, default_value_t = 1_000_000)]
    frames: u64,
    /// Seed of the changes to valid frames; random if not given, and printed.
    #[arg(long)]
    seed: Option<u64>,
}

/// Prints the counts; returns true if nothing broke.
///
/// # Errors
/// If something does not build, the guest does not boot, or its kernel reports a fault.
pub fn run(layout: &Layout, options: &Options) -> Result<bool> {
    // A million frames take minutes; the debug kernel may take ten times as long.
    let deadline = Duration::from_secs(600) + Duration::from_millis(5) * options.frames as u32;
    let line = format!(
        "scenarios --fuzz {}{}",
        options.frames,
        commands::seed(options.seed)
    );
    commands::once(layout, "fuzz", Clock::Free(2), deadline, &line)
}
