// SPDX-License-Identifier: MIT OR Apache-2.0

//! `enet ss`: lists sockets.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result};
use clap::Args;
use nix::unistd::{Uid, User};
use serde::Serialize;

use crate::endpoint::{port, Endpoint, Names};
use crate::interfaces::{number_of, Fault};
use crate::mapped;
use crate::owners::{self, Owner, Owners};
use crate::sockets::{self, Protocol, Socket, State};
use crate::table::{self, Align};
use crate::{output, proc_file};

/// Arguments of `ss`.
#[derive(Debug, Default, Args)]
pub struct SsArgs {
    /// List ESP sockets; without this and --edp, both protocols are listed
    #[arg(short = 's', long)]
    esp: bool,

    /// List EDP sockets
    #[arg(short = 'd', long)]
    edp: bool,

    /// List sockets that wait for peers: ESP listeners, EDP sockets without a peer
    #[arg(short, long, conflicts_with = "state")]
    listening: bool,

    /// List all sockets; without this and -l, only sockets that have a peer are listed
    #[arg(short, long, conflicts_with_all = ["listening", "state"])]
    all: bool,

    /// List the connections of mapped sockets instead: whether ESP or TCP carries each, and why TCP
    #[arg(short, long, conflicts_with_all = ["esp", "edp", "listening", "all", "state", "interface", "counters"])]
    mapped: bool,

    /// List sockets in this state; can be repeated
    #[arg(long, value_name = "STATE")]
    state: Vec<State>,

    /// List sockets with this local or peer port
    #[arg(short, long, value_name = "PORT", value_parser = port, allow_negative_numbers = true)]
    port: Option<u16>,

    /// List sockets on this interface
    #[arg(short, long, value_name = "NAME")]
    interface: Option<String>,

    /// Print the processes that have each socket open, as far as this user may examine them
    #[arg(short = 'P', long)]
    processes: bool,

    /// Print each socket's own counters below it, as far as this user may trace its processes
    #[arg(short, long)]
    counters: bool,

    /// Print no header
    #[arg(short = 'H', long)]
    no_header: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl SsArgs {
    /// Prints the sockets of this network namespace.
    ///
    /// # Errors
    /// If the module is not loaded, its files have an unknown format, or the interface does not
    /// exist.
    pub fn run(&self) -> Result<()> {
        if self.mapped {
            return self.run_mapped();
        }
        let interface = self.interface.as_deref().map(find_interface).transpose()?;
        let mut names = Names::default();
        let mut sockets = Vec::new();
        for protocol in Protocol::ALL {
            if self.wants_protocol(protocol) {
                let text = proc_file::read(protocol.name())?;
                sockets.extend(sockets::parse(protocol, &text, &mut names)?);
            }
        }
        sockets.retain(|socket| self.wants(socket, interface));
        let mut listed = with_users(sockets);
        if self.processes || self.counters {
            self.add_owners(&mut listed);
        }
        output::print(&if self.json {
            serde_json::to_string_pretty(&listed)? + "\n"
        } else {
            self.print(&listed)
        })
    }

    /// Lists connections of mapped sockets.
    fn run_mapped(&self) -> Result<()> {
        let text = proc_file::read(mapped::FILE)?;
        let mut connections = mapped::parse(&text, &mapped::tcp_names())?;
        connections.retain(|found| {
            let mut ends = found.local.iter().chain(&found.peer);
            self.port
                .is_none_or(|port| ends.any(|end| end.port() == port))
        });
        if self.processes {
            let owners = Owners::find();
            for found in &mut connections {
                found.processes = Some(owners.of(found.inode).to_vec());
            }
        }
        output::print(&if self.json {
            serde_json::to_string_pretty(&connections)? + "\n"
        } else {
            mapped::print(&connections, !self.no_header)
        })
    }

    fn add_owners(&self, sockets: &mut [Listed]) {
        let owners = Owners::find();
        for listed in sockets {
            let socket = &listed.socket;
            let found = owners.of(socket.inode);
            if self.counters {
                listed.counters = found
                    .iter()
                    .find_map(|owner| owners::counters(socket.protocol, owner).ok())
                    .map(|counters| counters.into_iter().collect());
            }
            if self.processes {
                listed.processes = Some(found.to_vec());
            }
        }
    }

    fn wants_protocol(&self, protocol: Protocol) -> bool {
        let chosen = match protocol {
            Protocol::Esp => self.esp,
            Protocol::Edp => self.edp,
        };
        chosen || !(self.esp || self.edp)
    }

    /// Returns whether a socket is to be listed. `interface` is the number of the interface that
    /// the user named.
    fn wants(&self, socket: &Socket, interface: Option<u32>) -> bool {
        self.wants_state(socket.state)
            && self
                .port
                .is_none_or(|port| ends(socket).any(|end| end.port == port))
            && interface.is_none_or(|index| ends(socket).any(|end| end.ifindex == Some(index)))
    }

    fn wants_state(&self, state: State) -> bool {
        if !self.state.is_empty() {
            return self.state.contains(&state);
        }
        let waits = matches!(state, State::Listen | State::Bound);
        let has_peer = !waits && state != State::Closed;
        self.all || if self.listening { waits } else { has_peer }
    }

    fn print(&self, sockets: &[Listed]) -> String {
        const COLUMNS: [(&str, Align); 11] = [
            ("Proto", Align::Left),
            ("Type", Align::Left),
            ("State", Align::Left),
            ("Recv-Q", Align::Right),
            ("Send-Q", Align::Right),
            ("Local Address:Port", Align::Left),
            ("Peer Address:Port", Align::Left),
            ("Drops", Align::Right),
            ("User", Align::Left),
            ("Inode", Align::Right),
            ("Processes", Align::Left),
        ];
        let columns = if self.processes {
            &COLUMNS[..]
        } else {
            &COLUMNS[..COLUMNS.len() - 1]
        };
        let (names, aligns): (Vec<_>, Vec<_>) = columns
            .iter()
            .map(|(name, align)| ((*name).to_owned(), *align))
            .unzip();
        let mut rows = Vec::new();
        if !self.no_header {
            rows.push(names);
        }
        let headers = rows.len();
        rows.extend(sockets.iter().map(Listed::row));
        let text = table::print(&aligns, &rows);
        if !self.counters {
            return text;
        }
        let below = sockets.iter().map(Listed::counters_line);
        let below = std::iter::repeat_n(String::new(), headers).chain(below);
        let lines = text.lines().zip(below);
        lines.fold(String::new(), |text, (line, below)| {
            text + line + "\n" + &below
        })
    }
}

/// Returns the number of the interface. Fails if no interface has the name, because an empty list
/// would hide a misspelt name. Sockets of a removed interface are listed under its number.
fn find_interface(name: &str) -> Result<u32> {
    number_of(name)?.with_context(|| Fault::Absent(name.to_owned()))
}

fn ends(socket: &Socket) -> impl Iterator<Item = &Endpoint> {
    socket.local.iter().chain(&socket.peer)
}

/// A socket, with its user's name.
#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    socket: Socket,
    user: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<Vec<Owner>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counters: Option<BTreeMap<&'static str, u32>>,
}

impl Listed {
    fn row(&self) -> Vec<String> {
        let socket = &self.socket;
        vec![
            socket.protocol.name().to_owned(),
            socket.kind.clone(),
            socket.state.name(),
            socket.receive_queue.to_string(),
            socket.send_queue.to_string(),
            Endpoint::print(socket.local.as_ref()),
            Endpoint::print(socket.peer.as_ref()),
            socket.drops.to_string(),
            self.user.clone(),
            socket.inode.to_string(),
            Owner::print(self.processes.iter().flatten()),
        ]
    }

    /// Returns the line of the socket's counters; empty if they are not known.
    fn counters_line(&self) -> String {
        self.counters.as_ref().map_or_else(String::new, |counters| {
            let words: Vec<_> = counters
                .iter()
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            format!("    {}\n", words.join("  "))
        })
    }
}

fn with_users(sockets: Vec<Socket>) -> Vec<Listed> {
    let mut names = HashMap::new();
    sockets
        .into_iter()
        .map(|socket| {
            let user = names.entry(socket.uid).or_insert_with(|| user(socket.uid));
            Listed {
                user: user.clone(),
                socket,
                processes: None,
                counters: None,
            }
        })
        .collect()
}

/// Returns the user's name, or the number if the system has no name for it.
fn user(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => uid.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::tests::{sockets, EDP, ESP};

    fn chosen(arguments: &SsArgs) -> Vec<String> {
        chosen_on(arguments, None)
    }

    fn chosen_on(arguments: &SsArgs, interface: Option<u32>) -> Vec<String> {
        [(Protocol::Esp, ESP), (Protocol::Edp, EDP)]
            .into_iter()
            .filter(|(protocol, _)| arguments.wants_protocol(*protocol))
            .flat_map(|(protocol, text)| sockets(protocol, text))
            .filter(|socket| arguments.wants(socket, interface))
            .map(|socket| socket.state.name())
            .collect()
    }

    #[test]
    fn filters_choose() {
        let none = SsArgs::default();
        assert_eq!(chosen(&none), ["established", "fin-wait-1", "connected"]);
        let listening = SsArgs {
            listening: true,
            ..SsArgs::default()
        };
        assert_eq!(chosen(&listening), ["listen", "bound"]);
        let all = SsArgs {
            all: true,
            edp: true,
            ..SsArgs::default()
        };
        assert_eq!(chosen(&all), ["bound", "connected"]);
        let states = SsArgs {
            state: vec![State::FinWait1, State::Listen],
            ..SsArgs::default()
        };
        assert_eq!(chosen(&states), ["listen", "fin-wait-1"]);
        let port = SsArgs {
            port: Some(49152),
            all: true,
            ..SsArgs::default()
        };
        assert_eq!(chosen(&port), ["established"]);
        let all = SsArgs {
            all: true,
            esp: true,
            ..SsArgs::default()
        };
        assert_eq!(chosen_on(&all, Some(2)), ["established", "fin-wait-1"]);
        assert!(chosen_on(&all, Some(3)).is_empty());
    }

    #[test]
    fn an_absent_interface_is_an_error() {
        let error = find_interface("nope0").unwrap_err().to_string();
        assert!(error.contains("no interface nope0"), "{error}");
        let lo = sockaddr_en::interface_index("lo").unwrap();
        assert_eq!(find_interface("lo").unwrap(), lo);
        assert_eq!(find_interface("4711").unwrap(), 4711);
    }

    #[test]
    fn columns_fit() {
        let mut arguments = SsArgs::default();
        let mut found = sockets(Protocol::Esp, ESP);
        found.truncate(2);
        let mut listed = with_users(found);
        for listed in &mut listed {
            listed.user = "root".to_owned();
        }
        let text = arguments.print(&listed);
        assert_eq!(
            text,
            "\
Proto  Type     State        Recv-Q  Send-Q  Local Address:Port           Peer Address:Port             Drops  User  Inode
esp    records  listen            1       0  *:2805                       *:*                               0  root    871
esp    stream   established    5000      12  02:00:00:00:00:01%eth0:2805  02:00:00:00:00:02%eth0:49152      3  root    872
"
        );
        arguments.no_header = true;
        assert_eq!(arguments.print(&listed).lines().count(), 2);
        arguments.processes = true;
        arguments.counters = true;
        listed[1].processes = Some(vec![Owner {
            name: "socat".to_owned(),
            pid: 7,
            fd: 5,
        }]);
        listed[1].counters = Some([("pkt_tx", 12), ("pkt_rtx", 0)].into());
        let text = arguments.print(&listed);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].ends_with(" 871"), "{text}");
        assert!(lines[1].ends_with(" 872  socat[7]:5"), "{text}");
        assert_eq!(lines[2..], ["    pkt_rtx 0  pkt_tx 12"]);
    }

    #[test]
    fn json_has_every_field() {
        let listed = with_users(sockets(Protocol::Edp, EDP));
        let json = serde_json::to_value(&listed).unwrap();
        assert_eq!(json[1]["protocol"], "edp");
        assert_eq!(json[1]["state"], "connected");
        assert_eq!(json[1]["peer"]["interface"], "eth0");
        assert_eq!(json[1]["peer"]["port"], 70);
        assert_eq!(json[0]["peer"], serde_json::Value::Null);
        assert_eq!(json[0]["user"], "root");
    }
}
