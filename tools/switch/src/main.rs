// SPDX-License-Identifier: MIT OR Apache-2.0

//! A switch to try flow control on: a bridge whose ports have a rate and a small buffer, and hosts on it as network
//! namespaces.
//!
//! ```text
//!   namespace h0                       namespace switch                      namespace h1
//!   eth0 ---- netem: rate, loss ---->  p0   br0   p1: tbf, buffer  ------->  eth0
//!        <--- p0: tbf, buffer -------  p0         p1  <-- netem: rate, loss  eth0
//! ```
//!
//! What a host sends meets its own cable first, which carries one frame after the other at the port's rate and may
//! lose some, and then the buffer of the port it leaves the switch by, where frames that find no room are dropped and
//! counted. It uses the programs `ip`, `bridge` and `tc` of iproute2.

#![forbid(unsafe_code)]

mod counters;
mod plan;
mod programs;
mod state;
mod units;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use plan::Settings;

const EXAMPLES: &str = "\
Examples:
  33 hosts on a switch with 200 Mbit/s and 128 KiB of buffer per port:
    enet-switch up --hosts 33 --rate 200mbit --buffer 128k

  A server on host 0, a client on host 1; host N has the IP address 10.0.0.N+1:
    ip netns exec h0 netgauge --server &
    ip netns exec h1 netgauge -m tcp,esp -x bulk --connect 10.0.0.1

  What was dropped, and then counting from zero:
    enet-switch drops
    enet-switch reset

  Ports that mark from 30 KiB on, as DCTCP wants it (without marks it is Reno; both ends must use it):
    enet-switch up --hosts 9 --rate 200mbit --buffer 128k --ecn 30k
    modprobe tcp_dctcp
    sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic dctcp'
    ip netns exec h0 sysctl -w net.ipv4.tcp_congestion_control=dctcp    # and so for each host

Exit status: 0 if it was done, 1 if not, 2 for a wrong command line.";

/// Makes a switch with slow ports and small buffers, and hosts on it, out of network namespaces.
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
    /// Print what each port sent and dropped, since `up` or `reset`
    Drops {
        /// Print it for a program to read
        #[arg(long)]
        json: bool,
    },
    /// Count from zero again
    Reset,
    /// Remove the switch and its hosts; programs that run on them keep running, without a network
    Down,
}

fn main() -> ExitCode {
    match run(&Cli::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("enet-switch: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: &Verb) -> Result<()> {
    match verb {
        Verb::Up(settings) => up(settings),
        Verb::Drops { json } => drops(*json),
        Verb::Reset => reset(),
        Verb::Down => down(),
    }
}

fn up(settings: &Settings) -> Result<()> {
    state::ensure_none_is_up()?;
    programs::ensure_free(&plan::namespaces(settings.hosts))?;
    state::create(settings)?;
    let built = plan::steps(settings)
        .iter()
        .try_for_each(programs::run)
        .and_then(|()| programs::await_carrier(settings.hosts));
    if built.is_err() {
        // Whatever exists by now goes; what is in the way is told by the first error.
        let _ = down();
    }
    built?;
    println!("{settings}");
    Ok(())
}

fn drops(json: bool) -> Result<()> {
    let state = state::load()?;
    let report = counters::read(&state.settings)?.since(&state.baseline);
    if json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{report}");
    }
    Ok(())
}

fn reset() -> Result<()> {
    let mut state = state::load()?;
    state.baseline = counters::read(&state.settings)?.ports;
    state::store(&state)
}

fn down() -> Result<()> {
    let Some(state) = state::load_if_up()? else {
        println!("no switch is up");
        return Ok(());
    };
    programs::remove(&plan::namespaces(state.settings.hosts))?;
    state::forget()
}
