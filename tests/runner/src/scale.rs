// SPDX-License-Identifier: GPL-2.0-only

//! Measures the cost of many connections over ESP and over TCP: memory, instructions, connections
//! per second, and ports.
//!
//! One guest, whose clock counts instructions, has two namespaces joined by a cable. In the guest,
//! the program `scenarios` measures the costs and compares them with their limits.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::commands::{Commands, Verb};
use crate::layout::Layout;
use crate::qemu::Clock;
use crate::step;

/// All studies, in the order in which they run.
const STUDIES: [&str; 4] = ["memory", "cost", "ports", "churn"];

/// Time limit for a measurement; many times the usual duration.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Options of the scale measurement.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Studies to run: memory, cost, ports or churn.
    #[arg(long, value_delimiter = ',', value_parser = STUDIES, default_values = STUDIES)]
    studies: Vec<String>,
}

/// Prints the tables; returns true if ESP keeps the limits of `docs/scale.md`.
///
/// # Errors
/// If something does not build, the guest does not boot, or its kernel reports a fault.
pub fn run(layout: &Layout, options: &Options) -> Result<bool> {
    let mut guest = Commands::boot(
        layout,
        "scale",
        Verb::Commands,
        Clock::Instructions,
        PATIENCE,
    )?;
    let mut good = true;
    for study in &options.studies {
        step::say(study);
        println!();
        let status = guest.run(&format!("scenarios --scale {study}"), |line| {
            println!("{line}");
        })?;
        println!();
        good &= status == 0;
    }
    guest.end()?;
    Ok(good)
}
