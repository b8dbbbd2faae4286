// SPDX-License-Identifier: MIT OR Apache-2.0

//! The manual page has every option, subcommand, transport and pattern that there is, and no other
//! option.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use netgauge::cli::Cli;
use netgauge::pattern::PATTERNS;
use netgauge::transport::KINDS;

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/man/netgauge.1");
    fs::read_to_string(path).unwrap()
}

/// The options of a command and its subcommands, as the page writes them: `-long` or `s`.
fn options(command: &Command, found: &mut BTreeSet<String>) {
    for option in command
        .get_arguments()
        .filter(|option| !option.is_hide_set())
    {
        found.extend(option.get_long().map(|long| format!("-{long}")));
        found.extend(option.get_short().map(String::from));
    }
    for subcommand in command.get_subcommands() {
        options(subcommand, found);
    }
}

#[test]
fn options_are_those_of_the_program() {
    let mut command = Cli::command();
    command.build();
    let mut there = BTreeSet::new();
    options(&command, &mut there);
    let page = page();
    let described: BTreeSet<_> = page
        .lines()
        .flat_map(|line| line.split("Fl ").skip(1))
        .filter_map(|rest| rest.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    let missing: Vec<_> = there.difference(&described).collect();
    let invented: Vec<_> = described.difference(&there).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "docs/man/netgauge.1 misses {missing:?}, and has {invented:?} that netgauge has not"
    );
}

#[test]
fn subcommands_transports_and_patterns_are_described() {
    let command = Cli::command();
    let subcommands = command.get_subcommands().map(Command::get_name);
    let names = subcommands
        .chain(KINDS.iter().map(|kind| kind.name))
        .chain(PATTERNS.iter().map(|pattern| pattern.name()));
    let page = page();
    let described: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix(".It Cm "))
        .flat_map(|line| line.split([' ', ',']))
        .collect();
    for name in names {
        assert!(
            described.contains(name),
            "docs/man/netgauge.1 misses {name}"
        );
    }
}
