// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transports: what messages travel by.
//!
//! Adding one is a file here with a [`Kind`](kind::Kind), and its line in [`kinds::KINDS`].

/// Names a socket option that is an integer and that nix does not know.
macro_rules! socket_option {
    (set $name:ident, $level:path, $option:path) => {
        socket_option!($name, $level, $option, setsockopt_impl, SetStruct);
    };
    (get $name:ident, $level:path, $option:path) => {
        socket_option!($name, $level, $option, getsockopt_impl, GetStruct);
    };
    ($name:ident, $level:path, $option:path, $implement:ident, $by:ident) => {
        #[derive(Clone, Copy)]
        struct $name;
        nix::$implement!(
            $name,
            $level,
            $option,
            libc::c_int,
            nix::sys::socket::sockopt::$by<libc::c_int>
        );
    };
}

pub(crate) mod datagram;
mod edp;
mod esp;
mod esp_records;
mod ip;
pub mod kind;
pub mod kinds;
pub mod mpi;
mod options;
mod packets;
mod polled;
mod raw;
mod spliced;
mod stream;
pub mod streams;
mod tcp;
mod tipc;
mod udp;
mod unix;
mod zero_copy;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{anyhow, Context as _, Result};
use sockaddr_en::{Address, MacAddr};

use crate::host::{wait_readable, Interface};
use crate::wire::Endpoint;

pub use options::{Calls, SocketOptions, Switch, Takes};
pub use packets::Packets;

/// A connected pair of sockets, seen from one side.
pub trait Transport: AsFd {
    /// Sends one message. On a datagram transport, one that is larger than a datagram goes as
    /// several, each of which begins with the message's first byte if the message is filled with
    /// it.
    ///
    /// A transport may send from the message's own memory after this has returned: what is changed
    /// there before the next [`recv`](Self::recv) may travel in place of what was there.
    ///
    /// # Errors
    ///
    /// The socket's error. A timeout ([`is_timeout`](crate::host::is_timeout)) of a datagram
    /// transport means that there was no room for all of it in time.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;

    /// Sends one message whose last packet carries nothing of the next one (`MSG_EOR`). Datagrams
    /// are like that in any case.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send); or the transport keeps no records apart.
    fn send_record(&mut self, message: &[u8]) -> io::Result<()> {
        match self.max_datagram() {
            Some(_) => self.send(message),
            None => Err(no_records()),
        }
    }

    /// Receives one message that is as long as the buffer.
    ///
    /// # Errors
    ///
    /// The socket's error. A timeout ([`is_timeout`](crate::host::is_timeout)) of a datagram
    /// transport means that something got lost.
    fn recv(&mut self, message: &mut [u8]) -> io::Result<()>;

    /// Bytes of the largest message that travels as one datagram; `None` for a reliable stream.
    fn max_datagram(&self) -> Option<usize> {
        None
    }

    /// Packets that this side has sent so far, where the transport counts them.
    ///
    /// # Errors
    ///
    /// The socket's error.
    fn packets(&self) -> io::Result<Option<Packets>> {
        Ok(None)
    }

    /// Throws away what has arrived: late datagrams of an earlier series. A stream loses nothing,
    /// so nothing of it is late.
    ///
    /// # Errors
    ///
    /// The socket's error.
    fn discard_pending(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The remark on the messages sent so far, beside their times.
    fn remark(&self) -> Option<String> {
        None
    }
}

/// The error of a stream that has no packets, or none that it keeps records apart in.
fn no_records() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "this stream keeps no records apart: choose tcp, esp or datagrams, or leave --eor out",
    )
}

/// Connects a prepared socket to the peer's, within the context's time.
type Open = Box<dyn FnOnce(&Endpoint) -> Result<Box<dyn Transport>>>;

/// A socket that waits to be connected to the peer's.
pub struct Prepared {
    /// Where the peer can reach it.
    pub endpoint: Endpoint,
    open: Open,
}

impl Prepared {
    fn new(
        endpoint: Endpoint,
        open: impl FnOnce(&Endpoint) -> Result<Box<dyn Transport>> + 'static,
    ) -> Self {
        Self {
            endpoint,
            open: Box::new(open),
        }
    }

    /// Connects it, within the context's time.
    ///
    /// # Errors
    ///
    /// The socket's error, or the peer did not come in time.
    pub fn open(self, peer: &Endpoint) -> Result<Box<dyn Transport>> {
        (self.open)(peer)
    }
}

/// Connects a prepared socket to the peer's, with these options.
///
/// # Errors
///
/// As [`Prepared::open`].
pub fn open(
    prepared: Prepared,
    peer: &Endpoint,
    options: &SocketOptions,
) -> Result<Box<dyn Transport>> {
    let transport = prepared.open(peer)?;
    options.unlimit(&transport.as_fd())?;
    Ok(transport)
}

/// A transport's name together with the congestion control that was chosen, if one was.
pub fn medium(transport: &str, congestion: Option<&str>) -> String {
    match congestion {
        Some(congestion) => format!("{transport} {congestion}"),
        None => transport.to_owned(),
    }
}

/// The transport of something that is called by [`medium`].
pub fn transport_of(medium: &str) -> &str {
    medium
        .split_once(' ')
        .map_or(medium, |(transport, _)| transport)
}

/// Which side of a pair this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The client: measures. Its stream transports connect.
    Leader,
    /// The server. Its stream transports listen.
    Follower,
}

/// The options of a transport's socket.
#[derive(Clone, Debug)]
pub struct Context {
    /// This side.
    pub role: Role,
    /// This side's address of the control connection, if that has one.
    pub local: Option<SocketAddr>,
    /// The peer's, if there is only one peer.
    pub peer: Option<SocketAddr>,
    /// Name of the interface to use; without one, that of `local`.
    pub interface: Option<String>,
    /// Ethernet type for raw packets, host order.
    pub ethertype: u16,
    /// How long a datagram may take before it counts as lost.
    pub loss_timeout: Duration,
    /// How long a stream may be silent, or the peer take to connect, before it is given up.
    pub give_up: Duration,
    /// Options of the socket; only such as mean something to it.
    pub options: SocketOptions,
    /// Name of TCP's congestion control; without one, the system's.
    pub congestion: Option<String>,
}

impl Context {
    /// The Ethernet interface to use.
    ///
    /// # Errors
    ///
    /// It is absent or no Ethernet interface, or nothing says which.
    pub fn ethernet(&self) -> Result<Interface> {
        match (&self.interface, self.local) {
            (Some(name), _) => Interface::by_name(name),
            (None, local) => {
                let local = local.context("name an Ethernet interface with --interface")?;
                Interface::by_ip(local.ip())
            }
        }
    }

    /// The context of further connections: their sockets have the system's options, and any peer.
    pub fn of_others(&self) -> Self {
        Self {
            peer: None,
            options: SocketOptions::default(),
            ..self.clone()
        }
    }
}

/// The peer's address of a socket with this port on an Ethernet interface.
fn at_interface(interface: &Interface, port: u16) -> Endpoint {
    Endpoint {
        port,
        mac: Some(interface.mac.to_string()),
        ..Endpoint::default()
    }
}

/// The peer's Ethernet address.
fn peer_mac(peer: &Endpoint) -> Result<MacAddr> {
    let text = peer
        .mac
        .as_deref()
        .context("the peer gave no Ethernet address")?;
    Ok(text.parse()?)
}

/// The peer's PF_ENET address, reached through `interface`.
fn peer_address(peer: &Endpoint, interface: &Interface) -> Result<Address> {
    Ok(Address::new(peer_mac(peer)?, interface.index, peer.port))
}

/// Says what to do about one kind of error.
fn remedied(error: io::Error, is_it: bool, remedy: impl FnOnce() -> String) -> anyhow::Error {
    let error = anyhow::Error::new(error);
    match is_it {
        true => error.context(remedy()),
        false => error,
    }
}

/// Says what to do where a PF_ENET socket cannot be had.
pub(crate) fn explain_family(error: io::Error) -> anyhow::Error {
    let other = [libc::ESOCKTNOSUPPORT, libc::EPROTONOSUPPORT].map(Some);
    let is_other = other.contains(&error.raw_os_error());
    remedied(error, is_other, || {
        "another module has this family number here: give --family the number that enet was loaded \
         with (`modprobe --showconfig | grep enet`)"
            .to_owned()
    })
}

/// Waits for the peer to connect to a listening socket.
fn wait_for_peer(listener: &impl AsFd, timeout: Duration) -> Result<()> {
    match wait_readable([listener.as_fd()], Some(timeout))? {
        [true] => Ok(()),
        [false] => Err(anyhow!(
            "the peer did not connect within {} s",
            timeout.as_secs()
        )),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use sockaddr_en::FamilyMissing;

    use super::*;

    /// The context of an end whose control connection is between these addresses of loopback.
    pub(crate) fn context(role: Role, local: u8, peer: u8) -> Context {
        let address = |last| Some(SocketAddr::from(([127, 0, 0, last], 1)));
        let patience = Duration::from_secs(60);
        Context {
            role,
            local: address(local),
            peer: address(peer),
            interface: None,
            ethertype: 0,
            loss_timeout: patience,
            give_up: patience,
            options: SocketOptions::default(),
            congestion: None,
        }
    }

    /// The context of connections with others on loopback.
    pub(crate) fn streams() -> Context {
        context(Role::Leader, 1, 1).of_others()
    }

    #[test]
    fn a_missing_module_is_answered_with_what_to_do() {
        let error = explain_family(io::Error::other(FamilyMissing { family: 28 }));
        assert!(format!("{error:#}").contains("modprobe enet"), "{error:#}");
        let error = explain_family(io::Error::from_raw_os_error(libc::ESOCKTNOSUPPORT));
        assert!(format!("{error:#}").contains("--family"), "{error:#}");
        let error = explain_family(io::Error::from_raw_os_error(libc::ENETDOWN));
        assert!(!format!("{error:#}").contains("modprobe"), "{error:#}");
    }
}
