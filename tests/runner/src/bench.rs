//! Instructions per half round trip and per byte, by transport, in one guest whose clock counts instructions.
//!
//! Two network namespaces joined by a veth pair are the hosts; one processor does both sides' work, so a number is
//! what a message costs in all. Wall time plays no part, and the same kernel and programs give the same numbers.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use serde::Deserialize;

use crate::commands::{Commands, Verb};
use crate::layout::Layout;
use crate::qemu::Clock;
use crate::step;

/// What everything else is compared with.
const BASES: [&str; 2] = ["tcp", "raw"];

const TRANSPORTS: [&str; 5] = ["tcp", "udp", "raw", "edp", "esp"];

/// Message sizes, bytes.
const SIZES: [u64; 3] = [1, 64, 1024];

/// The address of the server's namespace, see `guest/init`.
const SERVER: &str = "10.0.0.2";

/// How long one measurement may take; many times of what it does.
const PATIENCE: Duration = Duration::from_secs(900);

/// The part of netgauge's JSON report that is used here.
#[derive(Debug, Deserialize)]
struct Report {
    runs: Vec<Run>,
}

#[derive(Debug, Deserialize)]
struct Run {
    transport: String,
    pattern: String,
    error: Option<String>,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    size: u64,
    half_rtt_ns: Option<Summary>,
    ns_per_byte: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Summary {
    median: u64,
}

/// Prints the table; true when every transport could be measured.
///
/// # Errors
/// When something does not build, the guest does not boot, or its kernel reports a fault.
pub fn run(layout: &Layout) -> Result<bool> {
    let mut guest = Commands::boot(layout, "bench", Verb::Bench, Clock::Instructions, PATIENCE)?;
    let common = format!(
        "-m {} --connect {SERVER} --interface veth0 --format json",
        TRANSPORTS.join(",")
    );
    let sizes = SIZES.map(|size| size.to_string()).join(",");
    let latency = format!("{common} -x one-one -s {sizes} -c 1000 --warmup 100");
    let bulk = format!("{common} -x bulk -s 8M -c 3");
    // What is done for the first time costs more: caches fill, pages are touched.
    step::say("first runs, not counted");
    ask(&mut guest, &latency)?;
    ask(&mut guest, &bulk)?;
    step::say("counting instructions per half round trip");
    let mut runs = ask(&mut guest, &latency)?.runs;
    step::say("counting instructions per byte");
    runs.extend(ask(&mut guest, &bulk)?.runs);
    guest.end()?;
    println!("{}", table(&runs));
    let mut good = true;
    for run in &runs {
        if let Some(error) = &run.error {
            eprintln!("{}, {}: {error}", run.transport, run.pattern);
            good = false;
        }
    }
    Ok(good)
}

/// Has the guest run netgauge and returns its report.
fn ask(guest: &mut Commands, arguments: &str) -> Result<Report> {
    // A transport that failed is told in the report.
    let ended = guest.ask(arguments)?;
    let report: Report = ended.report().context("netgauge")?;
    ensure!(
        !report.runs.is_empty(),
        "netgauge measured nothing:\n{}",
        ended.text
    );
    Ok(report)
}

/// The number of one cell: of `transport`, in the column `size`, which is bulk if there is none.
fn cell(runs: &[Run], transport: &str, size: Option<u64>) -> Option<f64> {
    let pattern = if size.is_some() { "one-one" } else { "bulk" };
    let run = runs
        .iter()
        .find(|run| run.transport == transport && run.pattern == pattern && run.error.is_none())?;
    match size {
        Some(size) => {
            let row = run.rows.iter().find(|row| row.size == size)?;
            Some(row.half_rtt_ns.as_ref()?.median as f64)
        }
        None => run.rows.first()?.ns_per_byte,
    }
}

/// One line per transport; in each group the number and its ratio to each of [`BASES`].
fn table(runs: &[Run]) -> String {
    let columns = SIZES.map(Some).into_iter().chain([None]);
    let mut text = String::from(
        "Instructions, both ends together: per half round trip (median), and per byte in bulk\n\n",
    );
    text += "     ";
    for size in columns.clone() {
        let title = size.map_or("bulk, per byte".to_owned(), |size| format!("{size} B"));
        let _ = write!(text, " | {title:^23}");
    }
    text += "\n     ";
    for _ in columns.clone() {
        let _ = write!(text, " | {:>9} {:>6} {:>6}", "count", "/tcp", "/raw");
    }
    text += "\n-----";
    for _ in columns.clone() {
        text += "-+------------------------";
    }
    text.push('\n');
    for transport in TRANSPORTS {
        let _ = write!(text, "{transport:5}");
        for size in columns.clone() {
            let Some(number) = cell(runs, transport, size) else {
                let _ = write!(text, " | {:>9} {:>6} {:>6}", "failed", "-", "-");
                continue;
            };
            let digits = if size.is_some() { 0 } else { 3 };
            let _ = write!(text, " | {number:>9.digits$}");
            for base in BASES {
                let ratio = cell(runs, base, size)
                    .map_or("-".to_owned(), |base| format!("{:.3}", number / base));
                let _ = write!(text, " {ratio:>6}");
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"netgauge": "0.1.0", "peer": "10.0.0.2:2805", "runs": [
        {"transport": "tcp", "about": "", "pattern": "one-one", "status": "ok", "rows": [
            {"size": 1, "tests": 9, "lost": 0, "mbit_per_s": 1.0,
             "half_rtt_ns": {"min": 1, "avg": 1, "median": 17000, "max": 1}}]},
        {"transport": "edp", "about": "", "pattern": "one-one", "status": "ok", "rows": [
            {"size": 1, "tests": 9, "lost": 0, "mbit_per_s": 1.0,
             "half_rtt_ns": {"min": 1, "avg": 1, "median": 8500, "max": 1}}]},
        {"transport": "esp", "about": "", "pattern": "one-one", "status": "failed", "error": "no", "rows": []},
        {"transport": "tcp", "about": "", "pattern": "bulk", "status": "ok", "rows": [
            {"size": 8388608, "tests": 3, "lost": 0, "mbit_per_s": 1.0,
             "total_ns": {"min": 1, "avg": 1, "median": 1, "max": 1}, "ns_per_byte": 0.94}]}]}"#;

    #[test]
    fn the_table_has_numbers_ratios_and_failures() {
        let report: Report = serde_json::from_str(REPORT).unwrap();
        assert_eq!(cell(&report.runs, "tcp", Some(1)), Some(17000.0));
        assert_eq!(cell(&report.runs, "tcp", None), Some(0.94));
        assert_eq!(cell(&report.runs, "esp", Some(1)), None);
        let table = table(&report.runs);
        let line = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line("edp").contains("8500  0.500"), "{table}");
        assert!(line("tcp").contains("0.940  1.000"), "{table}");
        assert!(line("esp").contains("failed"), "{table}");
    }
}
