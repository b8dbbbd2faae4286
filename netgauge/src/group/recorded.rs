// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reports of many, with what is recorded beside them.

use std::io::{self, Write};

use serde::Serialize;

use super::all::AllReport;
use super::esp_params::ParamsReport;
use super::one_many::ManyReport;
use super::{print, print_all};
use crate::report::record::Record;
use crate::report::Format;

/// A report as JSON, and the record in it.
#[derive(Serialize)]
struct Recorded<'a, R> {
    #[serde(flatten)]
    report: &'a R,
    record: &'a Record,
}

/// Prints a report, with the record where the form has it.
///
/// # Errors
///
/// What writing says.
pub(super) fn write<R: Print>(
    report: &R,
    record: &Record,
    format: Format,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Table => {
            record.write_head(out)?;
            report.table(out)
        }
        Format::Csv => {
            record.write_comments(out)?;
            report.csv(out)
        }
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &Recorded { report, record })?;
            writeln!(out)
        }
    }
}

/// A report that prints itself, without a record.
pub(super) trait Print: Serialize {
    /// For people.
    fn table(&self, out: &mut dyn Write) -> io::Result<()>;

    /// Comma-separated values.
    fn csv(&self, out: &mut dyn Write) -> io::Result<()>;
}

impl Print for ManyReport {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        print::many_table(self, out)
    }

    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        print::many_csv(self, out)
    }
}

impl Print for AllReport {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        print_all::table(self, out)
    }

    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        print_all::csv(self, out)
    }
}

impl Print for ParamsReport {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        print::params_table(self, out)
    }

    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        print::params_csv(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::print::samples;
    use super::*;
    use crate::report::record;

    fn printed(report: &impl Print, format: Format) -> String {
        let mut out = Vec::new();
        write(report, &record::tests::sample(), format, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_record_is_in_every_form() {
        let table = printed(&samples::many(), Format::Table);
        assert!(
            table.starts_with("2026-11-21T16:00:00Z: netgauge"),
            "{table}"
        );
        let csv = printed(&samples::params(), Format::Csv);
        assert!(
            csv.starts_with("# started: 2026-11-21T16:00:00Z\n"),
            "{csv}"
        );
        assert!(csv.contains("\nclients,size,burst_length,"), "{csv}");
    }

    #[test]
    fn json_reads_back_as_the_report_and_as_the_record() {
        let json = printed(&samples::many(), Format::Json);
        let report: ManyReport = serde_json::from_str(&json).unwrap();
        assert_eq!(report, samples::many());
        let json = printed(&samples::all(), Format::Json);
        let report: AllReport = serde_json::from_str(&json).unwrap();
        assert_eq!(report, samples::all());
        let json = printed(&samples::params(), Format::Json);
        let report: ParamsReport = serde_json::from_str(&json).unwrap();
        assert_eq!(report, samples::params());
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let found: Record = serde_json::from_value(value["record"].clone()).unwrap();
        assert_eq!(found, record::tests::sample());
    }
}
