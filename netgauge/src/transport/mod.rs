// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transports, which carry messages.
//!
//! A new transport needs a file here with a [`Kind`](kind::Kind), and a line in [`kinds::KINDS`].

/// Declares a socket option whose value is an integer. It is for options that nix lacks.
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

mod completions;
pub(crate) mod datagram;
mod edp;
mod edp_ring;
mod edp_zero_copy;
mod esp;
mod esp_records;
mod esp_ring;
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
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{bail, Context as _, Result};
use sockaddr_en::{Address, MacAddr};

use crate::host::{wait_readable, Interface};
use crate::wire::Endpoint;

pub use options::{Calls, SocketOptions, Switch, Takes};
pub use packets::Packets;

/// One end of a connected pair of sockets.
pub trait Transport: AsFd {
    /// Sends one message. A datagram transport sends a large message as several datagrams; if the
    /// message is filled with one byte, each datagram begins with that byte.
    ///
    /// A transport may still send from the message's memory after this call returns. If the memory
    /// changes before the next [`recv`](Self::recv), the changed bytes may be sent.
    ///
    /// # Errors
    ///
    /// Fails with the socket's error. For a datagram transport, a timeout
    /// ([`is_timeout`](crate::host::is_timeout)) means that there was not enough room in time.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;

    /// Sends one message as a record (`MSG_EOR`), so that its last packet has no data of the next
    /// message. A datagram never has data of two messages.
    ///
    /// # Errors
    ///
    /// Fails like [`send`](Self::send). Also fails if the transport does not support records.
    fn send_record(&mut self, message: &[u8]) -> io::Result<()> {
        match self.max_datagram() {
            Some(_) => self.send(message),
            None => Err(no_records()),
        }
    }

    /// Receives one message of the buffer's length.
    ///
    /// # Errors
    ///
    /// Fails with the socket's error. For a datagram transport, a timeout
    /// ([`is_timeout`](crate::host::is_timeout)) means that a datagram was lost.
    fn recv(&mut self, message: &mut [u8]) -> io::Result<()>;

    /// Sends, without waiting, as much of `rest` as the socket takes: one datagram, or some bytes
    /// of a stream. `rest` is the unsent rest of a message. Returns the number of bytes sent. Only
    /// kinds that are [`polled`](kind::Kind::polled) implement this function.
    ///
    /// # Errors
    ///
    /// Fails with the socket's error, which is `WouldBlock` if there is no room.
    fn try_send(&mut self, _rest: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Receives, without waiting, bytes that have arrived: one datagram, or some bytes of a stream.
    /// Returns the number of bytes. Only kinds that are [`polled`](kind::Kind::polled) implement
    /// this function.
    ///
    /// # Errors
    ///
    /// Fails with the socket's error. The error is `WouldBlock` if nothing has arrived, and
    /// `UnexpectedEof` if the stream has ended.
    fn try_recv(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the length of the largest message that is sent as one datagram, in bytes. Returns
    /// `None` for a reliable stream.
    fn max_datagram(&self) -> Option<usize> {
        None
    }

    /// Returns how many packets this side has sent so far, if the transport counts its packets.
    ///
    /// # Errors
    ///
    /// Fails with the socket's error.
    fn packets(&self) -> io::Result<Option<Packets>> {
        Ok(None)
    }

    /// Discards late datagrams of an earlier series. A stream loses nothing, so it has no late
    /// data.
    ///
    /// # Errors
    ///
    /// Fails with the socket's error.
    fn discard_pending(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Waits until the kernel has released the memory of all sent messages. No completion of a send
    /// is then left in the socket's error queue, where it would end a wait for data. Only a
    /// transport that sends without copies has completions.
    ///
    /// # Errors
    ///
    /// Fails with the socket's error, or with a timeout if a completion does not come.
    fn settle(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Returns a remark about the messages sent so far, for the report.
    fn remark(&self) -> Option<String> {
        None
    }
}

/// Returns the error of a stream that does not support records.
fn no_records() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "this stream keeps no records apart: choose tcp, esp or datagrams, or leave --eor out",
    )
}

/// A function that connects a prepared socket to the peer's socket within the context's time limit.
/// It gives up waiting for the peer as soon as the descriptor, if there is one, is readable.
type Open = Box<dyn FnOnce(&Endpoint, Option<BorrowedFd<'_>>) -> Result<Box<dyn Transport>>>;

/// A socket that is ready to be connected to the peer's socket.
pub struct Prepared {
    /// The address at which the peer reaches the socket.
    pub endpoint: Endpoint,
    open: Open,
}

impl Prepared {
    /// Returns a socket that is connected without waiting for the peer.
    fn new(
        endpoint: Endpoint,
        open: impl FnOnce(&Endpoint) -> Result<Box<dyn Transport>> + 'static,
    ) -> Self {
        Self::waiting(endpoint, move |peer, _control| open(peer))
    }

    /// Returns a socket that waits for the peer to connect, until a descriptor is readable.
    fn waiting(
        endpoint: Endpoint,
        open: impl FnOnce(&Endpoint, Option<BorrowedFd<'_>>) -> Result<Box<dyn Transport>> + 'static,
    ) -> Self {
        Self {
            endpoint,
            open: Box::new(open),
        }
    }

    /// Connects the socket within the context's time limit. `control` is the connection on which
    /// the peer, while it connects, says nothing unless it gives up.
    ///
    /// # Errors
    ///
    /// Fails with the socket's error, if the peer did not connect in time, or if it gave up.
    pub fn open(
        self,
        peer: &Endpoint,
        control: Option<BorrowedFd<'_>>,
    ) -> Result<Box<dyn Transport>> {
        (self.open)(peer, control)
    }
}

/// Connects a prepared socket to the peer's socket, and removes the time limits of the socket's
/// calls if `options` say so.
///
/// # Errors
///
/// Fails like [`Prepared::open`].
pub fn open(
    prepared: Prepared,
    peer: &Endpoint,
    control: Option<BorrowedFd<'_>>,
    options: &SocketOptions,
) -> Result<Box<dyn Transport>> {
    let transport = prepared.open(peer, control)?;
    options.unlimit(&transport.as_fd())?;
    Ok(transport)
}

/// Returns a transport's name, with its congestion control if one was chosen.
pub fn medium(transport: &str, congestion: Option<&str>) -> String {
    match congestion {
        Some(congestion) => format!("{transport} {congestion}"),
        None => transport.to_owned(),
    }
}

/// Returns the transport's name in a text that [`medium`] made.
pub fn transport_of(medium: &str) -> &str {
    medium
        .split_once(' ')
        .map_or(medium, |(transport, _)| transport)
}

/// One of the two sides of a measurement between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The client, which measures. Its stream transports connect.
    Leader,
    /// The server. Its stream transports listen.
    Follower,
}

/// The options of a transport's socket.
#[derive(Clone, Debug)]
pub struct Context {
    /// The side of the pair to which the socket belongs.
    pub role: Role,
    /// This side's address on the control connection, if the connection has addresses.
    pub local: Option<SocketAddr>,
    /// The peer's address on the control connection; `None` if the connection has no addresses, or
    /// if the context is for connections with any peer ([`of_others`](Self::of_others)).
    pub peer: Option<SocketAddr>,
    /// Name of the interface to use; without a name, the interface with address `local`.
    pub interface: Option<String>,
    /// Ethernet type for raw packets, host order.
    pub ethertype: u16,
    /// The time after which a datagram counts as lost.
    pub loss_timeout: Duration,
    /// The time after which the run gives up a silent stream, or a peer that has not connected.
    pub give_up: Duration,
    /// The socket's options. All of them apply to its transport.
    pub options: SocketOptions,
    /// Name of TCP's congestion control; without a name, the system's default.
    pub congestion: Option<String>,
}

impl Context {
    /// Returns the Ethernet interface to use.
    ///
    /// # Errors
    ///
    /// Fails if the interface does not exist or is not Ethernet. Also fails if neither its name nor
    /// its address is known.
    pub fn ethernet(&self) -> Result<Interface> {
        match (&self.interface, self.local) {
            (Some(name), _) => Interface::by_name(name),
            (None, local) => {
                let local = local.context("name an Ethernet interface with --interface")?;
                Interface::by_ip(local.ip())
            }
        }
    }

    /// Returns the context of further connections, which have default options and may be with any
    /// peer.
    pub fn of_others(&self) -> Self {
        Self {
            peer: None,
            options: SocketOptions::default(),
            ..self.clone()
        }
    }
}

/// Returns the endpoint of a socket with this port on an Ethernet interface.
fn at_interface(interface: &Interface, port: u16) -> Endpoint {
    Endpoint {
        port,
        mac: Some(interface.mac.to_string()),
        ..Endpoint::default()
    }
}

/// Returns the peer's Ethernet address.
fn peer_mac(peer: &Endpoint) -> Result<MacAddr> {
    let text = peer
        .mac
        .as_deref()
        .context("the peer gave no Ethernet address")?;
    Ok(text.parse()?)
}

/// Returns the peer's PF_ENET address, reached through `interface`.
fn peer_address(peer: &Endpoint, interface: &Interface) -> Result<Address> {
    Ok(Address::new(peer_mac(peer)?, interface.index, peer.port))
}

/// Adds `remedy` to `error` if `is_it` says that the remedy fits the error.
fn remedied(error: io::Error, is_it: bool, remedy: impl FnOnce() -> String) -> anyhow::Error {
    let error = anyhow::Error::new(error);
    match is_it {
        true => error.context(remedy()),
        false => error,
    }
}

/// Explains why a PF_ENET socket cannot be opened.
pub(crate) fn explain_family(error: io::Error) -> anyhow::Error {
    let other = [libc::ESOCKTNOSUPPORT, libc::EPROTONOSUPPORT].map(Some);
    let is_other = other.contains(&error.raw_os_error());
    remedied(error, is_other, || {
        "another module has this family number here: give --family the number that enet was loaded \
         with (`modprobe --showconfig | grep enet`)"
            .to_owned()
    })
}

/// Waits for the peer to connect to a listening socket. If `control` is readable, the peer has
/// given up, or has died, and will not connect.
fn wait_for_peer(
    listener: &impl AsFd,
    control: Option<BorrowedFd<'_>>,
    timeout: Duration,
) -> Result<()> {
    let listener = listener.as_fd();
    let fds = [listener, control.unwrap_or(listener)];
    match wait_readable(fds, Some(timeout))? {
        [true, _] => Ok(()),
        [false, true] => bail!("the peer gave up before it connected"),
        [false, false] => bail!("the peer did not connect within {} s", timeout.as_secs()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use sockaddr_en::FamilyMissing;

    use super::*;

    /// Returns the context of an end. The addresses of its control connection are loopback
    /// addresses, whose last bytes are `local` and `peer`.
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

    /// Returns the context of connections on loopback.
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
