// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tables for people: one per transport, and one that compares the transports.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::ptr;

use super::columns::{column, short, write_table, Column};
use super::{titles, Measured, Outcome, Report, Row, Run};
use crate::sizes::human;
use crate::summary::{Percent, Summary, OUTLIER_RULE};

/// The message sizes, in bytes, at which transports are compared by latency, if these sizes were
/// measured.
const COMPARED: [u64; 3] = [1, 64, 1024];

/// Prints the report.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let percents = report.percents();
    for alike in report.runs.chunk_by(Run::failed_like) {
        match alike {
            [run] => {
                writeln!(out, "{}: {} ({})", run.transport, run.about, run.pattern)?;
                write_rows(&run.rows, &percents, out)?;
            }
            // All of these runs failed with the same error, for example because the peer is gone.
            runs => writeln!(out, "{}", titles(runs))?,
        }
        if let Outcome::Failed { error } = &alike[0].outcome {
            writeln!(out, "  FAILED: {error}")?;
        }
        writeln!(out)?;
    }
    for run in &report.runs {
        let same = report
            .runs
            .iter()
            .filter(|other| other.pattern == run.pattern);
        let runs: Vec<_> = same.collect();
        // The transports are compared once for each pattern, at the pattern's first run.
        if runs.len() > 1 && ptr::eq(runs[0], run) {
            write_comparison(&run.pattern, &runs, out)?;
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

/// Prints a line per size.
fn write_rows(rows: &[Row], percents: &BTreeSet<Percent>, out: &mut dyn Write) -> io::Result<()> {
    let Some(first) = rows.first() else {
        return Ok(());
    };
    let tests = rows.iter().map(|row| row.tests).max().unwrap_or(0);
    let (what, _) = first.measured.subject();
    let (unit, per_unit) = match first.measured {
        Measured::Bulk { .. } => ("ms", 1e6),
        _ => ("us", 1e3),
    };
    writeln!(out, "  {what} in {unit}, {tests} tests per size")?;
    let size = || column("size", |row: &Row| human(row.size));
    let in_unit = |ns: u64| five_digits(ns as f64 / per_unit);
    let time = |title, of: fn(&Summary) -> u64| {
        column(title, move |row: &Row| in_unit(of(row.measured.times())))
    };
    let mut columns = vec![
        size(),
        time("min", |times| times.min),
        time("avg", |times| times.avg),
        time("median", |times| times.median),
        time("max", |times| times.max),
        time("stddev", |times| times.stddev),
    ];
    columns.extend(percents.iter().map(|percent| {
        column(format!("p{percent}"), move |row: &Row| {
            let time = row.measured.times().percentiles.get(percent);
            time.map_or("-".to_owned(), |time| in_unit(*time))
        })
    }));
    columns.push(column("outliers", |row: &Row| {
        row.measured.times().outliers.to_string()
    }));
    columns.push(column("Mbit/s", throughput));
    let mut own = own_columns(&first.measured);
    // If the pattern has several numbers of its own, their columns get a separate table, because
    // one table would be too wide.
    if own.len() == 1 {
        columns.append(&mut own);
    }
    columns.push(column("lost", |row: &Row| row.lost.to_string()));
    write_table(&columns, rows, out)?;
    if !own.is_empty() {
        writeln!(out)?;
        own.insert(0, size());
        write_table(&own, rows, out)?;
    }
    Ok(())
}

/// Returns the columns of the numbers that only this pattern has. A column of times shows the
/// medians.
fn own_columns(measured: &Measured) -> Vec<Column<'static, Row>> {
    let own: &[Own] = match measured {
        Measured::HalfRoundTrip { .. } => &[],
        Measured::Bulk { .. } => &[("ns/byte", 3, |measured| match measured {
            Measured::Bulk { ns_per_byte, .. } => Some(*ns_per_byte),
            _ => None,
        })],
        Measured::LogP { .. } => &[
            ("receive", 2, |measured| match measured {
                Measured::LogP {
                    receive_overhead_ns,
                    ..
                } => Some(us(receive_overhead_ns.median)),
                _ => None,
            }),
            ("gap", 2, |measured| match measured {
                Measured::LogP { gap_ns, .. } => Some(us(gap_ns.median)),
                _ => None,
            }),
            ("L", 2, |measured| match measured {
                Measured::LogP { latency_ns, .. } => Some(us(*latency_ns)),
                _ => None,
            }),
        ],
        Measured::Flood { .. } => &[
            ("messages/s", 0, |measured| match measured {
                Measured::Flood { messages_per_s, .. } => Some(*messages_per_s),
                _ => None,
            }),
            ("packets/message", 3, |measured| match measured {
                Measured::Flood {
                    packets_per_message,
                    ..
                } => *packets_per_message,
                _ => None,
            }),
        ],
        Measured::SetUp { .. } => &[
            ("whole", 2, |measured| match measured {
                Measured::SetUp { connection_ns, .. } => Some(us(connection_ns.median)),
                _ => None,
            }),
            ("connections/s", 0, |measured| match measured {
                Measured::SetUp {
                    connections_per_s, ..
                } => Some(*connections_per_s),
                _ => None,
            }),
        ],
        Measured::Recovery { .. } => &[
            ("stalls", 0, |measured| match measured {
                Measured::Recovery { stalls, .. } => Some((*stalls).into()),
                _ => None,
            }),
            ("stalled ms", 1, |measured| match measured {
                Measured::Recovery { stalled_ns, .. } => Some(*stalled_ns as f64 / 1e6),
                _ => None,
            }),
            ("lost %", 2, |measured| match measured {
                Measured::Recovery { lost_share, .. } => lost_share.map(|share| share * 100.0),
                _ => None,
            }),
            ("resent", 0, |measured| match measured {
                Measured::Recovery { packets_resent, .. } => {
                    packets_resent.map(|packets| packets as f64)
                }
                _ => None,
            }),
        ],
    };
    let columns = own.iter().map(|&(title, decimals, of)| {
        column(title, move |row: &Row| {
            let number = of(&row.measured).filter(|number| number.is_finite());
            number.map_or("-".to_owned(), |number| format!("{number:.decimals$}"))
        })
    });
    columns.collect()
}

/// The description of a column: its title, the number of decimals, and a function that returns the
/// column's value for a row's results.
type Own = (&'static str, usize, fn(&Measured) -> Option<f64>);

/// Converts nanoseconds to microseconds.
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// Formats a number with at most five digits, which are precise enough, and make a narrow column.
fn five_digits(number: f64) -> String {
    let decimals = match number {
        ..1e3 => 2,
        ..1e4 => 1,
        _ => 0,
    };
    format!("{number:.decimals$}")
}

fn throughput(row: &Row) -> String {
    // The throughput of small messages is low, so it needs decimals. The throughput of large
    // messages is high, so it needs none.
    short(row.mbit_per_s, 2, 0)
}

/// Prints one line per transport: times at certain sizes, the pattern's own columns, and throughput
/// at the largest size.
fn write_comparison(pattern: &str, runs: &[&Run], out: &mut dyn Write) -> io::Result<()> {
    let rows = || runs.iter().flat_map(|run| &run.rows);
    let (Some(smallest), Some(largest)) = (
        rows().min_by_key(|row| row.size),
        rows().map(|row| row.size).max(),
    ) else {
        return Ok(());
    };
    let bulk = matches!(smallest.measured, Measured::Bulk { .. });
    // The cost of a byte is most precise at the largest size, so bulk is compared at that size.
    // Other columns are about messages, so they are compared at the smallest size.
    let own_size = if bulk { largest } else { smallest.size };
    let own = own_columns(&smallest.measured);
    // One note names the size of several columns, because the size would make each of their titles
    // too long.
    let (at_size, rest) = match own.len() {
        0 | 1 => (format!(" at {}", human(own_size)), String::new()),
        _ => (String::new(), format!("; the rest at {}", human(own_size))),
    };
    let mut columns = vec![column("", |run: &&Run| run.transport.clone())];
    for size in COMPARED {
        if !bulk && rows().any(|row| row.size == size) {
            let median = |row: &Row| format!("{:.2}", row.measured.times().median as f64 / 1e3);
            columns.push(at(size, column(format!("us at {}", human(size)), median)));
        }
    }
    let own = own.into_iter();
    columns.extend(own.map(|(title, text)| at(own_size, (title + &at_size, text))));
    let title = format!("Mbit/s at {}", human(largest));
    columns.push(at(largest, column(title, throughput)));
    let what = match bulk {
        true => "time per byte".to_owned(),
        false => format!("{}, median", smallest.measured.subject().0),
    };
    writeln!(out, "Comparison ({pattern}): {what}, and throughput{rest}")?;
    write_table(&columns, runs, out)?;
    writeln!(out)
}

/// Returns a column that shows each run's text for one size.
fn at(size: u64, (title, text): Column<'_, Row>) -> Column<'_, &Run> {
    column(title, move |run: &&Run| {
        let row = run.rows.iter().find(|row| row.size == size);
        match (row, &run.outcome) {
            (Some(row), _) => text(row),
            (None, Outcome::Failed { .. }) => "failed".to_owned(),
            (None, Outcome::Ok) => "-".to_owned(),
        }
    })
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
    fn equal_failures_are_reported_once() {
        let gone = || Outcome::Failed {
            error: "the peer is gone".to_owned(),
        };
        let failed = |transport| samples::run(transport, "one-one", gone(), Vec::new());
        let mut report = samples::report();
        // A run with rows, or with a different error, is not merged with other runs.
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
        // Only one transport was measured with bulk, so there is no other to compare it with.
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
