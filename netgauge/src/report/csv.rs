// SPDX-License-Identifier: MIT OR Apache-2.0

//! Comma-separated values (RFC 4180): one line per transport, pattern and size. A run that failed
//! ends with a line that has its error and no numbers.

use std::io::{self, Write};

use super::{Measured, Outcome, Report};

/// Prints the report.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "transport,pattern,size,tests,lost,min_ns,avg_ns,median_ns,max_ns,mbit_per_s,ns_per_byte,error"
    )?;
    for run in &report.runs {
        let (transport, pattern) = (quote(&run.transport), quote(&run.pattern));
        for row in &run.rows {
            let times = row.measured.times();
            let ns_per_byte = match row.measured {
                Measured::HalfRoundTrip { .. } => String::new(),
                Measured::Bulk { ns_per_byte, .. } => format!("{ns_per_byte:.4}"),
            };
            writeln!(
                out,
                "{transport},{pattern},{},{},{},{},{},{},{},{:.3},{ns_per_byte},",
                row.size,
                row.tests,
                row.lost,
                times.min,
                times.avg,
                times.median,
                times.max,
                row.mbit_per_s,
            )?;
        }
        if let Outcome::Failed { error } = &run.outcome {
            writeln!(out, "{transport},{pattern},,,,,,,,,,{}", quote(error))?;
        }
    }
    Ok(())
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
            "tcp,one-one,64,100,1,16564,17071,17064,51192,30.005,,"
        );
        assert_eq!(
            lines[9],
            "esp,one-one,,,,,,,,,,\"no module: run `modprobe enet`, please\""
        );
        assert_eq!(
            lines[10],
            "tcp,bulk,1048576,10,0,900000,1000000,1048576,2000000,8000.000,1.0000,"
        );
        let fields = lines[0].split(',').count();
        for line in lines.iter().filter(|line| !line.contains('"')) {
            assert_eq!(line.split(',').count(), fields, "{line}");
        }
    }

    #[test]
    fn quotes_are_doubled() {
        assert_eq!(quote("plain"), "plain");
        assert_eq!(quote("a \"b\", c"), "\"a \"\"b\"\", c\"");
    }
}
