// SPDX-License-Identifier: MIT OR Apache-2.0

//! Streams before they are connected or listen.

use std::io;

use socket2::Type;

use crate::constants::{EPPROTO_ESP, ESP_SO_CHECKSUM};
use crate::socket::{common_methods, Socket};
use crate::{EspListener, EspStream, ToAddress};

/// An ESP socket that is not connected yet and does not listen, for what
/// [`EspStream::connect`] and [`EspListener::bind`] do not offer: a local port for a connection,
/// another backlog, connecting without waiting, or a descriptor for a ring of `io_uring`.
///
/// ```no_run
/// use sockaddr_en::EspSocket;
///
/// let socket = EspSocket::new()?;
/// socket.bind("*%eth0:2806")?;
/// let stream = socket.connect("02:00:00:00:00:01%eth0:2805")?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct EspSocket(pub(crate) Socket);

common_methods!(EspSocket);

impl EspSocket {
    /// Opens a socket.
    ///
    /// # Errors
    ///
    /// [`FamilyMissing`](crate::FamilyMissing) where the module is not loaded.
    pub fn new() -> io::Result<Self> {
        Socket::new(Type::STREAM, EPPROTO_ESP).map(Self)
    }

    /// Takes a local port.
    ///
    /// # Errors
    ///
    /// `AddrInUse` for a port that is taken, `ENODEV` for an interface that is absent or no
    /// Ethernet device, `ENETDOWN` for one that is down.
    pub fn bind(&self, address: impl ToAddress) -> io::Result<()> {
        self.0.bind(address)
    }

    /// Wants a CRC32c in each packet of the connection, or of those that a listener accepts. One
    /// end that wants them is enough.
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says.
    pub fn set_checksum(&self, checksum: bool) -> io::Result<()> {
        self.0.set_option(ESP_SO_CHECKSUM, u32::from(checksum))
    }

    /// Connects, waiting for it.
    ///
    /// # Errors
    ///
    /// As [`EspStream::connect`]; `WouldBlock` never, but `EINPROGRESS` if the socket was made
    /// non-blocking.
    pub fn connect(self, address: impl ToAddress) -> io::Result<EspStream> {
        self.0.connect(address)?;
        Ok(EspStream(self.0))
    }

    /// Starts to connect and makes the stream non-blocking. It is writable (`poll(2)`) once it is
    /// connected or has failed, and [`EspStream::take_error`] tells which.
    ///
    /// # Errors
    ///
    /// As [`EspStream::connect`], but for what only the peer's answer or its absence tells.
    pub fn connect_nonblocking(self, address: impl ToAddress) -> io::Result<EspStream> {
        self.0.set_nonblocking(true)?;
        match self.0.connect(address) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(EspStream(self.0)),
        }
    }

    /// Listens; up to `backlog` connections, or `net.core.somaxconn` if that is less, wait to be
    /// accepted.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if the socket has no port and none is free.
    pub fn listen(self, backlog: u32) -> io::Result<EspListener> {
        self.0.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(EspListener(self.0))
    }
}
