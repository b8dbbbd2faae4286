// SPDX-License-Identifier: MIT OR Apache-2.0

//! Comma-separated values (RFC 4180), to be read by programs: one line for each combination of
//! transport, pattern, size and kind of times. Column `times` names the kind of times. A failed run
//! ends with a line that has the run's error and no numbers. The record of the hosts is above the
//! values, in lines that begin with `#`.

use std::io::{self, Write};

use super::columns::{self, field, Field, Rest, Value};
use super::{Measured, Report, Row, Run};
use crate::summary::Summary;

/// A line of a run: a row's times of one kind, or the run's error.
struct Line<'a> {
    run: &'a Run,
    rest: Rest<'a, Times<'a>>,
}

/// A row's times of one kind, such as the sending calls.
struct Times<'a> {
    row: &'a Row,
    name: &'static str,
    times: &'a Summary,
}

/// Prints the report.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut lines = Vec::new();
    for run in &report.runs {
        let rests = columns::lines(&run.outcome, run.rows.iter().flat_map(times_of));
        lines.extend(rests.into_iter().map(|rest| Line { run, rest }));
    }
    columns::write_csv(&fields(report), &lines, out)
}

/// Returns the times of a row, one entry for each kind.
fn times_of(row: &Row) -> Vec<Times<'_>> {
    let all = row.measured.all_times().into_iter();
    all.map(|(name, times)| Times { row, name, times })
        .collect()
}

/// Returns the columns of the report.
fn fields(report: &Report) -> Vec<Field<'_, Line<'_>>> {
    let mut fields = vec![
        field("transport", |line: &Line<'_>| &*line.run.transport),
        field("pattern", |line: &Line<'_>| &*line.run.pattern),
        field("times", |line: &Line<'_>| {
            line.rest.row().map(|row| row.name)
        }),
        of_row("size", |row| row.size.into()),
        of_row("tests", |row| row.tests.into()),
        of_row("lost", |row| row.lost.into()),
        of_times("min_ns", |times| times.min),
        of_times("avg_ns", |times| times.avg),
        of_times("median_ns", |times| times.median),
        of_times("max_ns", |times| times.max),
        of_times("stddev_ns", |times| times.stddev),
    ];
    fields.extend(report.percents().into_iter().map(|percent| {
        field(format!("p{percent}_ns"), move |line: &Line<'_>| {
            let row = line.rest.row();
            row.and_then(|row| row.times.percentiles.get(&percent).copied())
        })
    }));
    fields.push(of_times("outliers", |times| times.outliers));
    fields.push(of_row("mbit_per_s", |row| {
        Value::decimal(row.mbit_per_s, 3)
    }));
    fields.extend(NUMBERS.map(|(name, value)| of_row(name, move |row| value(&row.measured))));
    fields.push(field("error", |line: &Line<'_>| {
        line.rest.error().map(Value::from)
    }));
    fields
}

/// Returns a column that shows, on each line, a value of the line's row.
fn of_row<'a>(name: &'static str, value: impl Fn(&Row) -> Value + 'a) -> Field<'a, Line<'a>> {
    field(name, move |line: &Line<'_>| {
        line.rest.row().map(|times| value(times.row))
    })
}

/// Returns a column that shows, on each line, one number from the summary of the line's times.
fn of_times<'a>(name: &'static str, value: fn(&Summary) -> u64) -> Field<'a, Line<'a>> {
    field(name, move |line: &Line<'_>| {
        line.rest.row().map(|row| value(row.times))
    })
}

/// A column's name, and a function that returns the column's value for a row's results.
type Number = (&'static str, fn(&Measured) -> Value);

/// The columns of numbers other than times. If a pattern does not measure a number, its lines have
/// no value in that column.
const NUMBERS: [Number; 9] = [
    ("ns_per_byte", |measured| match measured {
        Measured::Bulk { ns_per_byte, .. } => (*ns_per_byte).into(),
        _ => Value::None,
    }),
    ("latency_ns", |measured| match measured {
        Measured::LogP { latency_ns, .. } => (*latency_ns).into(),
        _ => Value::None,
    }),
    ("messages_per_s", |measured| match measured {
        Measured::Flood { messages_per_s, .. } => Value::decimal(*messages_per_s, 0),
        _ => Value::None,
    }),
    ("packets_per_message", |measured| match measured {
        Measured::Flood {
            packets_per_message,
            ..
        } => (*packets_per_message).into(),
        _ => Value::None,
    }),
    ("connections_per_s", |measured| match measured {
        Measured::SetUp {
            connections_per_s, ..
        } => Value::decimal(*connections_per_s, 1),
        _ => Value::None,
    }),
    ("stalls", |measured| match measured {
        Measured::Recovery { stalls, .. } => (*stalls).into(),
        _ => Value::None,
    }),
    ("stalled_ns", |measured| match measured {
        Measured::Recovery { stalled_ns, .. } => (*stalled_ns).into(),
        _ => Value::None,
    }),
    ("lost_share", |measured| match measured {
        Measured::Recovery {
            lost_share: Some(share),
            ..
        } => Value::decimal(*share, 6),
        _ => Value::None,
    }),
    ("packets_resent", |measured| match measured {
        Measured::Recovery { packets_resent, .. } => (*packets_resent).into(),
        _ => Value::None,
    }),
];

#[cfg(test)]
mod tests {
    use super::super::{samples, Outcome};
    use super::*;

    #[test]
    fn every_line_has_every_field() {
        let mut out = Vec::new();
        write(&samples::report(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 4 + 4 + 1 + 1);
        assert_eq!(
            lines[2],
            "tcp,one-one,half_rtt_ns,64,100,1,16564,17071,17064,51192,4946,50892,50992,51092,2,30.005,,,,,,,,,,"
        );
        assert_eq!(
            lines[9],
            "esp,one-one,,,,,,,,,,,,,,,,,,,,,,,,\"no module: run `modprobe enet`, please\""
        );
        assert_eq!(
            lines[10],
            "tcp,bulk,total_ns,1048576,10,0,900000,1000000,1048576,2000000,157142,1999700,1999800,1999900,2,8000.000,1.0000,,,,,,,,,"
        );
        let fields = lines[0].split(',').count();
        for line in lines.iter().filter(|line| !line.contains(", please")) {
            assert_eq!(line.split(',').count(), fields, "{line}");
        }
    }

    #[test]
    fn quotes_are_doubled() {
        let mut report = samples::report();
        report.runs.truncate(1);
        report.runs[0].rows.clear();
        for (error, expected) in [("plain", "plain"), ("a \"b\", c", "\"a \"\"b\"\", c\"")] {
            let error = error.to_owned();
            report.runs[0].outcome = Outcome::Failed { error };
            let mut out = Vec::new();
            write(&report, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.ends_with(&format!(",{expected}\n")), "{text}");
        }
    }
}
