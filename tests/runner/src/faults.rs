// SPDX-License-Identifier: GPL-2.0-only

//! Runs the fault matrix: every kind of traffic over every kind of faulty wire. The results are a
//! table on the terminal and in `docs/faults.md`.
//!
//! The cells are scenarios, run one after the other in a guest whose clock counts instructions. The
//! times of the cells therefore do not depend on the host machine, and waiting in a cell costs the
//! host nothing.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde::Deserialize;

use crate::commands::{Commands, Verb};
use crate::layout::Layout;
use crate::qemu::Clock;
use crate::step;

/// The document with the table, and the lines that enclose the table.
const DOCUMENT: &str = "docs/faults.md";
const BEGIN: &str = "<!-- begin: made by `make faults` -->";
const END: &str = "<!-- end: made by `make faults` -->";

const DEADLINE: Duration = Duration::from_secs(2 * 3600);

/// Options of the fault matrix.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Run only these cells, and leave the document alone; a name that ends with * stands for all
    /// names that begin with the text before the *.
    #[arg(long)]
    only: Vec<String>,
    /// Run in a guest with two processors and an ordinary clock, and leave the document alone.
    #[arg(long)]
    free: bool,
}

/// The results of a cell of the matrix: one kind of traffic over one faulty wire and in one
/// direction.
#[derive(Clone, Debug, Deserialize)]
struct Figures {
    wire: String,
    way: String,
    traffic: String,
    seconds: f64,
    closing: f64,
    resent: u64,
    requests: u64,
    given_up: u64,
}

/// The results of all cells.
#[derive(Debug, Default)]
struct Matrix {
    cells: Vec<Figures>,
    failed: Vec<String>,
}

/// Runs the cells, prints the table and writes the document; returns true if no cell failed.
///
/// # Errors
/// If something does not build, the guest does not boot, or its kernel reports a fault.
pub fn run(layout: &Layout, options: &Options) -> Result<bool> {
    let clock = if options.free {
        Clock::Free(2)
    } else {
        Clock::Instructions
    };
    let mut guest = Commands::boot(layout, "faults", Verb::Commands, clock, DEADLINE)?;
    let mut matrix = Matrix::default();
    let mut command = "scenarios --faults".to_owned();
    for name in &options.only {
        command += &format!(" '{name}'");
    }
    let status = guest.run(&command, |line| matrix.hear(line))?;
    guest.end()?;
    let table = matrix.table();
    println!("\n{table}");
    for failure in &matrix.failed {
        println!("failed: {failure}");
    }
    println!(
        "{} passed, {} failed",
        matrix.cells.len(),
        matrix.failed.len()
    );
    let good = status == 0 && matrix.failed.is_empty() && !matrix.cells.is_empty();
    if good && options.only.is_empty() && !options.free {
        document(layout, &table)?;
        step::say(&format!("{DOCUMENT} has the table"));
    }
    Ok(good)
}

/// Writes the table into the document, between its two marker lines.
fn document(layout: &Layout, table: &str) -> Result<()> {
    let path = layout.project.join(DOCUMENT);
    let old = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let kernel = &layout.release;
    let made = format!(
        "Debian's kernel {kernel}, one processor whose clock counts instructions:\n\n{table}"
    );
    let new = between(&old, &made)
        .with_context(|| format!("{DOCUMENT} lacks the lines that the table stands between"))?;
    fs::write(&path, new).with_context(|| path.display().to_string())
}

/// Returns `text` with `made` in place of the text between its two marker lines.
fn between(text: &str, made: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{made}\n{END}{after}"))
}

impl Matrix {
    /// Handles a line of the guest: keeps a cell's figures for the table, and prints other lines.
    fn hear(&mut self, line: &str) {
        if let Some(figures) = line.strip_prefix("# figures ") {
            match serde_json::from_str(figures) {
                Ok(figures) => self.cells.push(figures),
                Err(error) => self.failed.push(format!("{figures}: {error}")),
            }
            return;
        }
        if let Some(failure) = line.strip_prefix("not ok ") {
            self.failed.push(failure.to_owned());
        }
        println!("{line}");
    }

    /// Formats the table. Each wire and direction has a row and each kind of traffic has a column,
    /// in the order in which the cells ran.
    fn table(&self) -> String {
        let mut columns: Vec<&str> = Vec::new();
        let mut rows: Vec<(&str, &str)> = Vec::new();
        for cell in &self.cells {
            if !columns.contains(&&*cell.traffic) {
                columns.push(&cell.traffic);
            }
            if !rows.contains(&(&cell.wire, &cell.way)) {
                rows.push((&cell.wire, &cell.way));
            }
        }
        let mut table = String::from("| wire | direction |");
        for column in &columns {
            let _ = write!(table, " {column} |");
        }
        table += "\n|---|---|";
        table += &"---|".repeat(columns.len());
        table.push('\n');
        for (wire, way) in rows {
            let _ = write!(table, "| {wire} | {way} |");
            for column in &columns {
                let cell = self
                    .cells
                    .iter()
                    .find(|cell| (&*cell.wire, &*cell.way, &*cell.traffic) == (wire, way, column));
                let _ = write!(table, " {} |", cell.map_or_else(String::new, Figures::text));
            }
            table.push('\n');
        }
        table
    }
}

impl Figures {
    /// Formats the cell. Its first two numbers are times in seconds: the time until the last byte
    /// has arrived, and the time from then until the last socket is closed. Then follow the numbers
    /// of retransmitted packets and of retransmission requests, and the number of failed connection
    /// attempts, if any.
    fn text(&self) -> String {
        let mut text = format!(
            "{:.2} + {:.2} s; {}, {}",
            self.seconds, self.closing, self.resent, self.requests
        );
        if self.given_up > 0 {
            let _ = write!(text, "; {} given up", self.given_up);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: &str = r#"# figures {"wire":"loss 1 %","way":"both","traffic":"bulk","seconds":1.5,"closing":0.25,
        "packets":9,"resent":3,"requests":2,"given_up":0,"spoiled":4}"#;

    #[test]
    fn cells_become_a_table() {
        let mut matrix = Matrix::default();
        matrix.hear(CELL);
        matrix.hear(&CELL.replace("bulk", "storm").replace("up\":0", "up\":1"));
        matrix.hear(&CELL.replace("both", "back"));
        matrix.hear("not ok one: because");
        assert_eq!(matrix.failed, ["one: because"]);
        assert_eq!(
            matrix.table(),
            "| wire | direction | bulk | storm |\n|---|---|---|---|\n\
             | loss 1 % | both | 1.50 + 0.25 s; 3, 2 | 1.50 + 0.25 s; 3, 2; 1 given up |\n\
             | loss 1 % | back | 1.50 + 0.25 s; 3, 2 |  |\n"
        );
    }

    #[test]
    fn the_table_goes_between_its_lines() {
        let text = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let new = between(&text, "new\n").unwrap();
        assert_eq!(new, format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(between(&new, "new\n").unwrap(), new);
        assert_eq!(between("nothing", "new\n"), None);
    }
}
