// SPDX-License-Identifier: GPL-2.0-only

//! The studies. Each study runs simulations and shows the results as a table or as JSON; some also
//! draw a picture.

pub mod alltoall;
pub mod announce;
pub mod beside;
pub mod burst;
pub mod rack;
pub mod scale;
pub mod silent;
pub mod table;
pub mod workloads;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{ensure, Result};
use clap::builder::TypedValueParser;
use clap::{value_parser, Args, Command, Subcommand};
use esp::Nanos;
use serde::Serialize;

use crate::conditions::Conditions;
use crate::network::Rate;
use crate::report::{write_json, Columns, Table};
use crate::rounds::{self, Message, Summary, Workload};
use crate::simulation::{Parameters, Setup};

/// Declares the command line of all studies. A new study needs one file and one entry below.
macro_rules! studies {
    ($($(#[$about:meta])* $name:ident: $module:ident,)*) => {
        /// The study that the command line names.
        #[derive(Debug, Subcommand)]
        pub enum Choice {
            $($(#[$about])* $name(Call<$module::Options>),)*
        }

        impl Choice {
            /// Runs the study, and writes the results to `out`.
            pub fn show(&self, out: &mut dyn Write) -> Result<()> {
                match self {
                    $(Self::$name(call) => call.show(out),)*
                }
            }
        }
    };
}

studies! {
    /// Goodput and buffer use over links and numbers of senders
    Table: table,
    /// Buffer use, goodput and fairness over the number of senders
    Scale: scale,
    /// The effect of announcements on ports: drops and completion times over
    /// initial_ack_burst_length
    Announce: announce,
    /// The delay of the other senders if some senders fall silent
    Silent: silent,
    /// Loaded latency: the time from a short request to its answer while streams occupy the port
    Beside: beside,
    /// All hosts send to all others, like MPI's alltoall
    Alltoall: alltoall,
    /// Slowdown of messages of published sizes at random times, relative to an idle network
    Workloads: workloads,
    /// Goodput over burst_length and packets_to_ack
    Burst: burst,
    /// Requirements in a rack: links of 1 to 100 Gbit/s that lose, reorder, delay and are shared
    Rack: rack,
}

/// A study: its own options, and how it runs, prints and draws.
pub trait Study: Args {
    /// One result of the study. It becomes one line of the table.
    type Line: Serialize + 'static;

    /// The columns of the table.
    const COLUMNS: Columns<Self::Line> = &[];

    /// Runs the simulations.
    fn run(&self, common: &Common) -> Result<Vec<Self::Line>>;

    /// Prints the results: by default as one table.
    fn print(lines: &[Self::Line], out: &mut dyn Write) -> io::Result<()> {
        Table::of(lines, Self::COLUMNS).write(out)
    }

    /// Draws the results if the options name a file.
    fn draw(&self, _lines: &[Self::Line]) -> Result<()> {
        Ok(())
    }
}

/// The command line of a study: the options of all studies, and its own.
#[derive(Debug, Args)]
pub struct Call<S: Study> {
    #[command(flatten)]
    common: Common,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    study: S,
}

impl<S: Study> Call<S> {
    fn show(&self, out: &mut dyn Write) -> Result<()> {
        let lines = self.study.run(&self.common)?;
        self.study.draw(&lines)?;
        if self.json {
            return write_json(&lines, out);
        }
        Ok(S::print(&lines, out)?)
    }
}

/// The option of studies that can draw their results.
#[derive(Clone, Debug, Args)]
pub struct Picture {
    /// Draw a picture as well
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

impl Picture {
    fn draw(&self, draw: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        self.plot.as_deref().map_or(Ok(()), draw)
    }
}

const MEGABIT: u64 = 1_000_000;
const GIGABIT: u64 = 1_000 * MEGABIT;

/// Maximum packets of one send call, somewhat fewer than the sequence numbers allow.
const MOST_PACKETS: u64 = 32_000;

/// The options of all studies.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Rounds per setting
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Device MTU, bytes; at least 300, because the studies have messages of 8 MiB
    #[arg(long, default_value_t = 1500, value_parser = value_parser!(u16).range(300..))]
    pub mtu: u16,
    /// Latency of a packet in its two hosts together, half in each, microseconds
    #[arg(long, default_value = "8", value_parser = microseconds)]
    pub processing: Nanos,
    /// Propagation on each link, one way, nanoseconds
    #[arg(long, default_value_t = 100)]
    pub propagation: u32,
    /// Bytes that a frame occupies on the wire beyond what it has in a buffer: check sequence,
    /// preamble and gap
    #[arg(long, default_value_t = 24)]
    pub framing: u16,
    /// Part of all packets that is lost at random, 0 to 1
    #[arg(long, default_value_t = 0.0, value_parser = probability)]
    pub loss: f64,
    /// Senders start at random times within this many microseconds; 0: all at once
    #[arg(long, default_value = "0", value_parser = microseconds)]
    pub stagger: Nanos,
    /// The parameter round_trip_time, microseconds
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u32).range(10..=1_000_000))]
    pub round_trip_time: u32,
    /// Receive buffer of each connection, bytes, of which a packet takes its payload and 768; the
    /// default never fills
    #[arg(long, default_value_t = 1 << 30, value_parser = value_parser!(u32).range(1..=1 << 30))]
    pub receive_buffer: u32,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Default for Common {
    fn default() -> Self {
        defaults()
    }
}

/// Returns the options `T` with their default values.
fn defaults<T: Args>() -> T {
    let command = T::augment_args(Command::new("defaults"));
    let matches = command.get_matches_from(["defaults"]);
    T::from_arg_matches(&matches).expect("no option is required")
}

impl Common {
    /// Returns a setup with these common options.
    pub fn setup(&self, senders: usize, bits: u64, buffer: u32, mut esp: Parameters) -> Setup {
        esp.round_trip_time = self.round_trip_time;
        Setup {
            senders,
            together: 0,
            pool: 1,
            rate: Rate {
                bits,
                framing: u32::from(self.framing),
            },
            buffer,
            esp,
            receiver: None,
            mtu: self.mtu,
            receive_buffer: self.receive_buffer,
            processing: self.processing,
            propagation: Nanos::from(self.propagation),
            loss: self.loss,
            conditions: Conditions::default(),
            seed: self.seed,
        }
    }

    /// Fails if a message of `bytes` has more packets than one send call can queue here.
    pub fn check_message(&self, bytes: u64) -> Result<()> {
        let mss = u64::from(esp::mss(u32::from(self.mtu)));
        let most = MOST_PACKETS * mss;
        ensure!(
            bytes <= most,
            "a message of {bytes} bytes has too many packets: at this MTU, --bytes is at most {most}"
        );
        Ok(())
    }

    /// Returns a workload in which every sender sends `message` in each round.
    pub fn workload(&self, message: Message) -> Workload {
        Workload {
            message,
            rounds: usize::from(self.rounds),
            stagger: self.stagger,
            ..Workload::default()
        }
    }

    /// Runs rounds in which every sender sends `message`, and computes their statistics.
    fn measure(&self, setup: &Setup, message: Message) -> Summary {
        rounds::measure(setup.clone(), &self.workload(message))
    }
}

/// The results of rounds in which all messages have the same size.
#[derive(Debug, Serialize)]
pub struct Measured {
    setup: Setup,
    bytes: u64,
    #[serde(flatten)]
    summary: Summary,
}

impl Measured {
    fn new(common: &Common, setup: Setup, bytes: u64) -> Self {
        Self {
            summary: common.measure(&setup, Message::Bytes(bytes)),
            setup,
            bytes,
        }
    }
}

/// Makes parameters from the values that a study varies.
fn parameters(burst_length: u16, packets_to_ack: u16, initial_ack_burst_length: u16) -> Parameters {
    Parameters {
        burst_length,
        burst_length_max: burst_length,
        packets_to_ack,
        initial_ack_burst_length,
        ..Parameters::default()
    }
}

/// Parses a share, from 0 to below 1.
fn probability(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0..1.0).contains(&value) => Ok(value),
        _ => Err("not a part from 0 to below 1".into()),
    }
}

/// Parses a time in microseconds; returns nanoseconds.
fn microseconds(text: &str) -> Result<Nanos, String> {
    match text.parse() {
        Ok(value) if (0.0..=1e6).contains(&value) => Ok(f64::round(value * 1e3) as Nanos),
        _ => Err("not a time from 0 to 1000000 microseconds".into()),
    }
}

/// Parses a rate in Mbit/s; returns bits per second.
fn megabits() -> impl TypedValueParser<Value = u64> {
    value_parser!(u64)
        .range(1..=1_000_000)
        .map(|rate| rate * MEGABIT)
}

/// Parses a rate in Gbit/s; returns bits per second.
fn gigabits() -> impl TypedValueParser<Value = u64> {
    value_parser!(u64)
        .range(1..=1_000)
        .map(|rate| rate * GIGABIT)
}

/// Parses a number of senders.
fn senders(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=10_000).contains(&number) => Ok(number),
        _ => Err("not a number of senders, 1 to 10000".into()),
    }
}

/// Parses a size: `64K`, `1M`, or bytes.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size: bytes, or a number with K or M");
    let (digits, unit) = match text.trim_end_matches(['K', 'M']) {
        digits if digits.len() == text.len() => (digits, 1),
        digits if text.ends_with('K') => (digits, 1 << 10),
        digits => (digits, 1 << 20),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    match number.checked_mul(unit) {
        Some(bytes) if (1..=1 << 30).contains(&bytes) => Ok(bytes),
        _ => Err(wrong()),
    }
}

/// Parses the size of a buffer.
fn buffer(text: &str) -> Result<u32, String> {
    // `size` accepts at most 1 GiB.
    Ok(size(text)? as u32)
}
