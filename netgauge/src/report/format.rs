// SPDX-License-Identifier: MIT OR Apache-2.0

//! The forms in which a report is printed.

use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;

use super::record::Record;
use super::{csv, table, LeftOut, Report};
use crate::messages::tell;

impl Report {
    /// Prints the report.
    ///
    /// # Errors
    ///
    /// Fails with the writer's error.
    pub fn write(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        let record = self.record.as_ref();
        write(self, record, format, (table::write, csv::write), out)
    }
}

/// A function that prints a report in one form.
type Print<R> = fn(&R, &mut dyn Write) -> io::Result<()>;

/// Prints a report with its record. In JSON, the record is part of the report.
pub(crate) fn write<R: Serialize>(
    report: &R,
    record: Option<&Record>,
    format: Format,
    (table, csv): (Print<R>, Print<R>),
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Table => {
            record.map_or(Ok(()), |record| record.write_head(out))?;
            table(report, out)
        }
        Format::Csv => {
            record.map_or(Ok(()), |record| record.write_comments(out))?;
            csv(report, out)
        }
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, report)?;
            writeln!(out)
        }
    }
}

/// Forms of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A table for people.
    Table,
    /// JSON, to be read by programs: one document.
    Json,
    /// CSV, to be read by programs: one line for each combination of transport, pattern, size and
    /// kind of times.
    Csv,
}

impl Format {
    /// Prints on standard error the transports that were left out, and the errors. A table lists
    /// both already. So for a table, prints no transports, and errors only if the table has not
    /// gone to a terminal.
    pub fn tell(self, left_out: &[LeftOut], errors: &[String]) {
        if self != Self::Table {
            left_out.iter().for_each(|out| tell(format_args!("{out}")));
        }
        if self != Self::Table || !io::stdout().is_terminal() {
            let errors = errors.iter();
            errors.for_each(|error| tell(format_args!("{error}")));
        }
    }
}
