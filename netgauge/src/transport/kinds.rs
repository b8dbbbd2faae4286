// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lists all transports, and finds a transport by its name.

use anyhow::{anyhow, bail, Context as _, Result};

use super::kind::Kind;
use super::options::{SocketOptions, Taken};
use super::streams::StreamKind;
use super::{
    edp, edp_ring, edp_zero_copy, esp, esp_records, esp_ring, mpi, raw, spliced, tcp, tipc, udp,
    unix, zero_copy,
};

/// All kinds, in the order in which they are measured and listed.
pub const KINDS: &[Kind] = &[
    tcp::KIND,
    udp::KIND,
    raw::KIND,
    edp::KIND,
    esp::KIND,
    esp_records::KIND,
    esp_ring::KIND,
    edp_ring::KIND,
    unix::KIND,
    tipc::KIND,
    zero_copy::TCP,
    zero_copy::ESP,
    edp_zero_copy::KIND,
    spliced::TCP,
    spliced::ESP,
    mpi::KIND,
];

/// Returns the transports of `-m all`: all kinds. The kind `mpi` is included only if `mpirun` has
/// started this process.
pub fn all() -> Vec<&'static Kind> {
    let suits = |kind: &&Kind| kind.name != mpi::KIND.name || mpi::is_started();
    KINDS.iter().filter(suits).collect()
}

/// Finds a kind by its name.
///
/// # Errors
///
/// Fails if no kind has that name.
pub fn find(name: &str) -> Result<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
        let all = names(|_| true);
        anyhow!("there is no transport `{name}`: choose from {all}")
    })
}

/// Returns the names of the kinds that `which` selects, separated by commas.
pub fn names(which: fn(&Kind) -> bool) -> String {
    names_of(which).join(", ")
}

fn names_of(which: impl Fn(&Kind) -> bool) -> Vec<&'static str> {
    let kinds = KINDS.iter().filter(|kind| which(kind));
    kinds.map(|kind| kind.name).collect()
}

/// Returns the names of the kinds for patterns with many connections, separated by commas.
pub fn stream_names() -> String {
    names(|kind| kind.streams.is_some())
}

/// Returns how patterns with many connections open connections of `kind`.
///
/// # Errors
///
/// Fails if these patterns cannot use `kind`.
pub fn stream_kind(kind: &Kind) -> Result<&'static dyn StreamKind> {
    kind.streams.with_context(|| {
        format!(
            "{} is not for patterns of many participants: these take {}",
            kind.name,
            stream_names()
        )
    })
}

/// Fails if an option is given that does not apply to all of the transports `kinds`.
///
/// # Errors
///
/// Fails if there is such an option. The error text then lists the transports to which the option
/// applies.
pub fn check(options: &SocketOptions, kinds: &[&Kind]) -> Result<()> {
    for (name, takes) in options.given() {
        if let Some(kind) = kinds.iter().find(|kind| !takes(&kind.takes)) {
            bail!(
                "{name} means nothing to {}: it is for {}",
                kind.name,
                takers(takes)
            );
        }
    }
    Ok(())
}

/// Returns warnings about options that do not apply to all transports.
pub fn remarks(options: &SocketOptions) -> Vec<String> {
    options
        .given()
        .filter(|(_, takes)| KINDS.iter().any(|kind| !takes(&kind.takes)))
        .map(|(name, takes)| format!("{name} is for {} only", takers(takes)))
        .collect()
}

/// Returns the transports that take an option, as a list in words.
fn takers(takes: Taken) -> String {
    match &names_of(|kind| takes(&kind.takes))[..] {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [names @ .., last] => format!("{} and {last}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::options::tests::parse;
    use crate::transport::{medium, transport_of};

    #[test]
    fn every_kind_is_found_by_its_own_name() {
        for kind in KINDS {
            assert_eq!(find(kind.name).unwrap().name, kind.name);
        }
        let error = find("tpc").unwrap_err().to_string();
        assert!(error.contains("tcp, udp, raw, edp, esp"), "{error}");
    }

    #[test]
    fn a_medium_has_its_transport_in_its_name() {
        for kind in KINDS {
            assert_eq!(transport_of(&medium(kind.name, None)), kind.name);
            assert_eq!(transport_of(&medium(kind.name, Some("reno"))), kind.name);
        }
        assert_eq!(medium("tcp", Some("reno")), "tcp reno");
    }

    #[test]
    fn datagram_transports_are_refused_with_what_to_choose() {
        for kind in KINDS {
            match (kind.name, stream_kind(kind)) {
                ("tcp" | "esp" | "unix" | "tipc", Ok(_)) => {}
                (
                    "udp" | "raw" | "edp" | "edp-ring" | "esp-records" | "esp-ring"
                    | "tcp-zerocopy" | "esp-zerocopy" | "edp-zerocopy" | "tcp-splice"
                    | "esp-splice" | "mpi",
                    Err(error),
                ) => {
                    assert!(error.to_string().contains("tcp, esp"), "{error}");
                }
                (name, result) => panic!("{name}: {result:?}"),
            }
        }
    }

    fn kinds(names: &str) -> Vec<&'static Kind> {
        names.split(',').map(|name| find(name).unwrap()).collect()
    }

    #[test]
    fn inapplicable_options_are_refused_with_the_transports_they_are_for() {
        let check = |line, names| super::check(&parse(line).unwrap(), &kinds(names));
        assert!(check(
            "-N both",
            "tcp,udp,raw,edp,esp,unix,tipc,tcp-zerocopy,esp-zerocopy,tcp-splice,esp-splice"
        )
        .is_ok());
        assert!(check("--nodelay off --busy-poll 1", "tcp,tcp-zerocopy").is_ok());
        for (line, names, expected) in [
            (
                "--nodelay off",
                "tcp,udp",
                "--nodelay means nothing to udp: it is for tcp, tipc, tcp-zerocopy and tcp-splice",
            ),
            ("--nodelay on", "esp", "means nothing to esp"),
            (
                "--busy-poll 9",
                "raw",
                "--busy-poll means nothing to raw: it is for tcp, udp, edp, esp, esp-records, ",
            ),
            (
                "--receive-buffer 9",
                "unix",
                "--receive-buffer means nothing to unix",
            ),
            (
                "--send-buffer 9",
                "tipc",
                "--send-buffer means nothing to tipc",
            ),
        ] {
            let error = check(line, names).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn with_all_transports_each_gets_the_options_that_apply_to_it() {
        let options = parse("--nodelay off --send-buffer 5000 -N send").unwrap();
        let remarks = super::remarks(&options);
        assert_eq!(remarks.len(), 2, "{remarks:?}");
        assert_eq!(
            remarks[0],
            "--nodelay is for tcp, tipc, tcp-zerocopy and tcp-splice only"
        );
        let describe = |name| find(name).unwrap().describe(&options);
        assert_eq!(
            describe("tcp"),
            "TCP over IP, TCP_NODELAY off, SO_SNDBUF 5000, non-blocking sends"
        );
        assert_eq!(
            describe("udp"),
            "UDP over IP, SO_SNDBUF 5000, non-blocking sends"
        );
        assert_eq!(
            describe("tipc"),
            "AF_TIPC streams, TIPC_NODELAY off, non-blocking sends"
        );
        assert_eq!(
            find("udp")
                .unwrap()
                .describe(&parse("--no-timeouts").unwrap()),
            "UDP over IP, no timeouts"
        );
        assert_eq!(
            find("tcp").unwrap().describe(&SocketOptions::default()),
            "TCP over IP, TCP_NODELAY"
        );
    }
}
