// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests that the manual page describes all options, subcommands, transports and patterns, and no
//! option that the program lacks.

use std::collections::BTreeSet;

use clap::{Command, CommandFactory as _};
use netgauge::cli::Cli;
use netgauge::registry::PATTERNS;
use netgauge::transport::kinds::KINDS;

// The page describes `netgauge plot`, which the program has only with this feature.
#[cfg(feature = "pictures")]
#[test]
fn options_are_those_of_the_program() {
    manpage::has_all_options("netgauge.1", Cli::command());
}

#[test]
fn subcommands_transports_and_patterns_are_described() {
    let command = Cli::command();
    let subcommands = command.get_subcommands().map(Command::get_name);
    let names = subcommands
        .chain(KINDS.iter().map(|kind| kind.name))
        .chain(PATTERNS.iter().map(|pattern| pattern.info.name));
    let page = manpage::page("netgauge.1");
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
