// SPDX-License-Identifier: MIT OR Apache-2.0

//! Columns of tables for people, and of comma-separated values (RFC 4180) for programs.

use std::io::{self, Write};

use super::Outcome;
use crate::sizes::human;

/// The value of a row in a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// The row has no value in this column.
    None,
    /// A text: a name, or an error message.
    Text(String),
    /// A count, or a time in nanoseconds.
    Count(u64),
    /// A size, bytes.
    Size(u64),
    /// A rate, bit/s.
    Rate(u64),
    /// A ratio, or a rate in another unit; and the number of its decimals in the text for programs.
    Decimal(f64, usize),
}

impl Value {
    /// Returns the text for people; `-` if there is no value.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::None => "-".to_owned(),
            Self::Text(text) => text.clone(),
            Self::Count(number) => number.to_string(),
            Self::Size(bytes) => human(*bytes),
            Self::Rate(bit_per_s) => mbit(*bit_per_s),
            Self::Decimal(number, _) => format!("{number:.3}"),
        }
    }

    /// Returns the text for programs; empty if there is no value.
    fn exact(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Text(text) => text.clone(),
            Self::Count(number) | Self::Size(number) | Self::Rate(number) => number.to_string(),
            Self::Decimal(number, decimals) => format!("{number:.decimals$}"),
        }
    }

    /// Returns the value for `number`, with this many decimals in the text for programs. Returns
    /// [`Value::None`] if the number is not finite; JSON has null in that case.
    pub(crate) fn decimal(number: f64, decimals: usize) -> Self {
        match number.is_finite() {
            true => Self::Decimal(number, decimals),
            false => Self::None,
        }
    }

    /// Returns the value for a rate. Returns [`Value::None`] if there is no rate.
    pub(crate) fn rate(bit_per_s: Option<u64>) -> Self {
        bit_per_s.map_or(Self::None, Self::Rate)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Count(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Count(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Count(number as u64)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::decimal(number, 4)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

/// A column for programs: its name, and a function that returns the column's value on a line.
pub(crate) struct Field<'a, L> {
    pub(crate) name: String,
    pub(crate) value: Box<dyn Fn(&L) -> Value + 'a>,
}

/// Makes a column of this name. `value` returns the column's value on a line.
pub(crate) fn field<'a, L, V: Into<Value>>(
    name: impl Into<String>,
    value: impl Fn(&L) -> V + 'a,
) -> Field<'a, L> {
    Field {
        name: name.into(),
        value: Box::new(move |line| value(line).into()),
    }
}

/// The part of a line after the run: a row, or the error of a failed run.
pub(crate) enum Rest<'a, T> {
    Row(T),
    Error(&'a str),
}

impl<T> Rest<'_, T> {
    /// Returns the row, if the line has one.
    pub(crate) fn row(&self) -> Option<&T> {
        match self {
            Self::Row(row) => Some(row),
            Self::Error(_) => None,
        }
    }

    /// Returns the error, if the line has one.
    pub(crate) fn error(&self) -> Option<&str> {
        match self {
            Self::Row(_) => None,
            Self::Error(error) => Some(error),
        }
    }
}

/// Returns the rows of a run. The rows of a failed run are followed by the run's error.
pub(crate) fn lines<T>(outcome: &Outcome, rows: impl IntoIterator<Item = T>) -> Vec<Rest<'_, T>> {
    let mut lines: Vec<_> = rows.into_iter().map(Rest::Row).collect();
    if let Outcome::Failed { error } = outcome {
        lines.push(Rest::Error(error));
    }
    lines
}

/// Prints comma-separated values, with the columns' names above them.
pub(crate) fn write_csv<L>(
    fields: &[Field<'_, L>],
    lines: &[L],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut table = csv::Writer::from_writer(out);
    table.write_record(fields.iter().map(|field| &field.name))?;
    for line in lines {
        table.write_record(fields.iter().map(|field| (field.value)(line).exact()))?;
    }
    table.flush()
}

/// A column of a table for people: its title, and a function that returns the column's text in a
/// row.
pub(crate) type Column<'a, R> = (String, Box<dyn Fn(&R) -> String + 'a>);

/// Makes a column with this title. `text` returns the column's text in a row.
pub(crate) fn column<'a, R>(
    title: impl Into<String>,
    text: impl Fn(&R) -> String + 'a,
) -> Column<'a, R> {
    (title.into(), Box::new(text))
}

/// Formats a rate in bit/s as Mbit/s.
pub(crate) fn mbit(bit_per_s: u64) -> String {
    short(bit_per_s as f64 / 1e6, 2, 1)
}

/// Formats a number with `small` decimals if the number is below 100, and with `large` decimals
/// otherwise.
pub(crate) fn short(number: f64, small: usize, large: usize) -> String {
    let decimals = if number < 100.0 { small } else { large };
    format!("{number:.decimals$}")
}

/// Prints a table, unless there are no rows. The first column is aligned to the left, the others
/// are aligned to the right. A rule separates the titles from the rows.
pub(crate) fn write_table<R>(
    columns: &[Column<'_, R>],
    rows: &[R],
    out: &mut dyn Write,
) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let (mut lines, mut rule) = (vec![String::from("  "); rows.len() + 1], String::from("  "));
    for (index, (title, text)) in columns.iter().enumerate() {
        let cells: Vec<_> = std::iter::once(title.clone())
            .chain(rows.iter().map(text))
            .collect();
        let width = cells.iter().map(String::len).max().unwrap_or(0);
        for (line, cell) in lines.iter_mut().zip(cells) {
            line.push_str(&match index {
                0 => format!("{cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            });
        }
        rule.push_str(&"-".repeat(if index == 0 { width } else { width + 2 }));
    }
    lines.insert(1, rule);
    let mut lines = lines.iter();
    lines.try_for_each(|line| writeln!(out, "{}", line.trim_end()))
}
