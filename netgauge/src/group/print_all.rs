// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tables and comma-separated values of the patterns in which all participants do the same.

use std::io::{self, Write};

use super::all::{AllReport, AllRow, Together};
use super::print::{mbit, or_dash};
use crate::report::csv::quote;
use crate::report::table::write_aligned;
use crate::report::Outcome;
use crate::sizes::human;

/// For people: one table of all transports.
pub(super) fn table(report: &AllReport, out: &mut dyn Write) -> io::Result<()> {
    let hosts = report.participants.len();
    let bisection = report.pattern == Together::Bisection.name();
    if bisection {
        writeln!(
            out,
            "bisection: {hosts} hosts in random pairs, all exchanging at once; what each gets of its \
             partner, and what all pairs carry one way"
        )?;
    } else {
        writeln!(
            out,
            "all-to-all: {hosts} hosts, each sends to all others at once; what each gets, and all \
             together, and fairness (Jain) of the times at which they have it"
        )?;
    }
    if let Some(rate) = report.rate_bit_per_s {
        writeln!(out, "  shares are of {} Mbit/s", mbit(rate))?;
    }
    let counted = if bisection { "pairings" } else { "rounds" };
    let mut header: Vec<String> = ["transport", "size", counted, "errors"]
        .map(str::to_owned)
        .to_vec();
    header.extend(["worst", "average", "median", "best"].map(|name| format!("{name} Mbit/s")));
    if report.rate_bit_per_s.is_some() {
        header.push("average share".to_owned());
    }
    if bisection {
        header.push("bisection Mbit/s".to_owned());
    } else {
        header.push("total Mbit/s".to_owned());
        header.extend(["worst", "median"].map(|name| format!("{name} fairness")));
    }
    let mut lines = vec![header];
    for run in &report.runs {
        for row in &run.rows {
            let mut line = vec![run.medium()];
            line.extend(cells(row, bisection, report.rate_bit_per_s.is_some()));
            lines.push(line);
        }
    }
    if lines.len() > 1 {
        write_aligned(&lines, out)?;
    }
    for error in report.errors() {
        writeln!(out, "  FAILED: {error}")?;
    }
    for left_out in &report.left_out {
        writeln!(out, "  {left_out}")?;
    }
    Ok(())
}

fn cells(row: &AllRow, bisection: bool, with_share: bool) -> Vec<String> {
    let mut cells = vec![
        human(row.size),
        row.rounds.to_string(),
        row.errors.to_string(),
    ];
    cells.extend(rates(row).map(|rate| or_dash(rate.map(mbit))));
    let real = |value: Option<f64>| or_dash(value.map(|value| format!("{value:.3}")));
    if with_share {
        cells.push(real(row.share));
    }
    if bisection {
        cells.push(or_dash(row.bisection_bit_per_s.map(mbit)));
    } else {
        cells.push(or_dash(row.total_bit_per_s.map(mbit)));
        cells.push(real(row.fairness.map(|fairness| fairness.worst)));
        cells.push(real(row.fairness.map(|fairness| fairness.median)));
    }
    cells
}

/// Worst, average, median, best.
fn rates(row: &AllRow) -> [Option<u64>; 4] {
    let host = row.host_bit_per_s;
    [
        host.map(|host| host.worst),
        host.map(|host| host.average),
        host.map(|host| host.median),
        host.map(|host| host.best),
    ]
}

/// For programs. A run that failed ends with a line that has its error and no numbers.
pub(super) fn csv(report: &AllReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "transport,congestion,hosts,size,rounds,errors,worst_bit_per_s,average_bit_per_s,median_bit_per_s,\
         best_bit_per_s,average_share,total_bit_per_s,bisection_bit_per_s,worst_fairness,median_fairness,error"
    )?;
    let hosts = report.participants.len();
    for run in &report.runs {
        let congestion = quote(run.congestion.as_deref().unwrap_or_default());
        let start = format!("{},{congestion},{hosts}", run.transport);
        for row in &run.rows {
            let whole = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
            let real =
                |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.4}"));
            writeln!(
                out,
                "{start},{},{},{},{},{},{},{},{},{},",
                row.size,
                row.rounds,
                row.errors,
                rates(row).map(whole).join(","),
                real(row.share),
                whole(row.total_bit_per_s),
                whole(row.bisection_bit_per_s),
                real(row.fairness.map(|fairness| fairness.worst)),
                real(row.fairness.map(|fairness| fairness.median)),
            )?;
        }
        if let Outcome::Failed { error } = &run.outcome {
            writeln!(out, "{start},,,,,,,,,,,,,{}", quote(error))?;
        }
    }
    Ok(())
}
