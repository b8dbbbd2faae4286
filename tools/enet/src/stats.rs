// SPDX-License-Identifier: MIT OR Apache-2.0

//! `enet stats`: prints the counters with their meaning, or how many connections of mapped sockets
//! each protocol carries, and why.

use anyhow::Result;
use clap::Args;

use crate::counters::{self, Counter};
use crate::table::{self, Align};
use crate::{mapped, output, proc_file};

/// Arguments of `stats`.
#[derive(Debug, Default, Args)]
pub struct StatsArgs {
    /// Print counters that are zero, too
    #[arg(short, long)]
    all: bool,

    /// Print instead how many connections of mapped sockets each program has, whether ESP or TCP
    /// carries them, and why TCP
    #[arg(short, long, conflicts_with = "all")]
    why: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl StatsArgs {
    /// Prints the counters of this network namespace.
    ///
    /// # Errors
    /// If the module is not loaded, or its file has an unknown format.
    pub fn run(&self) -> Result<()> {
        if self.why {
            let sums = mapped::sums()?;
            return output::print(&if self.json {
                serde_json::to_string_pretty(&sums)? + "\n"
            } else {
                mapped::print_sums(&sums)
            });
        }
        let mut counters = counters::parse(&proc_file::read(proc_file::ENET)?)?;
        counters.retain(|counter| self.all || counter.value != 0);
        output::print(&if self.json {
            serde_json::to_string_pretty(&counters)? + "\n"
        } else {
            print(&counters)
        })
    }
}

fn print(counters: &[Counter]) -> String {
    if counters.is_empty() {
        return "All counters are zero: no frame was refused, and no acknowledgement waited.\n"
            .to_owned();
    }
    let rows: Vec<_> = counters
        .iter()
        .map(|counter| {
            let meaning = counter
                .meaning
                .unwrap_or("This version of enet does not know the counter.");
            vec![
                counter.value.to_string(),
                counter.name.clone(),
                meaning.to_owned(),
            ]
        })
        .collect();
    table::print(&[Align::Right, Align::Left, Align::Left], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::tests::TEXT;

    #[test]
    fn each_counter_has_a_line_with_a_sentence() {
        let text = print(&counters::parse(TEXT).unwrap());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("         7  EspAckQueueWaited  Acknowledgements waited"));
        assert!(lines[2].starts_with("4294967295  EspInDreams        This version"));
        assert!(print(&[]).contains("zero"));
    }
}
