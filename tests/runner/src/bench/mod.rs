//! Instructions per half round trip and per byte, by transport, in one guest whose clock counts instructions, and whether
//! they are within the budgets of `netgauge/budgets.toml`.
//!
//! Two network namespaces joined by a veth pair are the hosts; one processor does both sides' work, so a number is
//! what a message costs in all. Wall time plays no part, and the same kernel and programs give the same numbers.

mod budgets;
mod figures;
pub mod shares;

use std::time::Duration;

use anyhow::{ensure, Context, Result};

use self::budgets::{Budgets, Verdict};
use self::figures::{Figure, Report, SIZES, TRANSPORTS};
use crate::commands::{Commands, Verb};
use crate::judge::Part;
use crate::layout::Layout;
use crate::profile::Tracer;
use crate::qemu::Clock;
use crate::step;

/// The address of the server's namespace, see `guest/init`.
pub const SERVER: &str = "10.0.0.2";

/// The MTU that Ethernet's hosts usually have, and a large one.
const MTUS: [u32; 2] = [1500, 9000];

/// How long one measurement may take; many times of what it does.
const PATIENCE: Duration = Duration::from_secs(900);

/// Prints all figures with their budgets; true when every transport could be measured and no budget is exceeded.
///
/// # Errors
/// When something does not build, the guest does not boot, its kernel reports a fault, or the budgets cannot be read.
pub fn run(layout: &Layout) -> Result<bool> {
    let budgets = Budgets::read(layout)?;
    let mut guest = boot(layout)?;
    let mut figures = counted(&mut guest)?;
    step::say("counting where the instructions are executed");
    let mut tracer = Tracer::new(&mut guest)?;
    for transport in TRANSPORTS {
        let times = match transport {
            "tcp" => shares::MANY_AT_A_TIME,
            _ => 1,
        };
        for (name, shares) in shares::measure(&mut guest, &mut tracer, transport, times)? {
            let mut measured = figures.iter();
            let of = measured.find(|figure| figure.transport == transport && figure.name == name);
            let of = of.context("shares of what was not measured")?;
            figures.extend(shares.figures(&of.clone()));
        }
    }
    guest.end()?;
    tracer.tell_unlisted();
    let verdicts = budgets.judge(&figures);
    println!("{}", budgets::table(&figures, &verdicts));
    Ok(verdicts.iter().all(Verdict::is_good))
}

/// The same without where the instructions are executed, as a part of the tests.
///
/// # Errors
/// As [`run`].
pub fn check(layout: &Layout) -> Result<Part> {
    let budgets = Budgets::read(layout)?;
    let mut guest = boot(layout)?;
    let figures = counted(&mut guest)?;
    guest.end()?;
    let mut part = Part::new("bench");
    for verdict in budgets.judge(&figures) {
        part.take(&verdict.name(), verdict.outcome());
    }
    Ok(part)
}

fn boot(layout: &Layout) -> Result<Commands> {
    Commands::boot(layout, "bench", Verb::Bench, Clock::Instructions, PATIENCE)
}

/// What netgauge measures: time, which is instructions.
fn counted(guest: &mut Commands) -> Result<Vec<Figure>> {
    let common = format!(
        "-m {} --connect {SERVER} --interface veth0 --format json",
        TRANSPORTS.join(",")
    );
    let sizes = SIZES.map(|size| size.to_string()).join(",");
    let latency = format!("{common} -x one-one -s {sizes} -c 1000 --warmup 100");
    let bulk = format!("{common} -x bulk -s 8M -c 3");
    // What is done for the first time costs more: caches fill, pages are touched.
    step::say("first runs, not counted");
    ask(guest, &latency)?;
    ask(guest, &bulk)?;
    step::say("counting instructions per half round trip");
    let mut report = ask(guest, &latency)?;
    step::say("counting instructions per byte");
    report.runs.extend(ask(guest, &bulk)?.runs);
    step::say("counting instructions per half round trip with a large MTU");
    set_mtu(guest, MTUS[1])?;
    let jumbo = format!("{common} -x one-one -s 1 -c 1000 --warmup 100");
    let jumbo = ask(guest, &jumbo)?;
    set_mtu(guest, MTUS[0])?;
    for run in report.runs.iter().chain(&jumbo.runs) {
        if let Some(error) = &run.error {
            eprintln!("{}, {}: {error}", run.transport, run.pattern);
        }
    }
    let mut figures = report.figures();
    figures.extend(jumbo.jumbo_figures());
    Ok(figures)
}

/// Gives both hosts' devices `mtu`.
fn set_mtu(guest: &mut Commands, mtu: u32) -> Result<()> {
    let set = |host| format!("ip -n {host} link set veth0 mtu {mtu}");
    let ended = guest.ask(&format!("! {} && {}", set("a"), set("b")))?;
    ensure!(ended.status == 0, "setting the MTU: {}", ended.text);
    Ok(())
}

/// Has the guest run netgauge and returns its report, which tells which transports failed.
fn ask(guest: &mut Commands, arguments: &str) -> Result<Report> {
    let ended = guest.ask(arguments)?;
    let report: Report = ended.report().context("netgauge")?;
    ensure!(
        !report.runs.is_empty(),
        "netgauge measured nothing:\n{}",
        ended.text
    );
    Ok(report)
}
