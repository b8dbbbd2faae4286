// SPDX-License-Identifier: MIT OR Apache-2.0

//! The manual page lists exactly the options and subcommands of the program.

use clap::CommandFactory as _;
use enet_tools::cli::Cli;

#[test]
fn options_are_those_of_the_program() {
    manpage::has_all_options("enet.1", Cli::command());
}

#[test]
fn subcommands_are_described() {
    let page = manpage::page("enet.1");
    for subcommand in Cli::command().get_subcommands() {
        let item = format!(".Ss enet {}", subcommand.get_name());
        assert!(page.contains(&item), "docs/man/enet.1 has no {item:?}");
    }
}
