//! Boots guests, with Debian's stock kernel unless told otherwise, and runs the scenarios, the demonstration and the benchmark in them.
//!
//! It runs inside the toolbox that `mk/toolbox` makes; `make` calls it.

mod bench;
mod checks;
mod commands;
mod demo;
mod dissector;
mod dos;
mod endurance;
mod faults;
mod fuzz_calls;
mod fuzz_frames;
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
mod qemu;
mod scale;
mod scenarios;
mod step;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::{Parser, Subcommand};
use judge::{Part, Total};
use layout::{Layout, Purpose};

/// Boots guests with a stock kernel and judges what happens in them.
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    verb: Verb,
    /// The kernel's directory, as `mk/kernel path` or `mk/debug-kernel path` prints it.
    #[arg(long)]
    kernel: PathBuf,
    /// It is the one of mk/debug-kernel: takes the module made for it, fewer and larger guests, and more time.
    #[arg(long)]
    debug: bool,
    /// Take the module and the programs as they were built last, while their sources are being changed.
    #[arg(long)]
    as_built: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Test everything.
    Test,
    /// Run the scenarios alone.
    Scenarios {
        /// Only these.
        names: Vec<String>,
        /// Guests at a time; with one, the scenarios run in order, last first.
        #[arg(long)]
        guests: Option<usize>,
    },
    /// Test the manual pages alone.
    Manual,
    /// Test the Wireshark dissector alone.
    Dissector,
    /// Test alone that misuses of the module's safe interfaces do not compile.
    Misuses,
    /// Print netgauge's table, measured between two guests.
    Demo,
    /// Print instructions per half round trip and per byte, and judge them by netgauge/budgets.toml.
    Bench,
    /// Print instructions per half round trip by function.
    Profile(profile::Options),
    /// Print goodput, drops and fairness of many senders to one, by protocol, and judge ESP's.
    Incast(incast::Options),
    /// Print one ESP stream's goodput over burst_length and packets_to_ack, and judge where its plateau is.
    Params(params::Options),
    /// Print what many connections cost, over ESP and TCP, and judge ESP's.
    Scale(scale::Options),
    /// Measure and draw the figures of docs/performance.md, and write it.
    Performance(performance::Options),
    /// Print what attacks by whoever is on the same Ethernet cost, and judge them.
    Dos,
    /// Make random calls with random arguments, from processes that are killed, and demand that nothing is left.
    FuzzCalls(fuzz_calls::Options),
    /// Print what every kind of traffic takes over every kind of bad wire, and write it to docs/faults.md.
    Faults(faults::Options),
    /// Send hostile frames to sockets in all states, and print what came of it.
    FuzzFrames(fuzz_frames::Options),
    /// Have two guests talk while the link between them is cut and restored, and demand that nothing else breaks.
    Endurance(endurance::Options),
    /// Run commands in a guest and print what they print.
    Run {
        /// Shell commands, one after the other until one fails.
        #[arg(required = true)]
        commands: Vec<String>,
        /// One processor whose clock counts instructions: an instruction is a nanosecond.
        #[arg(long)]
        counted: bool,
    },
    /// Open a shell in a guest.
    Shell,
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

/// Prints how one part went.
fn judge(part: Part) -> Result<bool> {
    let total = Total(vec![part]);
    println!("{total}");
    Ok(total.good())
}

/// True when all is well; what is not, has been said.
fn run(options: &Options) -> Result<bool> {
    let purpose = if options.debug {
        Purpose::Debug
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
        Verb::Dissector => judge(dissector::check(&layout)),
        Verb::Misuses => {
            programs::build_module(&layout)?;
            judge(misuses::check(&layout))
        }
        Verb::Demo => demo::run(&layout).map(|()| true),
        Verb::Bench => bench::run(&layout),
        Verb::Profile(options) => profile::run(&layout, options),
        Verb::Incast(options) => incast::run(&layout, options),
        Verb::Params(options) => params::run(&layout, options),
        Verb::Scale(options) => scale::run(&layout, options),
        Verb::Performance(options) => performance::run(&layout, options),
        Verb::Dos => dos::run(&layout),
        Verb::FuzzCalls(options) => fuzz_calls::run(&layout, options),
        Verb::Faults(options) => faults::run(&layout, options),
        Verb::FuzzFrames(options) => fuzz_frames::run(&layout, options),
        Verb::Endurance(options) => endurance::run(&layout, options),
        Verb::Run { commands, counted } => commands::run(&layout, commands, *counted),
        Verb::Shell => qemu::interact(&layout, &scenarios::file_system(&layout)?).map(|()| true),
    }
}
