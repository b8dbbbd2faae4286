// SPDX-License-Identifier: MIT OR Apache-2.0

//! The program that creates and removes an emulated switch.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory as _, Parser, Subcommand};
use enet_switch::plan::Settings;

const EXAMPLES: &str = "\
Examples:
  33 hosts on a switch with 200 Mbit/s and 128 KiB of buffer per port:
    enet-switch up --hosts 33 --rate 200mbit --buffer 128k

  A server on host 0, a client on host 1; host N has the IP address 10.0.0.N+1:
    ip netns exec h0 netgauge --server &
    ip netns exec h1 netgauge -m tcp,esp -x bulk --connect 10.0.0.1

  Dropped frames, and a reset of the counters:
    enet-switch drops
    enet-switch reset

  Ports that mark (ECN) from 30 KiB on, for DCTCP (which is Reno without marks; both ends must use it):
    enet-switch up --hosts 9 --rate 200mbit --buffer 128k --ecn 30k
    modprobe tcp_dctcp
    sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic dctcp'
    ip netns exec h0 sysctl -w net.ipv4.tcp_congestion_control=dctcp    # and so for each host

Exit status: 0 on success, 1 on failure, 2 for a wrong command line.";

/// Makes hosts of network namespaces, on a switch with slow ports and small buffers.
#[derive(Debug, Parser)]
#[command(name = "enet-switch", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make the switch and its hosts, the namespaces h0, h1, ...
    Up(Settings),
    /// Print the frames that each port sent and dropped since `up` or `reset`
    Drops {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Reset the counters
    Reset,
    /// Remove the switch and its hosts; programs on them keep running, without a network
    Down,
}

/// Exit status for a wrong command line.
const WRONG_LINE: u8 = 2;

fn main() -> ExitCode {
    let done = match Cli::try_parse().and_then(checked) {
        Ok(cli) => run(&cli.verb),
        Err(error) => {
            let printed = error.print().and_then(|()| io::stdout().flush());
            if error.use_stderr() {
                return ExitCode::from(WRONG_LINE);
            }
            unless_closed(printed)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If the message cannot be written, it is lost; the exit status is the same.
            let _ = writeln!(io::stderr(), "enet-switch: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Checks settings whose bounds depend on each other.
fn checked(cli: Cli) -> Result<Cli, clap::Error> {
    if let Verb::Up(settings) = &cli.verb {
        let wrong = |error| Cli::command().error(clap::error::ErrorKind::ValueValidation, error);
        settings.check().map_err(wrong)?;
    }
    Ok(cli)
}

fn run(verb: &Verb) -> Result<()> {
    match verb {
        Verb::Up(settings) => {
            enet_switch::up(settings)?;
            print(&format!("{settings}\n"))?;
        }
        Verb::Drops { json } => {
            let report = enet_switch::drops()?;
            if *json {
                print(&(serde_json::to_string_pretty(&report)? + "\n"))?;
            } else {
                print(&report.to_string())?;
            }
        }
        Verb::Reset => enet_switch::reset()?,
        Verb::Down => {
            if !enet_switch::down()? {
                print("no switch is up\n")?;
            }
        }
    }
    Ok(())
}

fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    unless_closed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Returns the result of writing output. A pipe that its reader, such as `head`, has closed is no
/// error.
fn unless_closed(written: io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.context("writing the output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_the_manual_page() {
        manpage::has_all_options("enet-switch.1", Cli::command());
    }
}
