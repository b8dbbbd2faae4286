// SPDX-License-Identifier: MIT OR Apache-2.0

//! Comma-separated values (RFC 4180): one line per transport, pattern, size and kind of times, which
//! column `times` names. A run that failed ends with a line that has its error and no numbers. What is recorded of the hosts is above them, in lines that begin with `#`.

use std::io::{self, Write};

use super::measured::NUMBERS;
use super::{Outcome, Report};
use crate::summary::Summary;

/// Names of the first fields.
const NAMES: &str =
    "transport,pattern,times,size,tests,lost,min_ns,avg_ns,median_ns,max_ns,stddev_ns";

/// Prints the report.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let percents = report.percents();
    let mut names: Vec<_> = NAMES.split(',').map(str::to_owned).collect();
    names.extend(percents.iter().map(|percent| format!("p{percent}_ns")));
    names.extend(["outliers", "mbit_per_s"].map(str::to_owned));
    names.extend(NUMBERS.map(|(name, _)| name.to_owned()));
    names.push("error".to_owned());
    let mut table = csv::Writer::from_writer(out);
    table.write_record(&names)?;
    for run in &report.runs {
        for row in &run.rows {
            for (name, times) in row.measured.series() {
                let mut fields = vec![run.transport.clone(), run.pattern.clone(), name.to_owned()];
                let Summary {
                    min,
                    avg,
                    median,
                    max,
                    stddev,
                    ..
                } = times;
                fields.extend([row.size, row.tests.into(), row.lost.into()].map(text));
                fields.extend([min, avg, median, max, stddev].map(text));
                let percentile = |percent| times.percentiles.get(percent).copied().map(text);
                fields.extend(
                    percents
                        .iter()
                        .map(|one| percentile(one).unwrap_or_default()),
                );
                fields.extend([text(times.outliers), format!("{:.3}", row.mbit_per_s)]);
                fields.extend(row.measured.numbers());
                fields.push(String::new());
                table.write_record(&fields)?;
            }
        }
        if let Outcome::Failed { error } = &run.outcome {
            // But for transport, pattern and error all are missing.
            let missing = vec![""; names.len() - 3];
            let begin = [&run.transport[..], &run.pattern];
            table.write_record([&begin[..], &missing, &[error]].concat())?;
        }
    }
    table.flush()
}

fn text(number: u64) -> String {
    number.to_string()
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
