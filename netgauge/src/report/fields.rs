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

/// The value called `name`, or for a name like `worst_share` what is called `worst` in `share`. A
/// share that is one number stands for all that can be said of it.
fn find<'a>(line: &'a Line, name: &str) -> Option<&'a Value> {
    line.get(name).or_else(|| {
        let (part, whole) = name.split_once('_')?;
        let mut wholes = line.iter().filter(|(key, _)| key.ends_with(whole));
        wholes.find_map(|(_, value)| value.get(part).or(value.is_f64().then_some(value)))
    })
}

/// A value for programs; nothing if there is none.
fn field(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => match number.as_u64() {
            Some(number) => number.to_string(),
            None => format!("{:.4}", number.as_f64().unwrap_or(0.0)),
        },
        _ => String::new(),
    }
}

/// The value called `name` for people.
fn shown(name: &str, value: Option<&Value>) -> String {
    let number = value.and_then(Value::as_u64);
    match (number, value) {
        (Some(bytes), _) if name == "size" => human(bytes),
        (Some(rate), _) if name.ends_with("bit_per_s") => mbit(rate),
        (Some(number), _) => number.to_string(),
        (None, Some(Value::String(text))) => text.clone(),
        (None, value) => match value.and_then(Value::as_f64) {
            Some(share) => format!("{share:.3}"),
            None => "-".to_owned(),
        },
    }
}

/// Prints comma-separated values, with their names above them.
pub(crate) fn write_csv(names: &str, lines: &[Line], out: &mut dyn Write) -> io::Result<()> {
    let mut table = csv::Writer::from_writer(out);
    table.write_record(names.split(','))?;
    for line in lines {
        table.write_record(names.split(',').map(|name| field(find(line, name))))?;
    }
    table.flush()
}

/// Prints a table of the values with these names, unless there are none.
pub(crate) fn write_table(names: &[&str], lines: &[Line], out: &mut dyn Write) -> io::Result<()> {
    let title = |name: &&str| name.replace("_bit_per_s", " Mbit/s").replace('_', " ");
    let cells = |line: &Line| {
        let cells = names.iter().map(|name| shown(name, find(line, name)));
        cells.collect()
    };
    let mut table: Vec<Vec<String>> = vec![names.iter().map(title).collect()];
    table.extend(lines.iter().map(cells));
    match lines {
        [] => Ok(()),
        _ => write_aligned(&table, out),
    }
}

/// Mbit/s of bit/s.
pub(crate) fn mbit(bit_per_s: u64) -> String {
    let mbit = bit_per_s as f64 / 1e6;
    // Small numbers have something behind the point to tell apart.
    let decimals = if mbit < 100.0 { 2 } else { 1 };
    format!("{mbit:.decimals$}")
}

/// Prints lines of cells in columns: the first column to the left, numbers to the right, a rule
/// below the first line.
pub(crate) fn write_aligned(lines: &[Vec<String>], out: &mut dyn Write) -> io::Result<()> {
    let mut widths: Vec<usize> = Vec::new();
    for line in lines {
        widths.resize(widths.len().max(line.len()), 0);
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.len().max(*width);
        }
    }
    for (number, line) in lines.iter().enumerate() {
        let mut text = String::from("  ");
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            match column {
                0 => text.push_str(&format!("{cell:<width$}")),
                _ => text.push_str(&format!("  {cell:>width$}")),
            }
        }
        writeln!(out, "{}", text.trim_end())?;
        if number == 0 {
            let width = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
            writeln!(out, "  {}", "-".repeat(width))?;
        }
    }
    Ok(())
}
