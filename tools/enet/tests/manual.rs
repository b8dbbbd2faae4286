// SPDX-License-Identifier: MIT OR Apache-2.0

//! The manual page has every option and subcommand that there is, and no other option.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use enet_tools::cli::Cli;

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man/enet.1");
    fs::read_to_string(path).unwrap()
}

/// The options of a command and its subcommands, as the page writes them: `-long` or `s`.
fn options(command: &Command, found: &mut BTreeSet<String>) {
    for option in command.get_arguments() {
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
        "docs/man/enet.1 misses {missing:?}, and has {invented:?} that enet has not"
    );
}

#[test]
fn subcommands_are_described() {
    let page = page();
    for subcommand in Cli::command().get_subcommands() {
        let item = format!(".Ss enet {}", subcommand.get_name());
        assert!(page.contains(&item), "docs/man/enet.1 has no {item:?}");
    }
}
