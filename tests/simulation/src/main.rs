// SPDX-License-Identifier: GPL-2.0-only

//! Simulates many ESP senders behind one switch port, with the real engine and no kernel.

use std::io::stdout;

use anyhow::Result;
use clap::Parser;
use esp_simulation::studies::Choice;

/// Simulates many ESP senders behind one switch port, with the real engine and no kernel.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    #[command(subcommand)]
    study: Choice,
}

fn main() -> Result<()> {
    Options::parse().study.show(&mut stdout().lock())
}
