// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lists PF_ENET sockets, explains counters, and finds out why a host does not answer.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use enet_tools::cli::Cli;

fn main() -> ExitCode {
    Cli::parse().run()
}
