// SPDX-License-Identifier: MIT OR Apache-2.0

//! Stream sockets before they connect or listen.

use std::io;

use socket2::Type;

use crate::constants::{EPPROTO_ESP, ESP_SO_CHECKSUM};
use crate::socket::{common_methods, Socket};
use crate::{EspListener, EspStream, ToAddress};

/// An ESP socket that is neither connected nor listening. It offers more than
/// [`EspStream::connect`] and [`EspListener::bind`]: a connection can have a chosen local port,
/// `connect` need not block, and the backlog may differ from 128. `io_uring` can use the socket's
/// descriptor.
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
    /// [`FamilyMissing`](crate::FamilyMissing) if the module is not loaded.
    pub fn new() -> io::Result<Self> {
        Socket::new(Type::STREAM, EPPROTO_ESP).map(Self)
    }

    /// Binds the socket to a local port.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if the port is taken, `ENODEV` if the interface does not exist or is no Ethernet
    /// device, `ENETDOWN` if it is down.
    pub fn bind(&self, address: impl ToAddress) -> io::Result<()> {
        self.0.bind(address)
    }

    /// Sets whether this end asks for a CRC32c in each packet of the connection, or of each
    /// connection that the listener accepts. Packets have a CRC32c if at least one end asks.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`.
    pub fn set_checksum(&self, checksum: bool) -> io::Result<()> {
        self.0.set_option(ESP_SO_CHECKSUM, u32::from(checksum))
    }

    /// Connects and waits until the connection is open.
    ///
    /// # Errors
    ///
    /// The errors of [`EspStream::connect`], and `EINPROGRESS` if the socket is non-blocking.
    pub fn connect(self, address: impl ToAddress) -> io::Result<EspStream> {
        self.0.connect(address)?;
        Ok(EspStream(self.0))
    }

    /// Starts to connect and makes the stream non-blocking. The stream is writable (`poll(2)`) once
    /// it is connected or has failed; [`EspStream::take_error`] returns the failure.
    ///
    /// # Errors
    ///
    /// The errors of [`EspStream::connect`], except errors that depend on the peer's answer.
    pub fn connect_nonblocking(self, address: impl ToAddress) -> io::Result<EspStream> {
        self.0.set_nonblocking(true)?;
        match self.0.connect(address) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(EspStream(self.0)),
        }
    }

    /// Listens. The accept queue holds up to `backlog` connections, or `net.core.somaxconn` if that
    /// is less.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if the socket has no port and no port is free.
    pub fn listen(self, backlog: u32) -> io::Result<EspListener> {
        self.0.listen(backlog)?;
        Ok(EspListener(self.0))
    }
}
