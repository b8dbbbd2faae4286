//! Where the instructions of a half round trip go: how many each function executes, by transport.
//!
//! QEMU logs every block of instructions that it executes, while a guest like the benchmark's exchanges messages. Two
//! runs that differ in nothing but their number of round trips are subtracted from each other, so that what netgauge
//! does before and after cancels out. The guest's own list of symbols says which function a block belongs to.

mod symbols;
mod trace;
mod tracer;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

use self::symbols::Symbols;
pub use self::trace::{is_kernel, Counts, Place};
pub use self::tracer::Tracer;
use crate::bench::{to_server, UNLIMITED};
use crate::commands::{Commands, Verb};
use crate::layout::Layout;
use crate::qemu::Clock;
use crate::step;

const DEADLINE: Duration = Duration::from_secs(1800);

/// Round trips of the two runs that are compared.
const SHORT: u64 = 100;
const LONG: u64 = 400;

/// What to profile.
#[derive(Debug, Args)]
pub struct Options {
    /// The transports, as netgauge calls them; the first decides the order of the lines.
    #[arg(default_values_t = ["esp", "edp", "raw", "tcp"].map(str::to_owned))]
    protocols: Vec<String>,
    /// Bytes per message.
    #[arg(long, default_value_t = 1)]
    size: u64,
    /// Functions to print.
    #[arg(long, default_value_t = 40)]
    top: usize,
}

/// Instructions by function.
type Profile = BTreeMap<String, f64>;

/// Prints the table; true when every transport could be measured.
///
/// # Errors
/// When something does not build, the guest does not boot, a transport fails, or QEMU's log cannot be understood.
pub fn run(layout: &Layout, options: &Options) -> Result<bool> {
    let mut guest = Commands::boot(
        layout,
        "profile",
        Verb::Bench,
        Clock::Instructions,
        DEADLINE,
    )?;
    let size = options.size;
    let arguments = |protocol: &str, count| {
        format!(
            "-m {protocol} {} {UNLIMITED} -x one-one -s {size} -c {count} --warmup 20",
            to_server()
        )
    };
    step::say("first runs, not counted");
    for protocol in &options.protocols {
        median(&guest.ask(&arguments(protocol, LONG))?.report()?)?;
    }
    let mut tracer = Tracer::new(&mut guest)?;
    let mut profiles = Vec::new();
    let mut medians = Vec::new();
    for protocol in &options.protocols {
        step::say(&format!("counting {protocol}"));
        let (short, _): (_, Value) = tracer.count(&mut guest, &arguments(protocol, SHORT))?;
        let (long, report) = tracer.count(&mut guest, &arguments(protocol, LONG))?;
        profiles.push(compare(&short, &long, tracer.symbols()));
        medians.push(median(&report)?);
    }
    guest.end()?;
    tracer.tell_unlisted();
    println!("{}", table(options, &profiles, &medians));
    Ok(true)
}

/// The median of half a round trip in instructions, of netgauge's report.
fn median(report: &Value) -> Result<u64> {
    let run = &report["runs"][0];
    run["rows"][0]["half_rtt_ns"]["median"]
        .as_u64()
        .with_context(|| format!("netgauge measured nothing: {run}"))
}

/// What a half round trip takes by function, from instructions by address.
fn compare(short: &Counts, long: &Counts, symbols: &Symbols) -> Profile {
    let mut profile = Profile::new();
    let halves = 2.0 * (LONG - SHORT) as f64;
    for (place, more) in difference(short, long) {
        let name = symbols.name(place.address).to_owned();
        *profile.entry(name).or_default() += more / halves;
    }
    profile
}

/// By how much `long` exceeds `short`, in the order of the addresses.
pub fn difference(short: &Counts, long: &Counts) -> BTreeMap<Place, f64> {
    let places = short.keys().chain(long.keys());
    let of = |counts: &Counts, place| counts.get(place).copied().unwrap_or(0) as f64;
    places
        .map(|place| (*place, of(long, place) - of(short, place)))
        .collect()
}

/// Functions by their share of the first transport, then of the others; all of them in the last line.
fn table(options: &Options, profiles: &[Profile], medians: &[u64]) -> String {
    let names: BTreeSet<&String> = profiles.iter().flat_map(Profile::keys).collect();
    let count = |profile: &Profile, name: &str| profile.get(name).copied().unwrap_or(0.0);
    let mut lines: Vec<_> = names
        .into_iter()
        .map(|name| (name, profiles.iter().map(|p| count(p, name)).collect()))
        .collect();
    lines.sort_by(|(_, a): &(_, Vec<f64>), (_, b)| {
        b.partial_cmp(a).unwrap_or(std::cmp::Ordering::Equal)
    });
    let mut text = format!(
        "Instructions per half round trip of {} B, both ends together, by function\n\n",
        options.size
    );
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
    line(
        "as netgauge measured it (median)",
        medians.iter().map(u64::to_string).collect(),
    );
    text
}
