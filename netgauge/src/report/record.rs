// SPDX-License-Identifier: MIT OR Apache-2.0

//! The record of a run: the time, the command and the hosts. Readers of the results need these
//! facts to understand the results and to repeat the run.

use std::collections::BTreeMap;
use std::env;
use std::io::{self, Write};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// The width of the record above a table, columns.
const WIDTH: usize = 98;
/// The hosts' names stand to the left of the facts if the names are at most this wide, in columns.
const BESIDE: usize = 16;

/// The record of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The time at which the run began: UTC, in the format of RFC 3339.
    pub started: String,
    /// The command line, quoted for a shell.
    pub command: String,
    /// The hosts, by their roles or names.
    pub hosts: BTreeMap<String, Machine>,
}

impl Record {
    /// Returns the record of a run of this process that begins now.
    pub fn begin() -> Self {
        let arguments: Vec<_> = env::args_os()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        Self {
            started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            // shlex fails only on a NUL, which an argument cannot have.
            command: shlex::try_join(arguments.iter().map(String::as_str)).unwrap_or_default(),
            hosts: BTreeMap::new(),
        }
    }

    /// Adds a host with the role or name `part`.
    pub fn add(&mut self, part: &str, machine: Machine) {
        self.hosts.insert(part.to_owned(), machine);
    }

    /// Prints the record above a table.
    pub(crate) fn write_head(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}: {}", self.started, self.command)?;
        for (parts, machine) in self.alike() {
            // Short names stand to the left of the facts. Longer names stand above them.
            let names = parts.join(" ");
            let beside = names.len() <= BESIDE;
            if !beside {
                for line in wrap(&parts, WIDTH) {
                    writeln!(out, "{line}")?;
                }
            }
            let width = if beside { names.len() } else { 0 };
            for (number, line) in wrap(&machine.facts(), WIDTH - width).iter().enumerate() {
                let names = if beside && number == 0 { &names } else { "" };
                writeln!(out, "{names:width$}  {line}")?;
            }
        }
        writeln!(out)
    }

    /// Returns the hosts, grouped by equal facts. Network namespaces of one host have equal facts.
    fn alike(&self) -> Vec<(Vec<String>, &Machine)> {
        let mut alike: Vec<(Vec<String>, &Machine)> = Vec::new();
        for (part, machine) in &self.hosts {
            match alike.iter_mut().find(|(_, other)| *other == machine) {
                Some((parts, _)) => parts.push(part.clone()),
                None => alike.push((vec![part.clone()], machine)),
            }
        }
        alike
    }

    /// Prints the record as comments above comma-separated values.
    pub(crate) fn write_comments(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut comment = |name: &str, text: &str| {
            // A line break would end the comment.
            writeln!(out, "# {name}: {}", text.replace(['\n', '\r'], " "))
        };
        comment("started", &self.started)?;
        comment("command", &self.command)?;
        for (parts, machine) in self.alike() {
            comment(&parts.join(" "), &machine.facts().join(", "))?;
        }
        Ok(())
    }
}

/// Joins pieces with commas, in lines of at most `width` columns.
fn wrap(pieces: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        let comma = if number + 1 < pieces.len() { "," } else { "" };
        match lines.last_mut() {
            Some(line) if line.len() + 1 + piece.len() + comma.len() <= width => {
                line.push_str(&format!(" {piece}{comma}"));
            }
            _ => lines.push(format!("{piece}{comma}")),
        }
    }
    lines
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::machine;

    /// Returns a record of two hosts.
    pub(crate) fn sample() -> Record {
        let mut record = Record {
            started: "2026-11-21T16:00:00Z".to_owned(),
            command: "netgauge --connect 'a\nb'".to_owned(),
            hosts: BTreeMap::new(),
        };
        record.add("server", machine::tests::sample("node1"));
        record.add("client", machine::tests::sample("node0"));
        record
    }

    fn printed(print: impl Fn(&mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        print(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_head_is_wrapped_and_names_the_hosts() {
        let text = printed(|out| sample().write_head(out));
        let expected = "\
client  node0, Linux 7.2.12-cloud-amd64, 2 x Sample CPU, eth0 (virtio_net), MTU 1500, 10000 Mbit/s,
        gso gro, TCP cubic, enet 0.1.0, esp.burst_length=32, esp.packets_to_ack=8, netgauge 0.1.0
server  node1, Linux";
        assert!(text.contains(expected), "{text}");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn every_line_of_the_comments_is_one() {
        let text = printed(|out| sample().write_comments(out));
        assert!(text.lines().all(|line| line.starts_with("# ")), "{text}");
        assert_eq!(text.lines().count(), 4);
        assert!(text.contains("\n# server: node1, Linux"), "{text}");
    }

    #[test]
    fn hosts_with_equal_facts_are_together() {
        let mut record = Record::default();
        for number in 0..20 {
            record.add(&format!("host{number:02}"), machine::tests::sample("node0"));
        }
        record.add("coordinator", Machine::default());
        let text = printed(|out| record.write_head(out));
        assert_eq!(text.matches("Sample CPU").count(), 1, "{text}");
        assert!(text.contains("host18, host19\n  node0, Linux"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        let text = printed(|out| record.write_comments(out));
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.contains("# host00 host01 "), "{text}");
    }

    #[test]
    fn one_begins_now_by_this_command() {
        let record = Record::begin();
        let started = humantime::parse_rfc3339(&record.started).unwrap();
        assert!(started <= SystemTime::now());
        assert!(!record.command.is_empty());
    }

    #[test]
    fn long_pieces_have_a_line_of_their_own() {
        let pieces = ["a", "bbbbbbbb", "c", "d"].map(str::to_owned);
        assert_eq!(wrap(&pieces, 5), ["a,", "bbbbbbbb,", "c, d"]);
        assert!(wrap(&[], 5).is_empty());
    }
}
