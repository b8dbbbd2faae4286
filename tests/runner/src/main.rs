// SPDX-License-Identifier: GPL-2.0-only

//! Boots guests, by default with Debian's stock kernel, and runs the scenarios, the demonstration
//! and the benchmark in them.
//!
//! The runner works inside the toolbox that `mk/toolbox` makes; `make` calls it.

mod allowance;
mod architecture;
mod bench;
mod beside;
mod checks;
mod commands;
mod demo;
mod dissector;
mod dos;
mod endurance;
mod faults;
mod fuzz_calls;
mod fuzz_frames;
mod hosts;
mod incast;
mod initramfs;
mod judge;
mod layout;
mod manual;
mod misuses;
mod params;
mod performance;
mod profile;
mod programs;
mod python;
mod qemu;
mod scale;
mod scenarios;
mod shared;
mod shell;
mod shell_walk;
mod stack;
mod step;
mod storage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::{Parser, Subcommand};
use judge::{Part, Total};
use layout::{Layout, Purpose};

/// Boots guests and runs tests and measurements in them.
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    verb: Verb,
    /// The kernel's directory, as `mk/kernel path` or `mk/debug-kernel path` prints it.
    #[arg(long)]
    kernel: PathBuf,
    /// Option --kernel names the kernel of mk/debug-kernel: use the module built for this kernel,
    /// fewer and larger guests, and longer timeouts.
    #[arg(long)]
    debug: bool,
    /// Option --kernel names a kernel chosen by RELEASE: use the module built for that release.
    #[arg(long, conflicts_with = "debug")]
    other: bool,
    /// Use the module and the programs as built last, without building them again.
    #[arg(long)]
    as_built: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run every test.
    Test,
    /// Run the scenarios.
    Scenarios {
        /// Run only these; * at the end of a name matches any rest.
        names: Vec<String>,
        /// Number of guests at a time; with one, the scenarios run in reverse order.
        #[arg(long)]
        guests: Option<usize>,
    },
    /// Check the manual pages.
    Manual,
    /// Run the tests of the Python package that need no module.
    Python,
    /// Check the Wireshark dissector.
    Dissector,
    /// Check that misuses of the module's safe interfaces do not compile.
    Misuses,
    /// Show the cost of a message, and the goodput of many senders to one receiver; takes a minute.
    Demo,
    /// Print instructions per half round trip and per byte; fail if one exceeds its budget in
    /// netgauge/budgets.toml.
    Bench(bench::Options),
    /// Print instructions per half round trip by function.
    Profile(profile::Options),
    /// Print goodput, drops and fairness of many senders to one receiver, by protocol; fail if
    /// ESP's results are worse than documented.
    Incast(incast::Options),
    /// Print one ESP stream's goodput over burst_length and packets_to_ack; fail if the plateau is
    /// not where it should be.
    Params(params::Options),
    /// Print the cost of many connections over ESP and TCP; fail if ESP's cost exceeds its limits.
    Scale(scale::Options),
    /// Measure the figures of docs/performance.md, and store the results in build/performance.json.
    Performance,
    /// Print the cost of attacks by a host on the same Ethernet; fail if one exceeds its limits.
    Dos,
    /// Make random calls from processes that are killed; fail if a socket or memory is left.
    FuzzCalls(fuzz_calls::Options),
    /// Print the time of every kind of traffic on every kind of bad link, and write the table to
    /// docs/faults.md.
    Faults(faults::Options),
    /// Send hostile frames to sockets in every state; fail if other traffic, sockets or memory are
    /// affected.
    FuzzFrames(fuzz_frames::Options),
    /// Run traffic between two guests while their link is cut and restored; fail if anything breaks
    /// for a reason other than a cut.
    Endurance(endurance::Options),
    /// Run commands in a guest and print what they print.
    Run {
        /// Shell commands; the first that fails ends the run.
        #[arg(required = true)]
        commands: Vec<String>,
        /// Use one processor whose clock counts instructions: an instruction is a nanosecond.
        #[arg(long)]
        counted: bool,
    },
    /// Run Open MPI over ESP between hosts in a guest.
    Mpi(hosts::Options),
    /// Run programs of TCP over mapped sockets between two hosts in a guest.
    Programs(hosts::Options),
    /// Replicate a block device between two guests by DRBD.
    Storage(hosts::Options),
    /// Open a shell in a guest with two hosts, or type the documents' commands there.
    Shell(shell::Options),
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the results of one part; returns whether they are good.
fn judge(part: Part) -> Result<bool> {
    let total = Total(vec![part]);
    println!("{total}");
    Ok(total.good())
}

/// Runs a subcommand; returns false after a failure that it has printed.
fn run(options: &Options) -> Result<bool> {
    let purpose = if options.debug {
        Purpose::Debug
    } else if options.other {
        Purpose::Other
    } else {
        Purpose::Stock
    };
    let layout = Layout::new(&options.kernel, purpose, options.as_built)?;
    match &options.verb {
        Verb::Test => {
            let total = checks::run(&layout)?;
            println!("\n{total}");
            Ok(total.good())
        }
        Verb::Scenarios { names, guests } => {
            let started = Instant::now();
            let total = Total(vec![scenarios::run(&layout, names, *guests)?]);
            println!("{total}");
            step::say(&format!(
                "the scenarios took {} s",
                started.elapsed().as_secs()
            ));
            Ok(total.good())
        }
        Verb::Manual => judge(manual::check(&layout)),
        Verb::Python => judge(python::check(&layout)),
        Verb::Dissector => judge(dissector::check(&layout)),
        Verb::Misuses => {
            programs::build_module(&layout)?;
            judge(misuses::check(&layout))
        }
        Verb::Demo => demo::run(&layout).map(|()| true),
        Verb::Bench(options) => bench::run(&layout, options),
        Verb::Profile(options) => profile::run(&layout, options),
        Verb::Incast(options) => incast::run(&layout, options),
        Verb::Params(options) => params::run(&layout, options),
        Verb::Scale(options) => scale::run(&layout, options),
        Verb::Performance => performance::run(&layout).map(|()| true),
        Verb::Dos => dos::run(&layout),
        Verb::FuzzCalls(options) => fuzz_calls::run(&layout, options),
        Verb::Faults(options) => faults::run(&layout, options),
        Verb::FuzzFrames(options) => fuzz_frames::run(&layout, options),
        Verb::Endurance(options) => endurance::run(&layout, options),
        Verb::Run { commands, counted } => commands::run(&layout, commands, *counted),
        Verb::Mpi(options) => judge(hosts::run(&layout, "mpi", options)?),
        Verb::Programs(options) => judge(hosts::run(&layout, "programs", options)?),
        Verb::Storage(options) => judge(if options.counted {
            hosts::run(&layout, "storage", options)?
        } else {
            storage::run(&layout, options)?
        }),
        Verb::Shell(options) => match shell::run(&layout, options)? {
            Some(part) => judge(part),
            None => Ok(true),
        },
    }
}
