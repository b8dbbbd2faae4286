// SPDX-License-Identifier: GPL-2.0-only

//! Counts the instructions of a half round trip, or of a stream, by function and transport.
//!
//! While a guest like the benchmark's guest exchanges messages, QEMU logs every block of
//! instructions that it executes. Two runs differ only in their number of round trips or bytes. In
//! the difference of their counts, netgauge's work before and after the messages cancels out. The
//! guest's own list of symbols maps blocks to functions.

mod symbols;
mod trace;
mod tracer;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

pub use self::symbols::Symbols;
pub use self::trace::{is_kernel, Counts, Place};
pub use self::tracer::Tracer;
use crate::bench::{self, Link, UNLIMITED};
use crate::layout::Layout;
use crate::step;

/// Numbers of round trips in the first and in the second run.
const ROUNDS: [u64; 2] = [100, 400];
/// Numbers of streams in the first and in the second run.
const STREAMS: [u64; 2] = [1, 3];
/// KiB of one stream.
const STREAM: u64 = 8192;
/// Numbers of messages of a flood in the first and in the second run.
const FLOODS: [u64; 2] = [2000, 10_000];

/// The work of the two runs that are compared.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Round trips of messages with this number of bytes.
    Messages(u64),
    /// A stream in writes of this number of bytes.
    Stream(u64),
    /// Messages of this number of bytes, without waiting for answers.
    Flood(u64),
    /// Round trips of messages with this number of bytes. One thread holds both ends.
    Polled(u64),
}

impl Work {
    /// Returns netgauge's options for the second run if `long` is true, otherwise for the first,
    /// shorter run.
    fn arguments(self, long: bool) -> String {
        let run = usize::from(long);
        match self {
            Self::Messages(size) => {
                format!("-x one-one -s {size} -c {} --warmup 20", ROUNDS[run])
            }
            Self::Stream(block) => {
                format!(
                    "-x bulk --block {block} -s {STREAM}K -c {} --warmup 1",
                    STREAMS[run]
                )
            }
            Self::Flood(size) => format!("-x flood -s {size} -c {} --warmup 200", FLOODS[run]),
            Self::Polled(size) => format!("polled -s {size} -c {} --warmup 20", ROUNDS[run]),
        }
    }

    /// Returns the work that the second run does in addition to the work of the first run, in half
    /// round trips, KiB or messages.
    fn difference(self) -> f64 {
        let more = |[first, second]: [u64; 2]| second - first;
        let units = match self {
            Self::Messages(_) | Self::Polled(_) => 2 * more(ROUNDS),
            Self::Stream(_) => STREAM * more(STREAMS),
            Self::Flood(_) => more(FLOODS),
        };
        units as f64
    }

    /// Returns the number of instructions for one unit of work, from netgauge's own report of a
    /// run.
    fn reported(self, report: &Value) -> Result<f64> {
        let run = &report["runs"][0];
        let row = &run["rows"][0];
        let figure = match self {
            Self::Messages(_) | Self::Polled(_) => row["half_rtt_ns"]["median"].as_f64(),
            Self::Stream(_) => row["ns_per_byte"].as_f64().map(|byte| 1024.0 * byte),
            Self::Flood(_) => row["messages_per_s"].as_f64().map(|rate| 1e9 / rate),
        };
        figure.with_context(|| format!("netgauge measured nothing: {run}"))
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Messages(size) => write!(f, "half round trip of {size} B"),
            Self::Polled(size) => write!(f, "polled half round trip of {size} B"),
            Self::Stream(block) => write!(f, "KiB of a stream in writes of {block} B"),
            Self::Flood(size) => write!(f, "message of {size} B in a flood"),
        }
    }
}

/// Options of the profile.
#[derive(Debug, Args)]
pub struct Options {
    /// The transports, as netgauge calls them; the first decides the order of the lines.
    #[arg(default_values_t = ["esp", "edp", "raw", "tcp"].map(str::to_owned))]
    protocols: Vec<String>,
    /// Bytes per message.
    #[arg(long, default_value_t = 1)]
    size: u64,
    /// Profile a stream in writes of this many bytes instead.
    #[arg(long)]
    block: Option<u64>,
    /// Profile messages that wait for no answer instead.
    #[arg(long, conflicts_with = "block")]
    flood: bool,
    /// Instead, profile round trips within one thread that holds both ends and polls.
    #[arg(long, conflicts_with_all = ["block", "flood"])]
    polled: bool,
    /// The link between the hosts, as `make bench` has it.
    #[arg(long, value_enum, default_value_t = Link::Usual)]
    link: Link,
    /// Functions to print.
    #[arg(long, default_value_t = 40)]
    top: usize,
}

/// Instructions by function.
type Profile = BTreeMap<String, f64>;

/// Prints the table; returns true if every transport could be measured.
///
/// # Errors
/// If something does not build, the guest does not boot, a transport fails, or QEMU's log cannot be
/// parsed.
pub fn run(layout: &Layout, options: &Options) -> Result<bool> {
    let mut guest = bench::boot_named(layout, "profile")?;
    options.link.set_up(&mut guest)?;
    let work = match options.block {
        Some(block) => Work::Stream(block),
        None if options.flood => Work::Flood(options.size),
        None if options.polled => Work::Polled(options.size),
        None => Work::Messages(options.size),
    };
    let way = match work {
        Work::Polled(_) => bench::between_ends(options.link),
        _ => bench::over(options.link),
    };
    let arguments = |protocol: &str, long| {
        let what = work.arguments(long);
        format!("{what} -m {protocol} {UNLIMITED} {way}")
    };
    step::say("first runs, not counted");
    for protocol in &options.protocols {
        work.reported(&guest.ask(&arguments(protocol, true))?.report()?)?;
    }
    let mut tracer = Tracer::new(&mut guest)?;
    let mut profiles = Vec::new();
    let mut medians = Vec::new();
    for protocol in &options.protocols {
        step::say(&format!("counting {protocol}"));
        let (short, _): (_, Value) = tracer.count(&mut guest, &arguments(protocol, false))?;
        let (long, report) = tracer.count(&mut guest, &arguments(protocol, true))?;
        profiles.push(compare(&short, &long, work, tracer.symbols()));
        medians.push(work.reported(&report)?);
    }
    guest.end()?;
    tracer.tell_unlisted();
    println!("{}", table(options, work, &profiles, &medians));
    Ok(true)
}

/// Returns for each function the number of its instructions in a unit of work. `short` and `long`
/// are the counts of the first and of the second run, by address.
fn compare(short: &Counts, long: &Counts, work: Work, symbols: &Symbols) -> Profile {
    let mut profile = Profile::new();
    for (place, more) in difference(short, long) {
        let name = symbols.name(place.address).to_owned();
        *profile.entry(name).or_default() += more / work.difference();
    }
    profile
}

/// Returns by how much `long` exceeds `short` at each address, sorted by address.
pub fn difference(short: &Counts, long: &Counts) -> BTreeMap<Place, f64> {
    let places = short.keys().chain(long.keys());
    let of = |counts: &Counts, place| counts.get(place).copied().unwrap_or(0) as f64;
    places
        .map(|place| (*place, of(long, place) - of(short, place)))
        .collect()
}

/// Formats the functions, sorted by their share for the first transport, then for the next
/// transports. The last line is the total.
fn table(options: &Options, work: Work, profiles: &[Profile], medians: &[f64]) -> String {
    let names: BTreeSet<&String> = profiles.iter().flat_map(Profile::keys).collect();
    let count = |profile: &Profile, name: &str| profile.get(name).copied().unwrap_or(0.0);
    let mut lines: Vec<_> = names
        .into_iter()
        .map(|name| (name, profiles.iter().map(|p| count(p, name)).collect()))
        .collect();
    lines.sort_by(|(_, a): &(_, Vec<f64>), (_, b)| {
        b.partial_cmp(a).unwrap_or(std::cmp::Ordering::Equal)
    });
    let mut text = format!("Instructions per {work}, both ends together, by function\n\n");
    let mut line = |name: &str, cells: Vec<String>| {
        for cell in cells {
            let _ = write!(text, "{cell:>8} ");
        }
        let _ = writeln!(text, "  {name}");
    };
    line("", options.protocols.clone());
    let numbers = |numbers: &[f64]| numbers.iter().map(|n| format!("{n:.1}")).collect();
    for (name, counts) in lines.iter().take(options.top) {
        line(name, numbers(counts));
    }
    let mut rest = vec![0.0; profiles.len()];
    for (_, counts) in lines.iter().skip(options.top) {
        for (sum, count) in rest.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    line("(others)", numbers(&rest));
    let totals: Vec<f64> = profiles.iter().map(|p| p.values().sum()).collect();
    line("total", numbers(&totals));
    line("as netgauge measured it (median)", numbers(medians));
    text
}
