// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks, for tests, that a program's options and its manual page agree.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use clap::Command;

/// Returns the text of a page in `docs/man`.
///
/// # Panics
/// If the page cannot be read.
pub fn page(name: &str) -> String {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man");
    fs::read_to_string(pages.join(name)).unwrap()
}

/// Checks that the options in `docs/man/name` are the options of `command` and its subcommands,
/// except for hidden ones.
///
/// # Panics
/// If the page misses an option, or has an option that `command` lacks.
pub fn has_all_options(name: &str, mut command: Command) {
    command.build();
    let mut there = BTreeSet::new();
    options(&command, &mut there);
    let page = page(name);
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
        "docs/man/{name} misses {missing:?}, and has {invented:?} that the program has not"
    );
}

/// Adds the options of a command and its subcommands to `found`, in the page's notation: `-long`
/// for `--long`, and `s` for `-s`.
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
