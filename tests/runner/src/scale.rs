// SPDX-License-Identifier: GPL-2.0-only

//! What many connections cost, over ESP and over TCP: memory, instructions, connections per second,
//! ports.
//!
//! One guest whose clock counts instructions, two namespaces joined by a cable; the program that
//! runs the scenarios measures and judges.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::commands::{Commands, Verb};
use crate::layout::Layout;
use crate::qemu::Clock;
use crate::step;

/// Every study, in the order in which they run.
const STUDIES: [&str; 4] = ["memory", "cost", "ports", "churn"];

/// How long one measurement may take; many times of what it does.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What is measured.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Which of memory, cost, ports and churn.
    #[arg(long, value_delimiter = ',', value_parser = STUDIES, default_values = STUDIES)]
    studies: Vec<String>,
}

/// Prints the tables; true when ESP keeps what `docs/scale.md` says.
///
/// # Errors
/// When something does not build, the guest does not boot, or its kernel reports a fault.
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
