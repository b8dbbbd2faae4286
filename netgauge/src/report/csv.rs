// SPDX-License-Identifier: MIT OR Apache-2.0

//! Comma-separated values (RFC 4180): one line per transport, pattern, size and kind of times, which
//! column `times` names. A run that failed ends with a line that has its error and no numbers. What is recorded of the hosts is above them, in lines that begin with `#`.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::measured::NUMBERS;
use super::{Outcome, Report};
use crate::summary::{Percent, Summary};

/// Prints the report.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    if let Some(record) = &report.record {
        record.write_comments(out)?;
    }
    let percents = report.percents();
    writeln!(
        out,
        "transport,pattern,times,size,tests,lost,{},mbit_per_s,{},error",
        summary_names(&percents),
        NUMBERS.join(",")
    )?;
    for run in &report.runs {
        let (transport, pattern) = (quote(&run.transport), quote(&run.pattern));
        for row in &run.rows {
            let numbers = NUMBERS.map(|name| row.measured.number(name).unwrap_or_default());
            for (name, times) in row.measured.series() {
                writeln!(
                    out,
                    "{transport},{pattern},{name},{},{},{},{},{:.3},{},",
                    row.size,
                    row.tests,
                    row.lost,
                    summary_fields(times, &percents),
                    row.mbit_per_s,
                    numbers.join(","),
                )?;
            }
        }
        if let Outcome::Failed { error } = &run.outcome {
            // The kind of times, size, tests, lost and throughput are missing, and what is said about
            // times, and the patterns' numbers.
            let missing = 5 + summary_names(&percents).split(',').count() + NUMBERS.len();
            writeln!(
                out,
                "{transport},{pattern},{}{}",
                ",".repeat(missing),
                quote(error)
            )?;
        }
    }
    Ok(())
}

/// The names of what is said about times.
fn summary_names(percents: &BTreeSet<Percent>) -> String {
    let mut names = String::from("min_ns,avg_ns,median_ns,max_ns,stddev_ns");
    for percent in percents {
        names.push_str(&format!(",p{percent}_ns"));
    }
    names + ",outliers"
}

fn summary_fields(times: &Summary, percents: &BTreeSet<Percent>) -> String {
    let Summary {
        min,
        avg,
        median,
        max,
        stddev,
        ..
    } = times;
    let mut fields = format!("{min},{avg},{median},{max},{stddev}");
    for percent in percents {
        let time = times.percentiles.get(percent).map(u64::to_string);
        fields.push_str(&format!(",{}", time.unwrap_or_default()));
    }
    format!("{fields},{}", times.outliers)
}

/// A field, in quotation marks if it needs them.
pub(crate) fn quote(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
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
        assert_eq!(quote("plain"), "plain");
        assert_eq!(quote("a \"b\", c"), "\"a \"\"b\"\", c\"");
    }
}
