// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rows as tables for people and as comma-separated values (RFC 4180) for programs: what a report
//! has as JSON, by name.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::sizes::human;

/// A line of a form.
pub(crate) type Line = Map<String, Value>;

/// A value's fields as JSON.
pub(crate) fn of(what: &impl Serialize) -> Line {
    match serde_json::to_value(what) {
        Ok(Value::Object(line)) => line,
        _ => Line::new(),
    }
}

/// Adds a run's lines: all have the run's fields, and each those of one of its rows; behind those
/// of a run that failed, its error.
pub(crate) fn add_lines(
    lines: &mut Vec<Line>,
    mut run: Line,
    rows: impl IntoIterator<Item = Line>,
) {
    let error = run.remove("error");
    lines.extend(rows.into_iter().map(|row| {
        let mut line = run.clone();
        line.extend(row);
        line
    }));
    if let Some(error) = error {
        run.insert("error".to_owned(), error);
        lines.push(run);
    }
}

/// The text of a value, whole numbers by `whole`; `None` if there is none.
fn text(value: Option<&Value>, whole: fn(u64) -> String, decimals: usize) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(match number.as_u64() {
            Some(number) => whole(number),
            None => format!("{:.decimals$}", number.as_f64()?),
        }),
        _ => None,
    }
}

/// The value called `name` for programs; nothing if there is none.
fn field(name: &str, value: Option<&Value>) -> String {
    let decimals = match name {
        "messages_per_s" => 0,
        "connections_per_s" => 1,
        "mbit_per_s" => 3,
        "lost_share" => 6,
        _ => 4,
    };
    text(value, |number| number.to_string(), decimals).unwrap_or_default()
}

/// Prints comma-separated values, with their names above them.
pub(crate) fn write_csv(names: &str, lines: &[Line], out: &mut dyn Write) -> io::Result<()> {
    let mut table = csv::Writer::from_writer(out);
    table.write_record(names.split(','))?;
    for line in lines {
        table.write_record(names.split(',').map(|name| field(name, line.get(name))))?;
    }
    table.flush()
}

/// A column of a table: its title, and the text of a row in it.
pub(crate) type Column<'a, R> = (String, Box<dyn Fn(&R) -> String + 'a>);

/// A column with this title.
pub(crate) fn column<'a, R>(
    title: impl Into<String>,
    text: impl Fn(&R) -> String + 'a,
) -> Column<'a, R> {
    (title.into(), Box::new(text))
}

/// Mbit/s of bit/s.
pub(crate) fn mbit(bit_per_s: u64) -> String {
    short(bit_per_s as f64 / 1e6, 2, 1)
}

/// A number with decimals as there is room for: small ones have something behind the point to tell
/// apart.
pub(crate) fn short(number: f64, small: usize, large: usize) -> String {
    let decimals = if number < 100.0 { small } else { large };
    format!("{number:.decimals$}")
}

/// The value called `name` for people.
pub(crate) fn shown(name: &str, value: Option<&Value>) -> String {
    let whole = match name {
        "size" => human,
        _ if name.ends_with("bit_per_s") => mbit,
        _ => |number: u64| number.to_string(),
    };
    text(value, whole, 3).unwrap_or_else(|| "-".to_owned())
}

/// Prints a table, unless there are no rows: the first column to the left, numbers to the right, a
/// rule below the titles.
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
