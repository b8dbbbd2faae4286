// SPDX-License-Identifier: MIT OR Apache-2.0

//! Comma-separated values (RFC 4180): one line per transport, pattern, size and kind of times,
//! which column `times` names. A run that failed ends with a line that has its error and no
//! numbers. What is recorded of the hosts is above them, in lines that begin with `#`.

use std::io::{self, Write};

use super::fields::{self, Line};
use super::{Report, Row};

/// Names of the times that patterns have, as in JSON, in the order they are printed.
const TIMES: &str =
    "half_rtt_ns,total_ns,send_overhead_ns,receive_overhead_ns,gap_ns,rtt_ns,connect_ns,connection_ns,exchange_ns";

/// Prints the report.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let percents = report.percents();
    let percents = percents.iter().map(|one| format!("p{one}_ns,"));
    let percents = percents.collect::<Vec<_>>().concat();
    let names = format!(
        "transport,pattern,times,size,tests,lost,min_ns,avg_ns,median_ns,max_ns,stddev_ns,{percents}outliers,mbit_per_s,\
         ns_per_byte,latency_ns,messages_per_s,packets_per_message,connections_per_s,stalls,stalled_ns,lost_share,\
         packets_resent,error"
    );
    let mut lines = Vec::new();
    for run in &report.runs {
        let rows = run.rows.iter().flat_map(lines_of);
        fields::add_lines(&mut lines, fields::of(run), rows);
    }
    fields::write_csv(&names, &lines, out)
}

/// The lines of one size: one for each kind of times.
fn lines_of(row: &Row) -> Vec<Line> {
    let fields = fields::of(row);
    let of_times = |name: &str| {
        let times = fields.get(name)?.as_object()?;
        let percentiles = times.get("percentiles")?.as_object()?.iter();
        let mut line = fields.clone();
        line.insert("times".to_owned(), name.into());
        line.extend(times.clone());
        let parts = times.iter();
        line.extend(parts.map(|(part, time)| (format!("{part}_ns"), time.clone())));
        line.extend(percentiles.map(|(part, time)| (format!("p{part}_ns"), time.clone())));
        Some(line)
    };
    TIMES.split(',').filter_map(of_times).collect()
}

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
