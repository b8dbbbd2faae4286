// SPDX-License-Identifier: GPL-2.0-only

//! Makes the sockets and addresses of one side of a comparison. A side is one family of protocols
//! on the lab's two hosts.

use anyhow::{Context, Result};

use super::{Family, Kind};
use guest::address::{internet, internet6, Address, AF_ENET, IPPROTO_ENET};
use guest::lab::{Host, Lab};
use guest::mapped::far6;
use guest::socket::Socket;

/// The queueing discipline of a wire that loses every frame.
const LOSING: &[&str] = &["netem", "loss", "100%"];

/// A name of the family `AF_UNSPEC`, as long as an address. Connecting to it disconnects a socket.
pub const NOTHING: [u8; 16] = [0; 16];

/// The lab as one of the two families sees it. A behaviour may use any port, since each behaviour
/// has a lab of its own.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The two hosts, for operations that do not depend on the family.
    pub lab: &'a Lab,
    /// The family of this side. The code of a behaviour (a test that runs once per family) may read
    /// this field only where the families need different code, and never to hide a difference
    /// between them.
    pub family: Family,
    kind: Kind,
    /// Whether streams of the Internet families use IPv6 instead of IPv4.
    v6: bool,
}

impl<'a> Side<'a> {
    /// Makes the side `family` of a behaviour of `kind`. If `v6` is set, the sockets of the
    /// Internet families are of IPv6.
    pub fn new(lab: &'a Lab, family: Family, kind: Kind, v6: bool) -> Self {
        Self {
            lab,
            family,
            kind,
            v6,
        }
    }

    /// Returns the name of the protocol that this side's sockets use.
    pub fn name(&self) -> &'static str {
        match (self.kind, self.family) {
            (Kind::Stream, Family::Inet) => "TCP",
            (Kind::Stream, Family::Enet) => "ESP",
            (Kind::Stream, Family::Mapped) => "mapped TCP",
            (Kind::Datagram, Family::Inet | Family::Mapped) => "UDP",
            (Kind::Datagram, Family::Enet) => "EDP",
            (Kind::Record, Family::Inet | Family::Mapped) => "AF_UNIX",
            (Kind::Message, Family::Inet | Family::Mapped) => "SCTP",
            (Kind::Record | Kind::Message, Family::Enet) => "ESP's records",
        }
    }

    /// Returns family, type and protocol for `socket(2)`.
    pub fn numbers(&self) -> (i32, i32, i32) {
        let family = match self.family {
            Family::Inet if self.is_local() => libc::AF_UNIX,
            Family::Inet | Family::Mapped if self.v6 => libc::AF_INET6,
            Family::Inet | Family::Mapped => libc::AF_INET,
            Family::Enet => AF_ENET,
        };
        let kind = match (self.kind, self.family) {
            (Kind::Datagram, _) => libc::SOCK_DGRAM,
            (Kind::Record, _) | (Kind::Message, Family::Enet) => libc::SOCK_SEQPACKET,
            // SCTP's one-to-one sockets have this type.
            (Kind::Stream | Kind::Message, _) => libc::SOCK_STREAM,
        };
        let protocol = match (self.family, self.kind) {
            (Family::Mapped, _) => IPPROTO_ENET,
            (Family::Inet, Kind::Message) => libc::IPPROTO_SCTP,
            (Family::Inet | Family::Enet, _) => 0,
        };
        (family, kind, protocol)
    }

    /// Returns whether both ends are on one host, as the ends of an `AF_UNIX` connection are.
    fn is_local(&self) -> bool {
        (self.kind, self.family) == (Kind::Record, Family::Inet)
    }

    /// Makes a socket on `host`.
    ///
    /// # Errors
    /// The errno of `socket(2)`.
    pub fn socket(&self, host: &Host) -> Result<Socket> {
        let (family, kind, protocol) = self.numbers();
        let host = if self.is_local() { &self.lab.b } else { host };
        host.namespace
            .within(|| Socket::new(family, kind, protocol))?
            .with_context(|| format!("{} socket", self.name()))
    }

    /// Returns whether the behaviour compares records with SCTP's messages.
    pub fn is_beside_sctp(&self) -> bool {
        self.kind == Kind::Message
    }

    /// Returns whether the behaviour is about streams.
    pub fn is_stream(&self) -> bool {
        self.kind == Kind::Stream
    }

    /// Makes two sockets of the behaviour's kind, one on `a` and one on `b`, which are connected to
    /// each other.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn pair(&self, port: u16) -> Result<(Socket, Socket)> {
        if self.kind.connects() {
            self.stream(port)
        } else {
            self.datagrams(port)
        }
    }

    /// Returns an abstract `AF_UNIX` name, which does not exist in any directory.
    fn local(port: u16) -> Vec<u8> {
        let family = (libc::AF_UNIX as u16).to_ne_bytes();
        [&family[..], format!("\0records {port}").as_bytes()].concat()
    }

    fn is_a(&self, host: &Host) -> bool {
        host.mac == self.lab.a.mac
    }

    /// Returns the Internet address of the host with this number on the wire with this number:
    /// 10.0.`wire`.`host`, or fd00:0:0:`wire`::`host`.
    pub fn internet(&self, wire: u8, host: u8, port: u16) -> Vec<u8> {
        if self.v6 {
            let mut address = far6(host);
            address[7] = wire;
            internet6(address, port)
        } else {
            internet([10, 0, wire, host], port)
        }
    }

    fn inet(&self, host: &Host, port: u16) -> Vec<u8> {
        self.internet(0, if self.is_a(host) { 1 } else { 2 }, port)
    }

    /// Returns the bytes of the network or Ethernet address in an address that the kernel wrote.
    pub fn host_of<'b>(&self, name: &'b [u8]) -> &'b [u8] {
        match self.family {
            Family::Inet | Family::Mapped if self.v6 => &name[8..24],
            Family::Inet | Family::Mapped => &name[4..8],
            Family::Enet => &name[9..15],
        }
    }

    /// Returns the address of `port` on `host`, for binding.
    pub fn here(&self, host: &Host, port: u16) -> Vec<u8> {
        match self.family {
            Family::Inet if self.is_local() => Self::local(port),
            Family::Inet | Family::Mapped => self.inet(host, port),
            Family::Enet => host.here(port).to_bytes().to_vec(),
        }
    }

    /// Returns the address of `port` on `a`, for binding.
    pub fn at_a(&self, port: u16) -> Vec<u8> {
        self.here(&self.lab.a, port)
    }

    /// Returns the address of `port` on `b`, for binding.
    pub fn at_b(&self, port: u16) -> Vec<u8> {
        self.here(&self.lab.b, port)
    }

    /// Returns the wildcard address with `port`, for binding.
    pub fn anywhere(&self, port: u16) -> Vec<u8> {
        match self.family {
            Family::Inet | Family::Mapped if self.v6 => internet6([0; 16], port),
            Family::Inet | Family::Mapped => internet([0; 4], port),
            Family::Enet => Address {
                port,
                ..Address::default()
            }
            .to_bytes()
            .to_vec(),
        }
    }

    /// Returns the address of `port` on `to` as `from` sees it; `to` may be `from` itself.
    pub fn address(&self, from: &Host, to: &Host, port: u16) -> Vec<u8> {
        match self.family {
            Family::Inet if self.is_local() => Self::local(port),
            Family::Inet | Family::Mapped => self.inet(to, port),
            Family::Enet => from.to(to, port).to_bytes().to_vec(),
        }
    }

    /// Returns the address of `port` on `b` as `a` sees it.
    pub fn far(&self, port: u16) -> Vec<u8> {
        self.address(&self.lab.a, &self.lab.b, port)
    }

    /// Returns the address of a station that does not exist, as `a` sees it. Nothing ever answers.
    pub fn nobody(&self, port: u16) -> Vec<u8> {
        match self.family {
            Family::Inet | Family::Mapped => self.internet(0, 99, port),
            Family::Enet => self.lab.a.to_nobody(port).to_bytes().to_vec(),
        }
    }

    /// Returns the broadcast address with `port`, as `a` sees it. IPv6 has no broadcast address, so
    /// for IPv6 this is the multicast address of all hosts.
    pub fn everybody(&self, port: u16) -> Vec<u8> {
        const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        match self.family {
            Family::Inet | Family::Mapped if self.v6 => internet6(ALL_NODES, port),
            Family::Inet | Family::Mapped => self.internet(0, 255, port),
            Family::Enet => {
                let mut address = self.lab.a.to_nobody(port);
                address.mac = [0xff; 6];
                address.to_bytes().to_vec()
            }
        }
    }

    /// Returns the port in an address that the kernel wrote.
    pub fn port(&self, name: &[u8]) -> u16 {
        match name {
            [_, _, high, low, ..] => u16::from_be_bytes([*high, *low]),
            _ => 0,
        }
    }

    /// Makes a socket on `host`, bound to `port`.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn bound(&self, host: &Host, port: u16) -> Result<Socket> {
        let socket = self.socket(host)?;
        socket
            .bind_bytes(&self.here(host, port))
            .with_context(|| format!("binding {} port {port}", self.name()))?;
        Ok(socket)
    }

    /// Makes a listener on `b`.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn listener(&self, port: u16, backlog: i32) -> Result<Socket> {
        let socket = self.bound(&self.lab.b, port)?;
        socket.listen(backlog).context("listen")?;
        Ok(socket)
    }

    /// Makes a socket on `a`, connected to `port` on `b`.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn dial(&self, port: u16) -> Result<Socket> {
        let client = self.socket(&self.lab.a)?;
        client
            .connect_bytes(&self.far(port))
            .with_context(|| format!("connecting to {} port {port}", self.name()))?;
        Ok(client)
    }

    /// Runs `work` while all frames from `a` are lost.
    ///
    /// # Errors
    /// If `tc` fails, with its message, or if `work` fails.
    pub fn losing_frames<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        // TCP's connection attempt must outlast the loss even if `tc` is slow.
        self.lab.a.tcp_tries(6)?;
        self.lab.a.queue("add", LOSING)?;
        let value = work()?;
        self.lab.a.queue("del", &[])?;
        Ok(value)
    }

    /// Runs `work` while the frames from `a` stay in its device's queue, which sends only a few
    /// bytes per second. The frames that are still queued afterwards are lost.
    ///
    /// # Errors
    /// If `tc` fails, with its message, or if `work` fails.
    pub fn delaying_frames<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.delay_begins()?;
        let value = work()?;
        self.delay_ends()?;
        Ok(value)
    }

    /// Keeps the frames from `a` in its device's queue from now on. The queue sends the first 1100
    /// bytes at once, and then 10 bytes per second. So it sends one frame of a kilobyte, and no
    /// second one within the next minute.
    ///
    /// # Errors
    /// If `tc` fails, with its message.
    pub fn delay_begins(&self) -> Result<()> {
        // The discipline is `tbf`. With netem, the queued frames would no longer count against
        // their sockets' send buffers.
        let slow = ["tbf", "rate", "80bit", "burst", "1100", "limit", "1mb"];
        self.lab.a.queue("add", &slow)
    }

    /// Ends the delay that [`Self::delay_begins`] started; the queued frames are lost.
    ///
    /// # Errors
    /// If `tc` fails, with its message.
    pub fn delay_ends(&self) -> Result<()> {
        self.lab.a.queue("del", &[])
    }

    /// Drops all frames between the two hosts if `cut` is true, and passes them again if it is
    /// false.
    ///
    /// # Errors
    /// If `tc` fails, with its message.
    pub fn cut_wire(&self, cut: bool) -> Result<()> {
        for host in [&self.lab.a, &self.lab.b] {
            match cut {
                true => host.queue("add", LOSING)?,
                false => host.queue("del", &[])?,
            }
        }
        Ok(())
    }

    /// Connects a stream from `a` to `b`; returns the client's end and the server's end.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn stream(&self, port: u16) -> Result<(Socket, Socket)> {
        let listener = self.listener(port, 16)?;
        let client = self.dial(port)?;
        let (server, _) = listener.accept(0).context("accept")?;
        Ok((client, server))
    }

    /// Makes a datagram socket on each host. Each is bound to `port` and connected to the other
    /// one.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn datagrams(&self, port: u16) -> Result<(Socket, Socket)> {
        let (a, b) = (&self.lab.a, &self.lab.b);
        let ends = (self.bound(a, port)?, self.bound(b, port)?);
        ends.0
            .connect_bytes(&self.address(a, b, port))
            .context("connect")?;
        ends.1
            .connect_bytes(&self.address(b, a, port))
            .context("connect")?;
        Ok(ends)
    }
}
