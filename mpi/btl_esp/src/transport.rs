// SPDX-License-Identifier: MIT OR Apache-2.0

//! Streams and listeners: ESP on an interface or, in the test mode, TCP on the loopback device.
//! None ever waits.

use std::io::{self, ErrorKind, IoSlice, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use sockaddr_en::{Address, EspSocket, EspStream, MacAddr};
use socket2::{Domain, Socket, Type};

use crate::card::Card;

/// Connections that may wait to be accepted: those of all ranks of a large job at once.
const BACKLOG: u16 = 1024;

/// A local interface, or what stands for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    /// An Ethernet interface.
    Ethernet {
        /// Its name.
        name: String,
        /// Its number.
        index: u32,
        /// Its address.
        mac: MacAddr,
        /// The largest payload of its frames.
        mtu: u32,
        /// Its rate in Mbit/s.
        rate: u32,
    },
    /// TCP on the loopback device, for tests.
    Loopback,
}

impl Interface {
    /// The name for messages.
    pub fn name(&self) -> &str {
        match self {
            Self::Ethernet { name, .. } => name,
            Self::Loopback => "lo",
        }
    }

    /// The rate in Mbit/s.
    pub fn rate(&self) -> u32 {
        match self {
            Self::Ethernet { rate, .. } => *rate,
            Self::Loopback => 10_000,
        }
    }
}

/// Accepts connections that come in by one interface, and makes those that leave by it.
#[derive(Debug)]
pub struct Listener {
    interface: Interface,
    socket: Socket,
    port: u16,
    timeout: Duration,
}

impl Listener {
    /// Listens on a port that the kernel chooses. A peer that owes an answer for `timeout` ends a
    /// connection.
    ///
    /// # Errors
    ///
    /// What the socket calls say; [`sockaddr_en::FamilyMissing`] where the module is not loaded.
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
        })
    }

    /// The interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// What others need to know to connect.
    pub fn card(&self) -> Card {
        let (mac, mtu) = match &self.interface {
            Interface::Ethernet { mac, mtu, .. } => (*mac, *mtu),
            Interface::Loopback => (MacAddr::UNSPECIFIED, 65_536),
        };
        Card {
            mac,
            port: self.port,
            mtu,
            rate: self.interface.rate(),
        }
    }

    /// The next connection that waits.
    ///
    /// # Errors
    ///
    /// What `accept(2)` says.
    pub fn accept(&self) -> io::Result<Option<Stream>> {
        loop {
            match self.socket.accept() {
                Ok((socket, _)) => return self.set_up(socket).map(Some),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                // the caller gave up, or a signal came
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
    /// What `connect(2)` says at once.
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
    /// Sends as much as fits and tells how much that was.
    ///
    /// # Errors
    ///
    /// What `sendmsg(2)` says.
    pub fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            match self.0.send_vectored_with_flags(parts, libc::MSG_NOSIGNAL) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Receives what is there: `None` if that is nothing, 0 bytes at the end of the stream.
    ///
    /// # Errors
    ///
    /// What `recv(2)` says.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match (&self.0).read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => return done.map(Some),
            }
        }
    }

    /// Whether there is input, and room for output. An error is both.
    ///
    /// # Errors
    ///
    /// What `poll(2)` says.
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

    /// Whether the connection is there yet.
    ///
    /// # Errors
    ///
    /// Why it cannot be made.
    pub fn is_connected(&self) -> io::Result<bool> {
        let (_, output) = self.readiness()?;
        match self.0.take_error()? {
            Some(error) => Err(error),
            None => Ok(output),
        }
    }

    /// Ends the sending direction.
    pub fn finish(&self) {
        // the connection may have ended by itself, which is as well
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// Drops the connection as a cut cable would: what is under way is lost.
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
