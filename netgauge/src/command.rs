// SPDX-License-Identifier: MIT OR Apache-2.0

//! The subcommands. A command line without a subcommand runs a server, a client or a coordinator.
//!
//! A new subcommand needs a file with its arguments and its work, and a variant of [`Command`].

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::completions::CompletionsArgs;
use crate::lab::LabArgs;
#[cfg(feature = "pictures")]
use crate::plot::PlotArgs;
use crate::polled::PolledArgs;

/// A subcommand.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Draw saved results as a picture
    #[cfg(feature = "pictures")]
    Plot(PlotArgs),
    /// Print the completions of the command line for a shell
    Completions(CompletionsArgs),
    /// Measure in a lab: a switch and hosts made for it on this machine
    Lab(Box<LabArgs>),
    /// Measure a dialogue without sleep and wake-up: one thread holds both ends
    Polled(Box<PolledArgs>),
}

impl Command {
    /// Runs the subcommand. `whole` is the definition of the whole command line, from which
    /// completions are made.
    ///
    /// # Errors
    ///
    /// Fails with the subcommand's error.
    pub fn run(&self, whole: clap::Command) -> Result<ExitCode> {
        match self {
            #[cfg(feature = "pictures")]
            Self::Plot(args) => args.run(),
            Self::Completions(args) => args.run(whole),
            Self::Lab(args) => args.run(),
            Self::Polled(args) => args.run(),
        }
    }
}
