// SPDX-License-Identifier: GPL-2.0-only

//! Counts instructions per half round trip and per byte, by transport, and compares them with the
//! budgets of `netgauge/budgets.toml`. One guest does the work, and its clock counts instructions.
//!
//! The hosts are two network namespaces joined by a veth pair. One processor does the work of both
//! hosts, so a number is the whole cost of a message. Wall time has no influence, so the same
//! kernel and programs give the same numbers.

mod budgets;
mod figures;
mod link;
mod memory;
mod series;
pub mod shares;
mod strings;

use std::time::Duration;

use anyhow::{ensure, Context, Result};
use clap::Args;

use self::budgets::{Budgets, Verdict};
use self::figures::{Figure, Reading, Report};
pub use self::link::Link;
use self::series::{Series, Wanted, BYTE, MESSAGE, SERIES, STREAMS, TRANSPORTS, TURNS};
use crate::commands::{Commands, Verb};
use crate::judge::Part;
use crate::layout::Layout;
use crate::profile::Tracer;
use crate::qemu::Clock;
use crate::step;

pub use performance::topics::UNLIMITED;

/// Returns netgauge's options for a run over [`Link::Usual`]. The server is in the other namespace,
/// and the report is in JSON.
pub fn to_server() -> String {
    over(Link::Usual)
}

/// Returns the options of [`to_server`] for `link`.
pub fn over(link: Link) -> String {
    format!("{} --format json", link.to_server())
}

/// Returns the arguments of `netgauge polled` for `link`. In `netgauge polled`, one thread holds
/// both ends.
pub fn between_ends(link: Link) -> String {
    format!("{} --format json", link.ends())
}

/// Time limit for a measurement; many times the usual duration.
const PATIENCE: Duration = Duration::from_secs(900);

/// A choice of figures.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// Measure only the figures with these names, such as `byte` or `*byte*`; * matches any text.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Count memory accesses instead of measuring the figures: loads, stores, locked instructions
    /// and misses of modelled caches, beside the instructions.
    #[arg(long, conflicts_with = "only")]
    memory: bool,
}

/// Prints the figures with their budgets. Returns true if every transport could be measured and no
/// figure exceeds its budget.
///
/// # Errors
/// If something does not build, the guest does not boot, its kernel reports a fault, or the budgets
/// cannot be read.
pub fn run(layout: &Layout, options: &Options) -> Result<bool> {
    if options.memory {
        return memory::run(layout).map(|()| true);
    }
    let wanted = Wanted(options.only.clone());
    let budgets = Budgets::read(layout)?;
    let mut guest = boot(layout)?;
    strings::check(&mut guest)?;
    let mut figures = counted(&mut guest, &wanted)?;
    if [MESSAGE, BYTE].iter().any(|name| wanted.is_share(name)) {
        figures.extend(in_kernel(&mut guest, &figures)?);
    }
    guest.end()?;
    figures.retain(|figure| wanted.is(&figure.name));
    ensure!(!figures.is_empty(), "no figure has such a name");
    let verdicts = budgets.judge(&figures);
    println!("{}", budgets::table(&figures, &verdicts));
    Ok(verdicts.iter().all(Verdict::is_good))
}

/// Measures, as a part of the tests, all figures except the shares that [`shares`] counts.
///
/// # Errors
/// The errors of [`run`].
pub fn check(layout: &Layout) -> Result<Part> {
    let budgets = Budgets::read(layout)?;
    let mut guest = boot(layout)?;
    let mut part = Part::new("bench");
    part.take(
        "string instructions are not counted by the byte",
        strings::check(&mut guest),
    );
    let figures = counted(&mut guest, &Wanted::default())?;
    guest.end()?;
    for verdict in budgets.judge(&figures) {
        part.take(&verdict.name(), verdict.outcome());
    }
    Ok(part)
}

/// Returns the instructions of half a round trip of one byte, by transport.
///
/// # Errors
/// If the guest ends, or a transport cannot be measured.
pub fn messages(guest: &mut Commands) -> Result<Vec<(String, f64)>> {
    const TESTS: u32 = 200;
    let arguments = format!(
        "-m {} -x one-one -s 1 -c {TESTS} --warmup {TESTS} {}",
        TRANSPORTS.join(","),
        to_server()
    );
    let report = ask(guest, &arguments)?;
    TRANSPORTS
        .iter()
        .map(|transport| {
            let count = report
                .read(transport, Reading::HalfRoundTrip(1))
                .with_context(|| format!("{transport} could not be measured"))?;
            Ok(((*transport).to_owned(), count))
        })
        .collect()
}

fn boot(layout: &Layout) -> Result<Commands> {
    boot_named(layout, "bench")
}

/// Boots a guest named `name` that has all links.
///
/// # Errors
/// If something does not build, or the guest does not boot.
pub fn boot_named(layout: &Layout, name: &str) -> Result<Commands> {
    let wire = Some(link::WIRE);
    Commands::boot_on(
        layout,
        name,
        Verb::Bench,
        Clock::Instructions,
        PATIENCE,
        wire,
    )
}

/// Returns the figures that netgauge measures as times. The guest's clock counts instructions, so
/// the times are numbers of instructions.
fn counted(guest: &mut Commands, wanted: &Wanted) -> Result<Vec<Figure>> {
    let chosen: Vec<_> = SERIES
        .iter()
        .filter(|series| wanted.needs(series))
        .collect();
    // The first execution of code costs more, because it fills caches and touches pages.
    step::say("first runs, not counted");
    for series in chosen.iter().filter(|series| series.link == Link::Usual) {
        ask(guest, &series.first_arguments())?;
    }
    let mut link = Link::Usual;
    let mut figures = Vec::new();
    for series in chosen {
        if series.link != link {
            link = series.link;
            link.set_up(guest)?;
        }
        figures.extend(measure(guest, series)?);
    }
    if link != Link::Usual {
        Link::Usual.set_up(guest)?;
    }
    if wanted.is(TURNS) {
        figures.extend(turns(guest)?);
    }
    Ok(figures)
}

/// Measures the figure [`TURNS`], a dialogue on many connections, in a separate pair of namespaces.
fn turns(guest: &mut Commands) -> Result<Vec<Figure>> {
    step::say(&format!("counting instructions: {TURNS}"));
    let ended = guest.ask("! chrt -f 1 scenarios --scale turns")?;
    ensure!(ended.status == 0, "{TURNS}: {}", ended.text);
    let count = |transport: &str| {
        let mut lines = ended.text.lines();
        lines.find_map(|line| line.strip_prefix(transport)?.trim().parse().ok())
    };
    let figure = |transport: &str| Figure {
        transport: transport.to_owned(),
        name: TURNS.to_owned(),
        count: count(transport),
    };
    Ok(STREAMS.map(figure).into())
}

/// Returns the figures of one run.
fn measure(guest: &mut Commands, series: &Series) -> Result<Vec<Figure>> {
    let names: Vec<_> = series.figures.iter().map(|(name, _)| *name).collect();
    step::say(&format!("counting instructions: {}", names.join(", ")));
    let report = ask(guest, &series.arguments())?;
    for run in &report.runs {
        if let Some(error) = &run.error {
            eprintln!("{}, {}: {error}", run.transport, run.pattern);
        }
    }
    Ok(report.figures(series))
}

/// For a message and for a byte, returns how many of the instructions are executed in the kernel,
/// and how many of these in softirqs.
fn in_kernel(guest: &mut Commands, figures: &[Figure]) -> Result<Vec<Figure>> {
    step::say("counting where the instructions are executed");
    let mut tracer = Tracer::new(guest)?;
    let mut found = Vec::new();
    for transport in TRANSPORTS {
        let times = match transport {
            "tcp" => shares::MANY_AT_A_TIME,
            _ => 1,
        };
        for (name, shares) in shares::measure(guest, &mut tracer, transport, times)? {
            let mut measured = figures.iter();
            let of = measured.find(|figure| figure.transport == transport && figure.name == name);
            // A figure that was not requested is missing in `figures`, so its shares are left out.
            found.extend(of.into_iter().flat_map(|of| shares.figures(of)));
        }
    }
    tracer.tell_unlisted();
    Ok(found)
}

/// Runs netgauge in the guest and returns its report. The report names the transports that failed.
fn ask(guest: &mut Commands, arguments: &str) -> Result<Report> {
    let ended = guest.ask(&format!("{arguments} {UNLIMITED}"))?;
    let report: Report = ended.report().context("netgauge")?;
    ensure!(
        !report.runs.is_empty(),
        "netgauge measured nothing:\n{}",
        ended.text
    );
    Ok(report)
}
