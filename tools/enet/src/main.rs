// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lists PF_ENET sockets, explains counters, and finds out why a host does not answer.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

use std::process::ExitCode;

use enet_tools::cli;

fn main() -> ExitCode {
    cli::main()
}
