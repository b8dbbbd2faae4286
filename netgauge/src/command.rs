// SPDX-License-Identifier: MIT OR Apache-2.0

//! Subcommands: what netgauge does other than measuring as server, client or coordinator.
//!
//! Adding one is a file with its arguments and its work, and a line here.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::completions::CompletionsArgs;
use crate::plot::PlotArgs;

/// A subcommand.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Draw saved results as a picture
    Plot(PlotArgs),
    /// Print the completions of the command line for a shell
    Completions(CompletionsArgs),
}

impl Command {
    /// Does it.
    ///
    /// # Errors
    ///
    /// What the subcommand says.
    pub fn run(&self) -> Result<ExitCode> {
        match self {
            Self::Plot(args) => args.run(),
            Self::Completions(args) => args.run(),
        }
    }
}
