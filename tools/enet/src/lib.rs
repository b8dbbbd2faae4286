// SPDX-License-Identifier: MIT OR Apache-2.0

//! The program `enet`: lists sockets, sends echo requests, explains and exports counters, and runs
//! TCP programs over ESP.
//!
//! Parsers take text and formatters return text, so tests need neither the module nor a network.

#![deny(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod cli;
mod completions;
pub mod counters;
pub mod endpoint;
mod exporter;
pub mod http;
mod interfaces;
mod listen;
mod mapped;
pub mod metrics;
mod module;
mod output;
mod owners;
mod ping;
mod proc_file;
mod run;
mod server;
pub mod sockets;
mod ss;
mod stats;
pub mod table;
