// SPDX-License-Identifier: MIT OR Apache-2.0

//! A pattern as a subcommand: `netgauge PATTERN` means `netgauge -x PATTERN`. The subcommand's help
//! lists only the options that the pattern has.

use std::ffi::OsString;

use clap::Command;

use crate::group::coordinator::plan::Roles;
use crate::pattern::LOADED_LATENCY;
use crate::registry::{self, Pattern};

/// Options of all patterns between two hosts. Here and below, they are named by clap's identifiers.
const PAIR: &[&str] = &["percentiles", "loss_timeout", "ethertype"];

/// Options of the transports' sockets, which patterns between two hosts set.
const SOCKETS: &[&str] = &[
    "nodelay",
    "busy_poll",
    "send_buffer",
    "receive_buffer",
    "nonblocking",
    "no_timeouts",
];

/// Options of all patterns between more than two hosts.
const GROUP: &[&str] = &[
    "peers",
    "netns",
    "hostfile",
    "ssh",
    "remote_program",
    "seed",
    "rate",
    "plot",
];

/// Options of patterns with clients and a server.
const CLIENTS: &[&str] = &["clients", "server_index"];

/// Options that few patterns have.
const FEW: &[&str] = &["eor", "block", "congestion", "pause", "burst", "ack"];

/// Options that no pattern's subcommand has: `--pattern` (the subcommand replaces it), and the
/// options of a server.
const OTHERS: &[&str] = &["pattern", "server", "once", "listen"];

/// Returns the options of `pattern` that some other patterns do not have.
fn own_options(pattern: &Pattern) -> Vec<&'static str> {
    let name = pattern.info.name;
    let parts: &[&[&str]] = match (pattern.roles(), name) {
        (None, "flood") => &[PAIR, SOCKETS, &["eor"]],
        (None, "bulk") => &[PAIR, SOCKETS, &["block"]],
        // Pattern setup uses the system's defaults for its connections, so it has no socket
        // options.
        (None, "setup") => &[PAIR],
        (None, _) => &[PAIR, SOCKETS],
        (Some(Roles::Clients), LOADED_LATENCY) => &[GROUP, CLIENTS, &["congestion", "pause"]],
        (Some(Roles::Clients), _) => &[GROUP, CLIENTS, &["congestion"]],
        (Some(Roles::Alike), _) => &[GROUP, &["congestion"]],
        (Some(Roles::Grid), _) => &[GROUP, CLIENTS, &["burst", "ack"]],
    };
    parts.concat()
}

/// Returns the options that `pattern` does not have.
fn foreign_options(pattern: &Pattern) -> Vec<&'static str> {
    let own = own_options(pattern);
    let mut all = [PAIR, SOCKETS, GROUP, CLIENTS, FEW, OTHERS].concat();
    all.retain(|option| !own.contains(option));
    all
}

/// Returns the pattern that the first argument of `line` names, if there is one.
pub fn named(line: &[OsString]) -> Option<&'static Pattern> {
    let name = line.get(1)?.to_str()?;
    registry::PATTERNS
        .iter()
        .find(|pattern| pattern.info.is_called(name))
}

/// Returns `line` with option `-x` inserted before the pattern's name.
pub fn spelt_out(mut line: Vec<OsString>) -> Vec<OsString> {
    line.insert(1, "-x".into());
    line
}

/// Turns `whole`, the definition of the command line, into the definition of the subcommand of
/// `pattern`.
pub fn command(whole: Command, pattern: &Pattern) -> Command {
    let (name, foreign) = (pattern.info.name, foreign_options(pattern));
    let sides = match pattern.roles() {
        None => "--connect <HOST>",
        Some(_) => "<--peers <HOSTS>|--hostfile <FILE>|--netns <NAMES>|--connect <HOST>>",
    };
    let about = format!("Measures pattern {name}, which `man netgauge` describes");
    whole
        .override_usage(format!("netgauge {name} {sides} [OPTIONS]"))
        .about(about.clone())
        .long_about(about)
        .after_help("")
        .disable_help_subcommand(true)
        .mut_args(|option| match foreign.contains(&option.get_id().as_str()) {
            true => option.hide(true),
            false => option,
        })
        .mut_subcommands(|other| other.hide(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;

    fn line(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_name_or_an_alias_is_a_subcommand() {
        for (text, name) in [
            ("netgauge flood --eor", Some("flood")),
            ("netgauge incast", Some("one-many")),
            ("netgauge plot x", None),
            ("netgauge -x flood", None),
            ("netgauge", None),
        ] {
            let found = named(&line(text)).map(|pattern| pattern.info.name);
            assert_eq!(found, name, "{text}");
        }
        let spelt_out = spelt_out(line("netgauge flood --eor"));
        assert_eq!(spelt_out, line("netgauge -x flood --eor"));
    }

    #[test]
    fn every_option_of_the_tables_exists() {
        let whole = Cli::command();
        for option in [PAIR, SOCKETS, GROUP, CLIENTS, FEW, OTHERS].concat() {
            let mut all = whole.get_arguments();
            assert!(all.any(|one| one.get_id() == option), "{option}");
        }
    }

    #[test]
    fn the_help_of_a_pattern_has_its_own_options() {
        for (name, own, foreign) in [
            (
                "flood",
                ["--eor", "--nodelay", "--percentiles"],
                ["--block", "--clients", "--once"],
            ),
            (
                "bulk",
                ["--block", "--send-buffer", "--connect"],
                ["--eor", "--peers", "--pause"],
            ),
            (
                "setup",
                ["--percentiles", "-c", "--connect"],
                ["--nodelay", "--eor", "--rate"],
            ),
            (
                "one-many",
                ["--clients", "--peers", "--congestion"],
                ["--pause", "--burst", "--eor"],
            ),
            (
                "all-to-all",
                ["--netns", "--rate", "--plot"],
                ["--clients", "--ack", "--pattern"],
            ),
            (
                "loaded-latency",
                ["--pause", "--clients", "--rate"],
                ["--ack", "--nodelay", "plot "],
            ),
            (
                "esp-params",
                ["--burst", "--ack", "--clients"],
                ["--congestion", "--pause", "--eor"],
            ),
        ] {
            let pattern = named(&line(&format!("netgauge {name}"))).unwrap();
            let help = command(Cli::command(), pattern)
                .render_long_help()
                .to_string();
            for option in own {
                assert!(help.contains(option), "{name} lacks {option}: {help}");
            }
            for option in foreign {
                let listed = help
                    .lines()
                    .any(|line| line.trim_start().starts_with(option));
                assert!(!listed, "{name} lists {option}: {help}");
            }
        }
    }
}
