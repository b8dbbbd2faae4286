// SPDX-License-Identifier: GPL-2.0-only

//! Makes random socket calls for a given time, in a guest of two processors.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::commands;
use crate::layout::Layout;
use crate::qemu::Clock;

/// Time for booting and for the check for leftovers, in addition to the time in which calls are
/// made.
const MARGIN: Duration = Duration::from_secs(400);

/// Options of the call fuzzer.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Seconds for which calls are made.
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// Seed of the calls, to repeat a run; random if not given.
    #[arg(long)]
    seed: Option<u64>,
}

/// Prints the calls by kind; returns true if nothing is left over and everything still works.
///
/// # Errors
/// If something does not build, the guest does not boot, or its kernel reports a fault.
pub fn run(layout: &Layout, options: &Options) -> Result<bool> {
    let seconds = options.seconds;
    let line = format!(
        "scenarios --fuzz-calls {seconds}{}",
        commands::seed(options.seed)
    );
    let patience = Duration::from_secs(seconds) + MARGIN;
    commands::once(layout, "fuzz-calls", Clock::Free(2), patience, &line)
}
