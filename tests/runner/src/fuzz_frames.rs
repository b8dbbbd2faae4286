//! Hostile frames by the million: the program that runs the scenarios makes, sends and counts them in a guest.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::commands::{Commands, Verb};
use crate::layout::Layout;
use crate::qemu::Clock;
use crate::step;

/// What is sent.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Hostile frames.
    #[arg(long, default_value_t = 1_000_000)]
    frames: u64,
    /// Settles what is made of valid frames; random if not given, and printed.
    #[arg(long)]
    seed: Option<u64>,
}

/// Prints what was done; true when nothing broke.
///
/// # Errors
/// When something does not build, the guest does not boot, or its kernel reports a fault.
pub fn run(layout: &Layout, options: &Options) -> Result<bool> {
    // A million takes minutes; a kernel that checks itself may take ten times as long.
    let deadline = Duration::from_secs(600) + Duration::from_millis(5) * options.frames as u32;
    let mut guest = Commands::boot(layout, "fuzz", Verb::Commands, Clock::Free(2), deadline)?;
    step::say("hostile frames");
    let seed = options
        .seed
        .map_or(String::new(), |seed| format!(" --seed {seed}"));
    let line = format!("scenarios --fuzz {}{seed}", options.frames);
    let status = guest.run(&line, |line| println!("{line}"))?;
    guest.end()?;
    Ok(status == 0)
}
