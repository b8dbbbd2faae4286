// SPDX-License-Identifier: GPL-2.0

//! A namespace's files: `/proc/net/edp` and `/proc/net/esp` list sockets, `/proc/net/enet` lists
//! counters, and the files in `mapped::procfs` list mapped sockets' carriers and rules.

use crate::net::errno::prelude::*;
use crate::{
    address::Address,
    datagram::sock::Edp,
    device::local,
    mapped::procfs::{MappedFile, PolicyFile, SsocksFile, SSOCKS},
    net::{
        self,
        device::Mac,
        namespace::{Net, PerNet},
        procfs::{Directory, Full, Operations, Output, Place, Show, Table, Text},
        sock::{RawSock, Sock},
    },
    parameters,
    pernet::NetState,
    stream::sock::Esp,
};
use core::fmt::{self, Write};
use kernel::{c_str, str::CStr};

/// The file `/proc/net/edp`.
pub(crate) struct EdpFile;
/// The file `/proc/net/esp`.
pub(crate) struct EspFile;
/// The file `/proc/net/enet`.
pub(crate) struct EnetFile;

/// The files of a namespace. They are registered after [`NetState`], which they show, so that the
/// state is complete when a program opens a file.
pub(crate) struct Files;

static FILES: Operations<Files> = Operations::new();

impl net::procfs::Files for Files {
    fn operations() -> &'static Operations<Self> {
        &FILES
    }

    fn make(directory: &mut Directory) -> Result {
        directory.add::<EdpFile>()?;
        directory.add::<EspFile>()?;
        directory.add::<EnetFile>()?;
        directory.add::<MappedFile>()?;
        directory.add_editable::<PolicyFile>()?;
        if parameters::ssocks().is_some() {
            directory.add_directory(SSOCKS)?;
            directory.add::<SsocksFile>()?;
        }
        Ok(())
    }
}

static EDP: Table<EdpFile> = Table::new();
static ESP: Table<EspFile> = Table::new();
static ENET: Table<EnetFile> = Table::new();

fn heading(out: &mut Output) -> Result<(), Full> {
    out.line(format_args!(
        "{:<30} {:<30} {:<11} {:>8} {:>8} {:>8} {:>5} {:>8} {}",
        "local", "remote", "state", "recv-q", "send-q", "drops", "uid", "inode", "type"
    ))
}

/// Formats an address in the form that the tools use, with the interface's index:
/// `02:00:00:00:00:01%2:2805`.
struct Named(Address);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0.mac.0;
        let Address { port, ifindex, .. } = self.0;
        let wildcard = self.0.mac == Mac::default();
        let mut text = Text::<40>::new();
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

struct Row<'a> {
    sock: &'a RawSock,
    local: Address,
    remote: Address,
    state: &'static str,
    unread: u32,
    unsent: u32,
    drops: u32,
    kind: &'static str,
}

impl Row<'_> {
    fn show(&self, out: &mut Output) -> Result<(), Full> {
        out.line(format_args!(
            "{:<30} {:<30} {:<11} {:>8} {:>8} {:>8} {:>5} {:>8} {}",
            Named(self.local),
            Named(self.remote),
            self.state,
            self.unread,
            self.unsent,
            self.drops,
            out.user_of(self.sock),
            self.sock.inode(),
            self.kind
        ))
    }
}

impl Show for EdpFile {
    const NAME: &'static CStr = c_str!("edp");

    fn table() -> &'static Table<Self> {
        &EDP
    }

    fn show(net: &Net, place: &mut Place, out: &mut Output) -> Result<(), Full> {
        if place.part == 0 {
            heading(out)?;
            place.next_part();
        }
        let sockets = &NetState::of(net).edp_ports.sockets;
        sockets.walk(&mut place.walk, |sock| Self::row(net, sock, out))
    }
}

impl EdpFile {
    fn row(net: &Net, sock: &Sock<Edp>, out: &mut Output) -> Result<(), Full> {
        let shared = sock.shared();
        let peer = shared.peer.get();
        let ifindex = match shared.binding.ifindex() {
            0 => peer.map_or(0, |peer| peer.ifindex),
            ifindex => ifindex,
        };
        Row {
            sock,
            local: local(net, shared.binding.port(), ifindex),
            remote: peer.unwrap_or_default(),
            state: if peer.is_some() { "connected" } else { "bound" },
            unread: sock.receive_queued(),
            unsent: sock.in_devices(),
            drops: shared.stats.pkt_rx_drop.get(),
            kind: "datagrams",
        }
        .show(out)
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
    fn row(net: &Net, sock: &Sock<Esp>, out: &mut Output) -> Result<(), Full> {
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
            unread: shared.unread.all(),
            unsent: shared.unacknowledged.bytes(),
            drops: sock.drops(),
            kind: if sock.keeps_records() {
                "records"
            } else {
                "stream"
            },
        }
        .show(out)
    }
}

impl Show for EspFile {
    const NAME: &'static CStr = c_str!("esp");

    fn table() -> &'static Table<Self> {
        &ESP
    }

    fn show(net: &Net, place: &mut Place, out: &mut Output) -> Result<(), Full> {
        let net_state = NetState::of(net);
        loop {
            let walk = &mut place.walk;
            match place.part {
                0 => heading(out)?,
                1 => (net_state.esp_listeners).walk(walk, |sock| Self::row(net, sock, out))?,
                2 => (net_state.esp_connections).walk(walk, |sock| Self::row(net, sock, out))?,
                // The sockets that are bound, but are neither listeners nor connections.
                3 => (net_state.esp_ports.sockets).walk(walk, |sock| {
                    match state_name(sock.tcp_state()) {
                        "closed" => Self::row(net, sock, out),
                        _ => Ok(()),
                    }
                })?,
                _ => return Ok(()),
            }
            place.next_part();
        }
    }
}

impl Show for EnetFile {
    const NAME: &'static CStr = c_str!("enet");

    fn table() -> &'static Table<Self> {
        &ENET
    }

    fn show(net: &Net, place: &mut Place, out: &mut Output) -> Result<(), Full> {
        let statistics = &NetState::of(net).statistics;
        for (name, value) in statistics.all().skip(place.part as usize) {
            out.line(format_args!("{name} {value}"))?;
            place.next_part();
        }
        Ok(())
    }
}
