// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which protocol carries the connection of each mapped socket, and why TCP does. `enet ss
//! --mapped` prints each connection, and `enet stats --why` their number by program and reason.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::owners::{Owner, Owners};
use crate::proc_file;
use crate::table::{self, Align};

/// The module's file of mapped connections.
pub const FILE: &str = "enet_mapped";

/// Which protocol carries a connection, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Choice {
    /// The protocol that carries the connection: `esp` or `tcp`.
    pub carrier: String,
    /// The module's word for the reason why TCP carries the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason as a sentence for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<&'static str>,
}

impl Choice {
    /// Returns the reason for a person to read; empty for ESP.
    fn why(&self) -> &str {
        let reason = self.explanation.or(self.reason.as_deref());
        reason.unwrap_or_default()
    }
}

/// A connection of a mapped socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mapped {
    /// The protocol, and why.
    #[serde(flatten)]
    pub choice: Choice,
    /// Local address and port; `None` for a TCP connection that has ended.
    pub local: Option<SocketAddr>,
    /// The peer's address and port.
    pub peer: Option<SocketAddr>,
    /// Inode number of the socket.
    pub inode: u64,
    /// The processes that have the socket open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<Owner>>,
}

/// The module's words for reasons, and their explanations.
const REASONS: &[(&str, &str)] = &[
    ("by-peer", "the peer connected by TCP"),
    ("setting", "sysctl esp.mapped is 0"),
    ("policy", "/proc/net/enet_policy forbids ESP"),
    (
        "address",
        "a group's address, or a link-local one without a device",
    ),
    (
        "option",
        "the socket has a filter, has listened before, or is read by kernel code",
    ),
    (
        "group",
        "BPF programs of the control group look at packets or calls of IP",
    ),
    ("route", "the peer is not on the same Ethernet"),
    ("neighbour", "the peer's Ethernet address was not known"),
    (
        "unknown-peer",
        "the peer has not answered whether it takes mapped connections",
    ),
    ("unwilling-peer", "the peer takes no mapped connections"),
    ("refused", "the peer has no mapped listener on that port"),
    ("silence", "the peer did not answer ESP's SYN"),
    ("error", "ESP had no memory, port or device"),
];

/// The local and the peer address of each TCP socket, by inode number.
pub type Names = HashMap<u64, (SocketAddr, SocketAddr)>;

/// Returns the TCP sockets of this network namespace.
pub fn tcp_names() -> Names {
    // On a kernel without IPv6, `tcp6` fails and is skipped.
    [procfs::net::tcp(), procfs::net::tcp6()]
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| (entry.inode, (entry.local_address, entry.remote_address)))
        .collect()
}

/// Parses the module's file. `tcp` gives the addresses of the connections that TCP carries.
///
/// # Errors
/// If a line does not describe a connection.
pub fn parse(text: &str, tcp: &Names) -> Result<Vec<Mapped>> {
    text.lines()
        .skip(1)
        .map(|line| parse_line(line, tcp).with_context(|| format!("/proc/net/{FILE}: {line:?}")))
        .collect()
}

fn parse_line(line: &str, names: &Names) -> Result<Mapped> {
    let mut words = line.split_whitespace();
    let mut word = || words.next().context("a column is missing");
    let inode = word()?.parse()?;
    let carrier = word()?.to_owned();
    let reason = Some(word()?).filter(|reason| *reason != "-");
    let (local, peer) = (word()?, word()?);
    let end = |text: &str| (text != "-").then(|| text.parse()).transpose();
    let by_tcp = names.get(&inode);
    let explanation = REASONS
        .iter()
        .find_map(|(word, meaning)| (reason == Some(word)).then_some(*meaning));
    Ok(Mapped {
        choice: Choice {
            carrier,
            reason: reason.map(str::to_owned),
            explanation,
        },
        local: end(local)?.or(by_tcp.map(|(local, _)| *local)),
        peer: end(peer)?.or(by_tcp.map(|(_, peer)| *peer)),
        inode,
        processes: None,
    })
}

/// The number of open connections of a program that a protocol carries for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// Number of connections.
    pub connections: usize,
    /// The program's name; empty if this process may not look into the program, or the kernel
    /// itself has the connections.
    pub program: String,
    /// The protocol, and why.
    #[serde(flatten)]
    pub choice: Choice,
}

/// Reads the module's file, and counts the connections in this network namespace.
///
/// # Errors
/// If the module is not loaded, or the file has an unknown format.
pub fn sums() -> Result<Vec<Sum>> {
    let connections = parse(&proc_file::read(FILE)?, &Names::new())?;
    // The search goes through all processes.
    let owners = match connections.is_empty() {
        true => Owners::default(),
        false => Owners::find(),
    };
    Ok(sum(&connections, &owners))
}

/// Counts connections by program, protocol and reason. A connection that several processes have
/// open counts for the one with the lowest number.
fn sum(connections: &[Mapped], owners: &Owners) -> Vec<Sum> {
    let mut sums = BTreeMap::new();
    for found in connections {
        let first = owners.of(found.inode).iter().min_by_key(|owner| owner.pid);
        let program = first.map_or("", |owner| &owner.name);
        let key = (program, &found.choice);
        let sum = sums.entry(key).or_insert_with(|| Sum {
            connections: 0,
            program: program.to_owned(),
            choice: found.choice.clone(),
        });
        sum.connections += 1;
    }
    sums.into_values().collect()
}

/// Formats the numbers of connections as a table.
pub fn print_sums(sums: &[Sum]) -> String {
    let mut rows = vec![["Connections", "Program", "Carrier", "Why"]
        .map(str::to_owned)
        .to_vec()];
    rows.extend(sums.iter().map(|sum| {
        let program = match sum.program.as_str() {
            "" => "?",
            program => program,
        };
        vec![
            sum.connections.to_string(),
            program.to_owned(),
            sum.choice.carrier.clone(),
            sum.choice.why().to_owned(),
        ]
    }));
    table::print(
        &[Align::Right, Align::Left, Align::Left, Align::Left],
        &rows,
    )
}

/// Formats a table, with a header line if `header` is set.
pub fn print(connections: &[Mapped], header: bool) -> String {
    const COLUMNS: [(&str, Align); 6] = [
        ("Carrier", Align::Left),
        ("Local Address:Port", Align::Left),
        ("Peer Address:Port", Align::Left),
        ("Inode", Align::Right),
        ("Processes", Align::Left),
        ("Why", Align::Left),
    ];
    let with_processes = connections.iter().any(|found| found.processes.is_some());
    let kept = |index: &usize| with_processes || *index != 4;
    let columns: Vec<usize> = (0..COLUMNS.len()).filter(kept).collect();
    let choose = |row: [String; 6]| columns.iter().map(|index| row[*index].clone()).collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    if header {
        rows.push(choose(COLUMNS.map(|(name, _)| name.to_owned())));
    }
    let end = |end: Option<SocketAddr>| end.map_or_else(|| "*:*".to_owned(), |end| end.to_string());
    rows.extend(connections.iter().map(|found| {
        choose([
            found.choice.carrier.clone(),
            end(found.local),
            end(found.peer),
            found.inode.to_string(),
            Owner::print(found.processes.iter().flatten()),
            found.choice.why().to_owned(),
        ])
    }));
    let aligns: Vec<_> = columns.iter().map(|index| COLUMNS[*index].1).collect();
    table::print(&aligns, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
     inode carrier reason         local                 remote
       871 esp     -              10.0.0.1:40000        10.0.0.2:6379
       872 tcp     refused        -                     -
       873 tcp     dreaming       -                     -
";

    #[test]
    fn lines_are_connections_with_names() {
        let ends = ["10.0.0.1:40001", "10.0.0.2:22"].map(|end| end.parse().unwrap());
        let names = Names::from([(872, ends.into())]);
        let found = parse(TEXT, &names).unwrap();
        assert_eq!(
            print(&found, true),
            "\
Carrier  Local Address:Port  Peer Address:Port  Inode  Why
esp      10.0.0.1:40000      10.0.0.2:6379        871
tcp      10.0.0.1:40001      10.0.0.2:22          872  the peer has no mapped listener on that port
tcp      *:*                 *:*                  873  dreaming
"
        );
        assert!(parse("heading\n1 esp -\n", &names).is_err());
    }

    #[test]
    fn connections_are_counted_by_program_and_reason() {
        let more = TEXT.to_owned() + "874 tcp refused - -\n875 tcp refused - -\n";
        let connections = parse(&more, &Names::new()).unwrap();
        let owner = |pid, name: &str| Owner {
            name: name.to_owned(),
            pid,
            fd: 3,
        };
        let owners = Owners::from_iter([
            (871, owner(9, "redis-server")),
            (872, owner(20, "cat")),
            (872, owner(10, "psql")),
            (874, owner(10, "psql")),
        ]);
        assert_eq!(
            print_sums(&sum(&connections, &owners)),
            "\
Connections  Program       Carrier  Why
          1  ?             tcp      dreaming
          1  ?             tcp      the peer has no mapped listener on that port
          2  psql          tcp      the peer has no mapped listener on that port
          1  redis-server  esp
"
        );
    }

    #[test]
    fn reasons_are_the_modules_words() {
        let source = include_str!("../../../enet/mapped/carriers.rs");
        for (word, _) in REASONS {
            assert!(source.contains(&format!("\"{word}\"")), "{word}");
        }
    }
}
