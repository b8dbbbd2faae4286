// SPDX-License-Identifier: MIT OR Apache-2.0

//! Streams and listeners, which use ESP on an interface or, in the test mode, TCP on the loopback
//! device. All sockets are non-blocking.

use std::io::{self, ErrorKind, IoSlice, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use sockaddr_en::{Address, EspSocket, EspStream, MacAddr};
use socket2::{Domain, Socket, Type};

use crate::card::Card;
use crate::channel::{self, ChannelListener, Incoming};

/// Length of the accept queue, in connections. The queue holds the connections of all ranks of a
/// large job at once.
const BACKLOG: u16 = 1024;

/// A local interface, or its substitute in the test mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    /// An Ethernet interface.
    Ethernet {
        /// The interface's name.
        name: String,
        /// The interface's index.
        index: u32,
        /// The interface's address.
        mac: MacAddr,
        /// The largest payload of the interface's frames, bytes.
        mtu: u32,
        /// The interface's rate in Mbit/s.
        rate: u32,
    },
    /// TCP on the loopback device, for tests.
    Loopback,
}

impl Interface {
    /// Returns the interface's name, for messages to the user.
    pub fn name(&self) -> &str {
        match self {
            Self::Ethernet { name, .. } => name,
            Self::Loopback => "lo",
        }
    }

    /// Returns the interface's rate in Mbit/s.
    pub fn rate(&self) -> u32 {
        match self {
            Self::Ethernet { rate, .. } => *rate,
            Self::Loopback => 10_000,
        }
    }
}

/// A local interface and its listening socket.
#[derive(Debug)]
pub struct Listener {
    interface: Interface,
    socket: Socket,
    port: u16,
    timeout: Duration,
    channels: Option<ChannelListener>,
}

impl Listener {
    /// Listens on a port that the kernel chooses. A connection ends if its peer does not answer for
    /// `timeout`.
    ///
    /// # Errors
    ///
    /// The errors of the socket calls; [`sockaddr_en::FamilyMissing`] if the module is not loaded.
    pub fn open(interface: Interface, timeout: Duration) -> io::Result<Self> {
        let (socket, port) = match &interface {
            Interface::Ethernet { index, .. } => {
                let socket = EspSocket::new()?;
                socket.bind(Address::new(MacAddr::UNSPECIFIED, *index, 0))?;
                let listener = socket.listen(BACKLOG.into())?;
                let port = listener.local_addr()?.port;
                (Socket::from(OwnedFd::from(listener)), port)
            }
            Interface::Loopback => {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
                socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
                socket.listen(BACKLOG.into())?;
                let address = socket.local_addr()?.as_socket_ipv4();
                (socket, address.map_or(0, |address| address.port()))
            }
        };
        socket.set_nonblocking(true)?;
        Ok(Self {
            interface,
            socket,
            port,
            timeout,
            channels: None,
        })
    }

    /// Returns the interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Listens for the channels of `domain`, too.
    ///
    /// # Errors
    ///
    /// The errors of the socket calls.
    pub fn listen_for_channels(&mut self, domain: &sockaddr_en::Domain) -> io::Result<()> {
        if let Interface::Ethernet { index, .. } = &self.interface {
            self.channels = Some(channel::listen(domain, *index, BACKLOG)?);
        }
        Ok(())
    }

    /// Returns the next channel of the accept queue, if any.
    pub fn accept_channel(&self) -> Option<Incoming> {
        self.channels.as_ref()?.accept()
    }

    /// Returns the address for channels to the interface that `card` describes; `None` if it has no
    /// channels.
    pub fn channel_address(&self, card: &Card) -> Option<Address> {
        match &self.interface {
            Interface::Ethernet { index, .. } if card.channels != 0 => {
                Some(Address::new(card.mac, *index, card.channels))
            }
            _ => None,
        }
    }

    /// Returns the description that peers need to connect.
    pub fn card(&self) -> Card {
        let (mac, mtu) = match &self.interface {
            Interface::Ethernet { mac, mtu, .. } => (*mac, *mtu),
            Interface::Loopback => (MacAddr::UNSPECIFIED, 65_536),
        };
        Card {
            mac,
            port: self.port,
            channels: self.channels.as_ref().map_or(0, ChannelListener::port),
            mtu,
            rate: self.interface.rate(),
        }
    }

    /// Returns the next connection of the accept queue, if any.
    ///
    /// # Errors
    ///
    /// The errors of `accept(2)`.
    pub fn accept(&self) -> io::Result<Option<Stream>> {
        loop {
            match self.socket.accept() {
                Ok((socket, _)) => return self.set_up(socket).map(Some),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                // The peer closed the connection before it was accepted, or a signal arrived.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts to connect to the interface that `card` describes.
    ///
    /// # Errors
    ///
    /// The immediate errors of `connect(2)`.
    pub fn connect(&self, card: &Card) -> io::Result<Stream> {
        let socket = match &self.interface {
            Interface::Ethernet { index, .. } => {
                let address = Address::new(card.mac, *index, card.port);
                Socket::from(OwnedFd::from(
                    EspSocket::new()?.connect_nonblocking(address)?,
                ))
            }
            Interface::Loopback => {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
                socket.set_nonblocking(true)?;
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, card.port));
                match socket.connect(&address.into()) {
                    Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => {
                        return Err(error)
                    }
                    _ => socket,
                }
            }
        };
        self.set_up(socket)
    }

    fn set_up(&self, socket: Socket) -> io::Result<Stream> {
        socket.set_nonblocking(true)?;
        let socket = match &self.interface {
            Interface::Ethernet { .. } => {
                let stream = EspStream::from(OwnedFd::from(socket));
                stream.set_user_timeout(Some(self.timeout))?;
                Socket::from(OwnedFd::from(stream))
            }
            Interface::Loopback => {
                socket.set_tcp_nodelay(true)?;
                socket
            }
        };
        Ok(Stream(socket))
    }
}

/// A connection.
#[derive(Debug)]
pub struct Stream(Socket);

impl Stream {
    /// Sends as many bytes as fit into the send buffer, and returns their number.
    ///
    /// # Errors
    ///
    /// The errors of `sendmsg(2)`.
    pub fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            match self.0.send_vectored_with_flags(parts, libc::MSG_NOSIGNAL) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Receives available bytes and returns their number: `None` if there are none, 0 at the end of
    /// the stream.
    ///
    /// # Errors
    ///
    /// The errors of `recv(2)`.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match (&self.0).read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => return done.map(Some),
            }
        }
    }

    /// Returns two values: whether there is input, and whether there is room for output. After an
    /// error both values are true.
    ///
    /// # Errors
    ///
    /// The errors of `poll(2)`.
    pub fn readiness(&self) -> io::Result<(bool, bool)> {
        let flags = PollFlags::POLLIN | PollFlags::POLLOUT;
        let mut set = [PollFd::new(self.0.as_fd(), flags)];
        match poll(&mut set, PollTimeout::ZERO) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => Ok((false, false)),
            Ok(_) => {
                let found = set[0].revents().unwrap_or(flags);
                let broken = PollFlags::POLLERR | PollFlags::POLLHUP;
                let is = |flag| found.intersects(flag | broken);
                Ok((is(PollFlags::POLLIN), is(PollFlags::POLLOUT)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the connection is established.
    ///
    /// # Errors
    ///
    /// The error that prevents the connection.
    pub fn is_connected(&self) -> io::Result<bool> {
        let (_, output) = self.readiness()?;
        match self.0.take_error()? {
            Some(error) => Err(error),
            None => Ok(output),
        }
    }

    /// Shuts down the sending direction.
    pub fn finish(&self) {
        // An error is ignored: it means that the connection has already ended.
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// Drops the connection like a cut cable: bytes in flight are lost.
    #[cfg(test)]
    pub fn cut(self) {
        self.0.set_linger(Some(Duration::ZERO)).expect("SO_LINGER");
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
