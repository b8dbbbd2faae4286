// SPDX-License-Identifier: GPL-2.0

//! `/proc/net/edp`, `/proc/net/esp`: the sockets of a namespace. `/proc/net/enet`: its counters.

use crate::net::errno::prelude::*;
use crate::{
    address::Address,
    counters::Counter,
    esp_sock::Esp,
    net::{
        device::Mac,
        namespace::{Net, Operations, PerNet},
        procfs::{File, Output, Show, Table},
        sock::{RawSock, Sock},
    },
    space::{Refused, Space},
    ties::local,
};
use core::fmt::{self, Write};
use kernel::{c_str, str::CStr};

/// `/proc/net/edp`.
pub(crate) struct EdpFile;
/// `/proc/net/esp`.
pub(crate) struct EspFile;
/// `/proc/net/enet`.
pub(crate) struct EnetFile;

/// The files of a namespace.
pub(crate) struct Files {
    _edp: File<EdpFile>,
    _esp: File<EspFile>,
    _enet: File<EnetFile>,
}

static FILES: Operations<Files> = Operations::new();

/// Registered after [`Space`], which the files show: whoever opens one finds it whole.
// SAFETY: Only the module's registration asks for the state.
unsafe impl PerNet for Files {
    fn operations() -> &'static Operations<Self> {
        &FILES
    }

    fn new(net: &Net) -> Result<Self> {
        Ok(Files {
            _edp: File::new(net)?,
            _esp: File::new(net)?,
            _enet: File::new(net)?,
        })
    }
}

static EDP: Table<EdpFile> = Table::new();
static ESP: Table<EspFile> = Table::new();
static ENET: Table<EnetFile> = Table::new();

fn heading(out: &mut Output) -> fmt::Result {
    writeln!(
        out,
        "{:<30} {:<30} {:<11} {:>8} {:>8} {:>8} {:>5} {:>8}",
        "local", "remote", "state", "recv-q", "send-q", "drops", "uid", "inode"
    )
}

/// An address as the tools write it: `02:00:00:00:00:01%2:2805`, the interface by its index.
struct Text(Address);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0.mac.0;
        let Address { port, ifindex, .. } = self.0;
        let wildcard = self.0.mac == Mac::default();
        let mut text = Line::new();
        match (wildcard, ifindex, port) {
            (true, 0, 0) => write!(text, "*")?,
            (true, 0, _) => write!(text, "*:{port}")?,
            (true, _, _) => write!(text, "*%{ifindex}:{port}")?,
            _ => write!(
                text,
                "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}%{ifindex}:{port}"
            )?,
        }
        f.pad(text.as_str())
    }
}

/// A short text, so that a column can be padded.
struct Line {
    bytes: [u8; 40],
    len: usize,
}

impl Line {
    const fn new() -> Self {
        Line {
            bytes: [0; 40],
            len: 0,
        }
    }

    fn as_str(&self) -> &str {
        self.bytes
            .get(..self.len)
            .and_then(|bytes| core::str::from_utf8(bytes).ok())
            .unwrap_or("?")
    }
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let end = self.len.saturating_add(s.len());
        self.bytes
            .get_mut(self.len..end)
            .ok_or(fmt::Error)?
            .copy_from_slice(s.as_bytes());
        self.len = end;
        Ok(())
    }
}

struct Row<'a> {
    sock: &'a RawSock,
    local: Address,
    remote: Address,
    state: &'static str,
    unread: u32,
    unsent: u32,
    drops: u32,
}

impl Row<'_> {
    fn show(&self, out: &mut Output) -> fmt::Result {
        writeln!(
            out,
            "{:<30} {:<30} {:<11} {:>8} {:>8} {:>8} {:>5} {:>8}",
            Text(self.local),
            Text(self.remote),
            self.state,
            self.unread,
            self.unsent,
            self.drops,
            self.sock.uid(),
            self.sock.inode()
        )
    }
}

impl Show for EdpFile {
    const NAME: &'static CStr = c_str!("edp");

    fn table() -> &'static Table<Self> {
        &EDP
    }

    fn show(net: &Net, out: &mut Output) -> fmt::Result {
        heading(out)?;
        let mut result = Ok(());
        Space::of(net)
            .edp_ports
            .sockets
            .for_each_at_leisure(|sock| {
                if result.is_err() {
                    return;
                }
                let shared = sock.shared();
                let peer = shared.peer.get();
                let ifindex = match shared.binding.ifindex() {
                    0 => peer.map_or(0, |peer| peer.ifindex),
                    ifindex => ifindex,
                };
                let row = Row {
                    sock,
                    local: local(net, shared.binding.port(), ifindex),
                    remote: peer.unwrap_or_default(),
                    state: if peer.is_some() { "connected" } else { "bound" },
                    unread: sock.receive_queued(),
                    unsent: sock.in_devices(),
                    drops: shared.stats.pkt_rx_drop.get(),
                };
                result = row.show(out);
            });
        result
    }
}

fn state_name(state: u8) -> &'static str {
    match state {
        1 => "established",
        2 => "syn-sent",
        3 => "syn-recv",
        4 => "fin-wait-1",
        5 => "fin-wait-2",
        7 => "closed",
        8 => "close-wait",
        9 => "last-ack",
        10 => "listen",
        11 => "closing",
        _ => "unknown",
    }
}

impl EspFile {
    fn row(net: &Net, sock: &Sock<Esp>, out: &mut Output) -> fmt::Result {
        let shared = sock.shared();
        let peer = shared.peer();
        let ifindex = match shared.binding.ifindex() {
            0 => peer.ifindex,
            ifindex => ifindex,
        };
        Row {
            sock,
            local: local(net, shared.binding.port(), ifindex),
            remote: peer,
            state: state_name(sock.tcp_state()),
            unread: shared.unread.count(),
            unsent: shared.unacknowledged.bytes(),
            drops: sock.drops(),
        }
        .show(out)
    }
}

impl Show for EspFile {
    const NAME: &'static CStr = c_str!("esp");

    fn table() -> &'static Table<Self> {
        &ESP
    }

    fn show(net: &Net, out: &mut Output) -> fmt::Result {
        heading(out)?;
        let space = Space::of(net);
        let mut result = Ok(());
        space.esp_listeners.for_each_at_leisure(|sock| {
            result = result.and_then(|()| Self::row(net, sock, out));
        });
        space.esp_connections.for_each(|sock| {
            result = result.and_then(|()| Self::row(net, sock, out));
        });
        // Sockets that are bound and nothing more.
        space.esp_ports.sockets.for_each_at_leisure(|sock| {
            if state_name(sock.tcp_state()) == "closed" {
                result = result.and_then(|()| Self::row(net, sock, out));
            }
        });
        result
    }
}

impl Show for EnetFile {
    const NAME: &'static CStr = c_str!("enet");

    fn table() -> &'static Table<Self> {
        &ENET
    }

    fn show(net: &Net, out: &mut Output) -> fmt::Result {
        let space = Space::of(net);
        let (waited, overrun) = space.esp_queues.counts();
        writeln!(out, "EspAckQueueWaited {waited}")?;
        writeln!(out, "EspAckQueueOverrun {overrun}")?;
        let mut line = |name: &str, counter: &Counter| writeln!(out, "{name} {}", counter.get());
        line("EspOutProbes", &space.esp_probes)?;
        line("EdpInEcho", &space.edp_echoed)?;
        for (protocol, refused) in [("Edp", &space.edp_refused), ("Esp", &space.esp_refused)] {
            let Refused {
                not_ours,
                malformed,
                no_socket,
                no_memory,
            } = refused;
            for (name, counter) in [
                ("NotOurs", not_ours),
                ("Malformed", malformed),
                ("NoSocket", no_socket),
                ("NoMemory", no_memory),
            ] {
                let mut text = Line::new();
                write!(text, "{protocol}In{name}")?;
                line(text.as_str(), counter)?;
            }
        }
        Ok(())
    }
}
