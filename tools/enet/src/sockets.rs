// SPDX-License-Identifier: MIT OR Apache-2.0

//! Parses `/proc/net/esp` and `/proc/net/edp`.

use std::fmt;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;

use crate::endpoint::{Endpoint, Names};

/// A protocol of the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Streams.
    Esp,
    /// Datagrams.
    Edp,
}

impl Protocol {
    /// Both protocols, in listing order.
    pub const ALL: [Self; 2] = [Self::Esp, Self::Edp];

    /// Returns the protocol's name, which is also the name of the protocol's file in `/proc/net`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Esp => "esp",
            Self::Edp => "edp",
        }
    }

    /// Returns the states that sockets of this protocol can have.
    pub fn states(self) -> impl Iterator<Item = State> {
        State::value_variants()
            .iter()
            .copied()
            .filter(move |state| match state {
                State::Bound | State::Connected => self == Self::Edp,
                _ => self == Self::Esp,
            })
    }
}

/// A socket's state, under the module's name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// ESP: connected
    Established,
    /// ESP: connecting
    SynSent,
    /// ESP: connecting, after the peer's SYN
    SynRecv,
    /// ESP: closed here, and the peer has not acknowledged it
    #[value(name = "fin-wait-1")]
    #[serde(rename = "fin-wait-1")]
    FinWait1,
    /// ESP: closed here
    #[value(name = "fin-wait-2")]
    #[serde(rename = "fin-wait-2")]
    FinWait2,
    /// ESP: closed by the peer
    CloseWait,
    /// ESP: closed by the peer, then here
    LastAck,
    /// ESP: closed at both ends at once
    Closing,
    /// ESP: bound only, or ended
    Closed,
    /// ESP: listening
    Listen,
    /// EDP: without a peer
    Bound,
    /// EDP: with a peer
    Connected,
    /// ESP: a state that this program does not know
    Unknown,
}

impl State {
    /// Returns the module's name for the state.
    pub fn name(self) -> String {
        self.to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }

    fn parse(text: &str) -> Self {
        // An unknown state of a newer module must not hide the other sockets.
        Self::from_str(text, false).unwrap_or(Self::Unknown)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

/// A socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Socket {
    /// Protocol.
    pub protocol: Protocol,
    /// State.
    pub state: State,
    /// Amount of unread data: the bytes of a stream, the number of queued connections of a
    /// listener, or the memory of datagrams in bytes.
    pub receive_queue: u64,
    /// Amount of data that the peer has not acknowledged or the device has not sent: the bytes of a
    /// stream, or the memory of datagrams in bytes.
    pub send_queue: u64,
    /// Local end; `None` for a socket without a port.
    pub local: Option<Endpoint>,
    /// The peer.
    pub peer: Option<Endpoint>,
    /// Received packets that the socket dropped.
    pub drops: u64,
    /// User that created the socket.
    pub uid: u32,
    /// Inode number of the descriptor; 0 if it has none.
    pub inode: u64,
    /// The kind of data that the socket carries, in the module's words: `stream`, `records` or
    /// `datagrams`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// Parses the file of `protocol`. Columns are found by their headings, so that a newer module can
/// add columns.
///
/// # Errors
/// If a column is missing, or a line does not describe a socket.
pub fn parse(protocol: Protocol, text: &str, names: &mut Names) -> Result<Vec<Socket>> {
    let mut lines = text.lines();
    let heading = lines
        .next()
        .with_context(|| format!("/proc/net/{} is empty", protocol.name()))?;
    let columns = Columns::find(heading)
        .with_context(|| format!("the heading of /proc/net/{}", protocol.name()))?;
    lines
        .map(|line| {
            columns
                .socket(protocol, line, names)
                .with_context(|| format!("/proc/net/{}: {line:?}", protocol.name()))
        })
        .collect()
}

/// The position of each column.
struct Columns {
    local: usize,
    remote: usize,
    state: usize,
    receive_queue: usize,
    send_queue: usize,
    drops: usize,
    uid: usize,
    inode: usize,
    /// `None` for earlier modules, which have no such column.
    kind: Option<usize>,
}

impl Columns {
    fn find(heading: &str) -> Result<Self> {
        let column = |name: &str| {
            heading
                .split_whitespace()
                .position(|word| word == name)
                .with_context(|| format!("there is no column {name} in {heading:?}"))
        };
        Ok(Self {
            local: column("local")?,
            remote: column("remote")?,
            state: column("state")?,
            receive_queue: column("recv-q")?,
            send_queue: column("send-q")?,
            drops: column("drops")?,
            uid: column("uid")?,
            inode: column("inode")?,
            kind: column("type").ok(),
        })
    }

    fn socket(&self, protocol: Protocol, line: &str, names: &mut Names) -> Result<Socket> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let field = |column: usize| fields.get(column).copied().context("a column is missing");
        let number = |column: usize| -> Result<u64> { Ok(field(column)?.parse()?) };
        Ok(Socket {
            protocol,
            state: State::parse(field(self.state)?),
            receive_queue: number(self.receive_queue)?,
            send_queue: number(self.send_queue)?,
            local: Endpoint::parse(field(self.local)?, names)?,
            peer: Endpoint::parse(field(self.remote)?, names)?,
            drops: number(self.drops)?,
            uid: field(self.uid)?.parse()?,
            inode: number(self.inode)?,
            kind: match self.kind {
                Some(kind) => field(kind)?,
                None if protocol == Protocol::Esp => "stream",
                None => "datagrams",
            }
            .to_owned(),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const ESP: &str = "\
local                          remote                         state         recv-q   send-q    drops   uid    inode type
*:2805                         *                              listen             1        0        0     0      871 records
02:00:00:00:00:01%2:2805       02:00:00:00:00:02%2:49152      established     5000       12        3  1000      872 stream
02:00:00:00:00:01%2:700        02:00:00:00:00:02%2:700        fin-wait-1         0        7        0     0        0 stream
";
    pub(crate) const EDP: &str = "\
local                          remote                         state         recv-q   send-q    drops   uid    inode
*%2:2805                       *                              bound              0        0        0     0      871
02:00:00:00:00:01%2:70         02:00:00:00:00:02%2:70         connected        768      768        1     0      872
";

    pub(crate) fn sockets(protocol: Protocol, text: &str) -> Vec<Socket> {
        parse(protocol, text, &mut Names::fixed(&[(2, "eth0")])).unwrap()
    }

    #[test]
    fn lines_are_sockets() {
        let found = sockets(Protocol::Esp, ESP);
        let end = |mac: &str, port| {
            Some(Endpoint {
                mac: Some(mac.to_owned()),
                interface: Some("eth0".to_owned()),
                ifindex: Some(2),
                port,
            })
        };
        let wanted = Socket {
            protocol: Protocol::Esp,
            state: State::Established,
            receive_queue: 5000,
            send_queue: 12,
            local: end("02:00:00:00:00:01", 2805),
            peer: end("02:00:00:00:00:02", 49152),
            drops: 3,
            uid: 1000,
            inode: 872,
            kind: "stream".to_owned(),
        };
        assert_eq!(found.len(), 3);
        assert_eq!(found[1], wanted);
        assert_eq!(found[0].peer, None);
        assert_eq!(found[0].kind, "records");
        assert_eq!(found[2].state, State::FinWait1);
        let states: Vec<_> = sockets(Protocol::Edp, EDP)
            .iter()
            .map(|socket| socket.state)
            .collect();
        assert_eq!(states, [State::Bound, State::Connected]);
    }

    #[test]
    fn columns_may_be_added_and_moved() {
        let text =
            "age state local remote recv-q send-q drops uid inode\n1 listen *:5 * 0 0 0 0 9\n";
        let found = sockets(Protocol::Esp, text);
        assert_eq!((found[0].state, found[0].inode), (State::Listen, 9));
        assert_eq!(found[0].kind, "stream");
    }

    #[test]
    fn other_text_is_refused() {
        let parse = |text: &str| parse(Protocol::Esp, text, &mut Names::default());
        assert!(parse("").is_err());
        assert!(parse("local remote\n").is_err());
        let heading = ESP.lines().next().unwrap();
        assert!(parse(heading).unwrap().is_empty());
        assert!(parse(&format!("{heading}\n*:5 * listen 0 0\n")).is_err());
        assert!(parse(&format!("{heading}\n*:5 * listen a 0 0 0 0\n")).is_err());
    }

    #[test]
    fn states_are_the_modules_words() {
        let source = include_str!("../../../enet/procfs.rs");
        for state in State::value_variants() {
            assert!(source.contains(&format!("\"{state}\"")), "{state}");
            assert_eq!(
                serde_json::to_value(state).unwrap(),
                state.name(),
                "JSON has another word"
            );
        }
        assert_eq!(State::parse("dreaming"), State::Unknown);
    }
}
