// SPDX-License-Identifier: GPL-2.0-only

//! One side of a comparison: makes the sockets and addresses of its family in the lab's two hosts.

use anyhow::{Context, Result};

use super::{Family, Kind};
use crate::address::{internet, Address, AF_ENET, IPPROTO_ENET};
use crate::lab::{Host, Lab};
use crate::socket::Socket;

/// The queueing discipline of a wire on which every frame is lost.
const LOSING: &[&str] = &["netem", "loss", "100%"];

/// `AF_UNSPEC`, as long as an address: connecting to it undoes a connection.
pub const NOTHING: [u8; 16] = [0; 16];

/// The lab as one of the two families sees it. Ports are the behaviour's own: each has a lab to
/// itself.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The two hosts, for what has nothing to do with the family.
    pub lab: &'a Lab,
    /// Which family this is; asking is for what cannot be written once, not for making up for
    /// differences.
    pub family: Family,
    kind: Kind,
}

impl<'a> Side<'a> {
    /// The side `family` of a behaviour of `kind`.
    pub fn new(lab: &'a Lab, family: Family, kind: Kind) -> Self {
        Self { lab, family, kind }
    }

    /// The protocol's name.
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

    /// Family, type and protocol for `socket(2)`.
    pub fn numbers(&self) -> (i32, i32, i32) {
        let family = match self.family {
            Family::Inet if self.is_local() => libc::AF_UNIX,
            Family::Inet | Family::Mapped => libc::AF_INET,
            Family::Enet => AF_ENET,
        };
        let kind = match (self.kind, self.family) {
            (Kind::Datagram, _) => libc::SOCK_DGRAM,
            (Kind::Record, _) | (Kind::Message, Family::Enet) => libc::SOCK_SEQPACKET,
            // SCTP has its associations of two ends under this type.
            (Kind::Stream | Kind::Message, _) => libc::SOCK_STREAM,
        };
        let protocol = match (self.family, self.kind) {
            (Family::Mapped, _) => IPPROTO_ENET,
            (Family::Inet, Kind::Message) => libc::IPPROTO_SCTP,
            (Family::Inet | Family::Enet, _) => 0,
        };
        (family, kind, protocol)
    }

    /// Whether both ends are on one host, as sockets of `AF_UNIX` are.
    fn is_local(&self) -> bool {
        (self.kind, self.family) == (Kind::Record, Family::Inet)
    }

    /// A new socket of `host`.
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

    /// Whether this is a behaviour of records beside SCTP's messages.
    pub fn is_beside_sctp(&self) -> bool {
        self.kind == Kind::Message
    }

    /// Whether this is a behaviour of streams.
    pub fn is_stream(&self) -> bool {
        self.kind == Kind::Stream
    }

    /// Two sockets connected to each other, `a`'s and `b`'s, of whichever kind the behaviour is
    /// about.
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

    /// A name of `AF_UNIX` that is in no directory.
    fn local(port: u16) -> Vec<u8> {
        let family = (libc::AF_UNIX as u16).to_ne_bytes();
        [&family[..], format!("\0records {port}").as_bytes()].concat()
    }

    fn is_a(&self, host: &Host) -> bool {
        host.mac == self.lab.a.mac
    }

    fn inet(number: u8, port: u16) -> Vec<u8> {
        internet([10, 0, 0, number], port)
    }

    /// `port` of `host`'s own address, to bind to.
    pub fn here(&self, host: &Host, port: u16) -> Vec<u8> {
        match self.family {
            Family::Inet if self.is_local() => Self::local(port),
            Family::Inet | Family::Mapped => Self::inet(if self.is_a(host) { 1 } else { 2 }, port),
            Family::Enet => host.here(port).to_bytes().to_vec(),
        }
    }

    /// `port` of `a`'s own address, to bind to.
    pub fn at_a(&self, port: u16) -> Vec<u8> {
        self.here(&self.lab.a, port)
    }

    /// `port` of `b`'s own address, to bind to.
    pub fn at_b(&self, port: u16) -> Vec<u8> {
        self.here(&self.lab.b, port)
    }

    /// `port` of all of a host's addresses, to bind to.
    pub fn anywhere(&self, port: u16) -> Vec<u8> {
        match self.family {
            Family::Inet | Family::Mapped => internet([0; 4], port),
            Family::Enet => Address {
                port,
                ..Address::default()
            }
            .to_bytes()
            .to_vec(),
        }
    }

    /// `port` of `to`, as `from` addresses it; `to` may be `from` itself.
    pub fn address(&self, from: &Host, to: &Host, port: u16) -> Vec<u8> {
        match self.family {
            Family::Inet if self.is_local() => Self::local(port),
            Family::Inet | Family::Mapped => Self::inet(if self.is_a(to) { 1 } else { 2 }, port),
            Family::Enet => from.to(to, port).to_bytes().to_vec(),
        }
    }

    /// `port` of `b` as `a` addresses it.
    pub fn far(&self, port: u16) -> Vec<u8> {
        self.address(&self.lab.a, &self.lab.b, port)
    }

    /// `port` of a station that does not exist, as `a` addresses it: nothing ever answers.
    pub fn nobody(&self, port: u16) -> Vec<u8> {
        match self.family {
            Family::Inet | Family::Mapped => Self::inet(99, port),
            Family::Enet => self.lab.a.to_nobody(port).to_bytes().to_vec(),
        }
    }

    /// `port` of every station, as `a` addresses it.
    pub fn everybody(&self, port: u16) -> Vec<u8> {
        match self.family {
            Family::Inet | Family::Mapped => Self::inet(255, port),
            Family::Enet => {
                let mut address = self.lab.a.to_nobody(port);
                address.mac = [0xff; 6];
                address.to_bytes().to_vec()
            }
        }
    }

    /// The port in an address that the kernel wrote.
    pub fn port(&self, name: &[u8]) -> u16 {
        match name {
            [_, _, high, low, ..] => u16::from_be_bytes([*high, *low]),
            _ => 0,
        }
    }

    /// A socket of `host` bound to `port` of its own address.
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

    /// A listener of `b`.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn listener(&self, port: u16, backlog: i32) -> Result<Socket> {
        let socket = self.bound(&self.lab.b, port)?;
        socket.listen(backlog).context("listen")?;
        Ok(socket)
    }

    /// A socket of `a` connected to `port` of `b`.
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

    /// Runs `work` while all that `a` sends is lost.
    ///
    /// # Errors
    /// With `tc`'s own words when it fails, and when `work` does.
    pub fn losing_frames<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        // An attempt to connect is to outlast the loss, however long `tc` takes.
        self.lab.a.tcp_tries(6)?;
        self.lab.a.queue("add", LOSING)?;
        let value = work()?;
        self.lab.a.queue("del", &[])?;
        Ok(value)
    }

    /// Runs `work` while what `a` sends stays in its device's queue: a few bytes a second leave.
    /// The rest is lost then.
    ///
    /// # Errors
    /// With `tc`'s own words when it fails, and when `work` does.
    pub fn delaying_frames<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.delay_begins()?;
        let value = work()?;
        self.delay_ends()?;
        Ok(value)
    }

    /// From now on what `a` sends stays in its device's queue: after the first 1100 bytes 10 a
    /// second leave. Of frames of a kilobyte that is one, and none within the next minute.
    ///
    /// # Errors
    /// With `tc`'s own words when it fails.
    pub fn delay_begins(&self) -> Result<()> {
        // netem would take the frames from their sockets' accounts.
        let slow = ["tbf", "rate", "80bit", "burst", "1100", "limit", "1mb"];
        self.lab.a.queue("add", &slow)
    }

    /// Ends [`Self::delay_begins`]; what was queued is lost.
    ///
    /// # Errors
    /// With `tc`'s own words when it fails.
    pub fn delay_ends(&self) -> Result<()> {
        self.lab.a.queue("del", &[])
    }

    /// Stops everything that the two hosts send each other, or lets it go again.
    ///
    /// # Errors
    /// With `tc`'s own words when it fails.
    pub fn cut_wire(&self, cut: bool) -> Result<()> {
        for host in [&self.lab.a, &self.lab.b] {
            match cut {
                true => host.queue("add", LOSING)?,
                false => host.queue("del", &[])?,
            }
        }
        Ok(())
    }

    /// A stream from `a` to `b`: the client's end and the server's.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn stream(&self, port: u16) -> Result<(Socket, Socket)> {
        let listener = self.listener(port, 16)?;
        let client = self.dial(port)?;
        let (server, _) = listener.accept(0).context("accept")?;
        Ok((client, server))
    }

    /// A datagram socket on each host, each bound to `port` and connected to the other.
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
