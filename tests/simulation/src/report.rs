// SPDX-License-Identifier: GPL-2.0-only

//! Writes results as text: aligned tables and JSON.

use std::io::{self, Write};

use serde::Serialize;

/// The columns of a table. Each column has a name, and a function that formats its cell for a
/// result.
pub type Columns<T> = &'static [(&'static str, fn(&T) -> String)];

/// A table of text cells. The first line has the names of the columns.
#[derive(Debug)]
pub struct Table {
    lines: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table without results, whose columns have these names.
    pub fn new(head: impl IntoIterator<Item: ToString>) -> Self {
        Self {
            lines: vec![head.into_iter().map(|name| name.to_string()).collect()],
        }
    }

    /// Returns a table with a line for each result.
    pub fn of<'a, T: 'a>(results: impl IntoIterator<Item = &'a T>, columns: Columns<T>) -> Self {
        let mut table = Self::new(columns.iter().map(|(name, _)| name));
        for result in results {
            table.line(columns.iter().map(|(_, cell)| cell(result)));
        }
        table
    }

    /// Appends a line.
    pub fn line(&mut self, cells: impl IntoIterator<Item = String>) {
        self.lines.push(cells.into_iter().collect());
    }

    /// Writes the table, the first column left-aligned, the others right-aligned.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let columns = self.lines.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column| {
            let cells = self
                .lines
                .iter()
                .filter_map(|line: &Vec<_>| line.get(column));
            cells
                .map(|cell: &String| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for line in &self.lines {
            let mut text = String::new();
            for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
                if column == 0 {
                    text.push_str(&format!("{cell:<width$}"));
                } else {
                    text.push_str(&format!("  {cell:>width$}"));
                }
            }
            writeln!(out, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

/// Writes results as JSON.
pub fn write_json(results: &impl Serialize, out: &mut dyn Write) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, results)?;
    writeln!(out)?;
    Ok(())
}

/// Formats bytes as KiB.
pub fn kib(bytes: u32) -> String {
    format!("{:.1}", f64::from(bytes) / 1024.0)
}

/// Formats nanoseconds as milliseconds.
pub fn millis(nanos: u64) -> String {
    format!("{:.3}", nanos as f64 / 1e6)
}

/// Formats a share of a whole, such as a goodput.
pub fn part(value: f64) -> String {
    format!("{value:.3}")
}

/// Formats a link's rate.
pub fn rate(bits: u64) -> String {
    if bits % 1_000_000_000 == 0 {
        format!("{} Gbit/s", bits / 1_000_000_000)
    } else {
        format!("{} Mbit/s", bits / 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(["link", "N"]);
        table.line(["1 Gbit/s".into(), "128".into()]);
        let mut out = Vec::new();
        table.write(&mut out).expect("memory takes everything");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "link        N\n1 Gbit/s  128\n"
        );
    }
}
