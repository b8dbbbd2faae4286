// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tables for people: one per transport, and one that compares them.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::fields::write_aligned;
use super::{Measured, Outcome, Report, Row, Run};
use crate::sizes::human;
use crate::summary::{Percent, OUTLIER_RULE};

/// Message sizes whose latency is compared, bytes, if they were measured.
const COMPARED: [u64; 3] = [1, 64, 1024];

/// Prints the report.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let percents = report.percents();
    for alike in report.runs.chunk_by(Run::failed_like) {
        match alike {
            [run] => write_run(run, &percents, out)?,
            runs => write_failed(runs, out)?,
        }
    }
    let mut patterns: Vec<&str> = Vec::new();
    for run in &report.runs {
        if !patterns.contains(&run.pattern.as_str()) {
            patterns.push(&run.pattern);
        }
    }
    for pattern in patterns {
        let runs: Vec<_> = report
            .runs
            .iter()
            .filter(|run| run.pattern == pattern)
            .collect();
        if runs.len() > 1 {
            write_comparison(pattern, &runs, out)?;
        }
    }
    if report.runs.iter().any(|run| !run.rows.is_empty()) {
        writeln!(out, "Outliers are {OUTLIER_RULE}.")?;
    }
    for left_out in &report.left_out {
        writeln!(out, "Left out: {}: {}", left_out.title(), left_out.reason)?;
    }
    Ok(())
}

fn write_run(run: &Run, percents: &BTreeSet<Percent>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}: {} ({})", run.transport, run.about, run.pattern)?;
    if let Some(first) = run.rows.first() {
        let tests = run.rows.iter().map(|row| row.tests).max().unwrap_or(0);
        let (what, unit, _) = first.measured.heading();
        writeln!(out, "  {what} in {unit}, {tests} tests per size")?;
        let own = titles(first);
        // More of them would make the lines too long.
        let beside = own.len() == 1;
        let mut header = vec!["size".to_owned()];
        header.extend(["min", "avg", "median", "max", "stddev"].map(str::to_owned));
        header.extend(percents.iter().map(|percent| format!("p{percent}")));
        header.extend(["outliers", "Mbit/s"].map(str::to_owned));
        header.extend(own.iter().filter(|_| beside).cloned());
        header.push("lost".to_owned());
        let mut lines = vec![header];
        lines.extend(run.rows.iter().map(|row| cells(row, percents, beside)));
        write_aligned(&lines, out)?;
        if own.len() > 1 {
            writeln!(out)?;
            let mut lines = vec![[vec!["size".to_owned()], own].concat()];
            let cells = |row: &Row| std::iter::once(human(row.size)).chain(texts(row)).collect();
            lines.extend(run.rows.iter().map(cells));
            write_aligned(&lines, out)?;
        }
    }
    if let Outcome::Failed { error } = &run.outcome {
        writeln!(out, "  FAILED: {error}")?;
    }
    writeln!(out)
}

/// Runs that all failed for the same reason, as all do whose peer is gone.
fn write_failed(runs: &[Run], out: &mut dyn Write) -> io::Result<()> {
    let titles: Vec<_> = runs.iter().map(Run::title).collect();
    writeln!(out, "{}", titles.join("; "))?;
    if let Outcome::Failed { error } = &runs[0].outcome {
        writeln!(out, "  FAILED: {error}")?;
    }
    writeln!(out)
}

/// Titles of the pattern's own columns.
fn titles(row: &Row) -> Vec<String> {
    let columns = row.measured.columns().into_iter();
    columns.map(|(title, _)| title.to_owned()).collect()
}

/// The texts of the pattern's own columns.
fn texts(row: &Row) -> impl Iterator<Item = String> {
    row.measured.columns().into_iter().map(|(_, text)| text)
}

fn cells(row: &Row, percents: &BTreeSet<Percent>, own: bool) -> Vec<String> {
    let times = row.measured.times();
    let (_, _, per_unit) = row.measured.heading();
    let time = |ns: u64| five_digits(ns as f64 / per_unit);
    let mut cells = vec![human(row.size)];
    cells.extend([times.min, times.avg, times.median, times.max, times.stddev].map(time));
    let percentile = |percent| times.percentiles.get(percent).copied();
    cells.extend(
        percents
            .iter()
            .map(|percent| percentile(percent).map_or("-".to_owned(), time)),
    );
    cells.push(times.outliers.to_string());
    cells.push(throughput(row));
    cells.extend(texts(row).filter(|_| own));
    cells.push(row.lost.to_string());
    cells
}

/// A number in five digits if it has decimals: enough to tell it from the next, and narrow.
fn five_digits(number: f64) -> String {
    let decimals = match number {
        ..1e3 => 2,
        ..1e4 => 1,
        _ => 0,
    };
    format!("{number:.decimals$}")
}

fn throughput(row: &Row) -> String {
    // Small messages have little of it, and large ones no use for decimals.
    let decimals = if row.mbit_per_s < 100.0 { 2 } else { 0 };
    format!("{:.decimals$}", row.mbit_per_s)
}

/// One line per transport: times at the usual sizes, the pattern's own columns, and throughput at
/// the largest.
fn write_comparison(pattern: &str, runs: &[&Run], out: &mut dyn Write) -> io::Result<()> {
    let rows = || runs.iter().flat_map(|run| &run.rows);
    let measured = |size: u64| rows().any(|row| row.size == size);
    let (Some(smallest), Some(largest)) = (
        rows().min_by_key(|row| row.size),
        rows().map(|row| row.size).max(),
    ) else {
        return Ok(());
    };
    let bulk = matches!(smallest.measured, Measured::Bulk { .. });
    // What a byte costs is known best of the most bytes; other columns are about messages.
    let own_size = if bulk { largest } else { smallest.size };
    let sizes: Vec<u64> = COMPARED
        .into_iter()
        .filter(|size| !bulk && measured(*size))
        .collect();

    let mut header = vec![String::new()];
    header.extend(sizes.iter().map(|size| format!("us at {}", human(*size))));
    let own = titles(smallest);
    // Where there are several, they are all about one size, and the lines long enough without it.
    let named = |title: &String| match own.len() {
        1 => format!("{title} at {}", human(own_size)),
        _ => title.clone(),
    };
    header.extend(own.iter().map(named));
    header.push(format!("Mbit/s at {}", human(largest)));
    let mut lines = vec![header];
    for run in runs {
        let mut line = vec![run.transport.clone()];
        line.extend(sizes.iter().map(|size| {
            cell(run, *size, |row| {
                format!("{:.2}", row.measured.times().median as f64 / 1e3)
            })
        }));
        line.extend((0..own.len()).map(|column| {
            cell(run, own_size, |row| {
                texts(row).nth(column).unwrap_or_default()
            })
        }));
        line.push(cell(run, largest, throughput));
        lines.push(line);
    }
    let what = match bulk {
        true => "time per byte".to_owned(),
        false => format!("{}, median", smallest.measured.heading().0),
    };
    let rest = match own.len() {
        0 | 1 => String::new(),
        _ => format!("; the rest at {}", human(own_size)),
    };
    writeln!(out, "Comparison ({pattern}): {what}, and throughput{rest}")?;
    write_aligned(&lines, out)?;
    writeln!(out)
}

fn row_of(run: &Run, size: u64) -> Option<&Row> {
    run.rows.iter().find(|row| row.size == size)
}

fn cell(run: &Run, size: u64, text: impl FnOnce(&Row) -> String) -> String {
    match (row_of(run, size), &run.outcome) {
        (Some(row), _) => text(row),
        (None, Outcome::Failed { .. }) => "failed".to_owned(),
        (None, Outcome::Ok) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn printed(report: &Report) -> String {
        let mut out = Vec::new();
        write(report, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_run_is_a_table_with_aligned_columns() {
        let text = printed(&samples::report());
        let expected = "\
tcp: about tcp (one-one)
  half round trip in us, 100 tests per size
  size      min    avg  median     max  stddev     p90     p95     p99  outliers  Mbit/s  lost
  --------------------------------------------------------------------------------------------
  1 B     16.50  17.01   17.00   51.00    4.93   50.70   50.80   50.90         2    0.47     0
  64 B    16.56  17.07   17.06   51.19    4.95   50.89   50.99   51.09         2   30.00     1
  1 KiB   17.52  18.03   18.02   54.07    5.22   53.77   53.87   53.97         2     455     0
  64 KiB  82.04  82.54   82.54  247.61   23.65  247.31  247.41  247.51         2    6352     0
";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn a_failure_says_what_to_do() {
        let text = printed(&samples::report());
        let expected = "\
esp: about esp (one-one)
  FAILED: no module: run `modprobe enet`, please
";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn what_fails_alike_is_told_once() {
        let gone = || Outcome::Failed {
            error: "the peer is gone".to_owned(),
        };
        let failed = |transport| samples::run(transport, "one-one", gone(), Vec::new());
        let mut report = samples::report();
        // One that got somewhere stays apart, and one that failed for another reason.
        report.runs[0].outcome = gone();
        report.runs.splice(1..2, [failed("udp"), failed("raw")]);
        let text = printed(&report);
        let expected = "\
udp, one-one; raw, one-one
  FAILED: the peer is gone

esp: about esp (one-one)
  FAILED: no module: run `modprobe enet`, please
";
        assert!(text.contains(expected), "{text}");
        assert_eq!(text.matches("the peer is gone").count(), 2, "{text}");
        assert_eq!(
            report.errors(),
            [
                "tcp, one-one: the peer is gone",
                "udp, one-one; raw, one-one: the peer is gone",
                "esp, one-one: no module: run `modprobe enet`, please",
            ]
        );
    }

    #[test]
    fn the_comparison_has_a_line_per_transport() {
        let text = printed(&samples::report());
        let expected = "\
Comparison (one-one): half round trip, median, and throughput
       us at 1 B  us at 64 B  us at 1 KiB  Mbit/s at 64 KiB
  ---------------------------------------------------------
  tcp      17.00       17.06        18.02              6352
  udp      13.70       13.76        14.72              6617
  esp     failed      failed       failed            failed
";
        assert!(text.contains(expected), "{text}");
        // One transport alone has nothing to be compared with.
        assert!(!text.contains("Comparison (bulk)"), "{text}");
    }

    #[test]
    fn bulk_is_compared_by_time_per_byte() {
        let mut report = samples::report();
        let mut other = report.runs[3].clone();
        other.transport = "udp".to_owned();
        report.runs.push(other);
        let text = printed(&report);
        assert!(text.contains("ns/byte at 1 MiB"), "{text}");
        assert!(text.contains("  udp             1.000"), "{text}");
    }

    #[test]
    fn nothing_measured_is_no_comparison() {
        let failed = || Outcome::Failed {
            error: "down".to_owned(),
        };
        let mut report = samples::report();
        report.runs = ["edp", "esp"]
            .map(|name| samples::run(name, "one-one", failed(), Vec::new()))
            .to_vec();
        assert!(!printed(&report).contains("Comparison"));
    }
}
