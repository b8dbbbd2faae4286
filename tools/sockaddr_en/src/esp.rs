// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sockets for ESP streams.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::iter::FusedIterator;
use std::net::Shutdown;
use std::time::Duration;

use crate::constants::{
    EP_SO_ZEROCOPY, ESP_SO_CHECKSUM, ESP_SO_MTU, ESP_SO_STATS, ESP_SO_USER_TIMEOUT,
};
use crate::socket::{common_methods, data_methods, peer, Socket, BACKLOG};
use crate::{Address, EspSocket, EspStats, ToAddress};

/// An ESP connection, used like [`std::net::TcpStream`].
///
/// ```no_run
/// use std::io::{Read, Write};
/// use std::net::Shutdown;
///
/// use sockaddr_en::EspStream;
///
/// let mut stream = EspStream::connect("02:00:00:00:00:01%eth0:2805")?;
/// stream.write_all(b"a question")?;
/// stream.shutdown(Shutdown::Write)?;
/// let mut answer = Vec::new();
/// stream.read_to_end(&mut answer)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct EspStream(pub(crate) Socket);

common_methods!(EspStream);
data_methods!(EspStream);

impl EspStream {
    /// Opens a connection.
    ///
    /// # Errors
    ///
    /// [`FamilyMissing`](crate::FamilyMissing) if the module is not loaded, `ConnectionRefused` if
    /// no socket listens on the port, `TimedOut` if the host does not answer, `ENODEV` if the
    /// interface does not exist or is no Ethernet device, `ENETDOWN` if it is down.
    pub fn connect(address: impl ToAddress) -> io::Result<Self> {
        // The address is checked before the socket is opened, so that a wrong address is reported
        // even without the module.
        let address = peer(address)?;
        EspSocket::new()?.connect(address)
    }

    /// Opens a connection like [`connect`](Self::connect), but fails with `TimedOut` after
    /// `timeout`.
    ///
    /// # Errors
    ///
    /// The errors of [`connect`](Self::connect); `InvalidInput` for a timeout of zero.
    pub fn connect_timeout(address: &Address, timeout: Duration) -> io::Result<Self> {
        let EspSocket(socket) = EspSocket::new()?;
        socket.connect_timeout(address, timeout)?;
        Ok(Self(socket))
    }

    /// Receives bytes and leaves them in the stream.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Read::read).
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.peek(buffer)
    }

    /// Shuts down one or both directions.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the stream is not connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    /// Returns the largest payload of a packet in bytes: the interface's MTU less ESP's header.
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`.
    pub fn max_payload(&self) -> io::Result<u32> {
        self.0.option(ESP_SO_MTU)
    }

    /// Returns the counters of the socket since its creation.
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`.
    pub fn stats(&self) -> io::Result<EspStats> {
        self.0.option(ESP_SO_STATS)
    }

    /// Sets whether sends with `MSG_ZEROCOPY` avoid the copy: the device reads the user's pages
    /// until the peer has acknowledged them. The error queue reports when the pages are free again,
    /// as in TCP with `SO_ZEROCOPY`.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`; `ENOPROTOOPT` if the module does not support the option.
    pub fn set_zero_copy(&self, on: bool) -> io::Result<()> {
        self.0.set_option(EP_SO_ZEROCOPY, on.into())
    }

    /// Returns whether each packet has a CRC32c. Packets have a CRC32c if at least one end asked
    /// for it ([`EspSocket::set_checksum`]).
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`.
    pub fn has_checksum(&self) -> io::Result<bool> {
        let value: u32 = self.0.option(ESP_SO_CHECKSUM)?;
        Ok(value != 0)
    }

    /// Returns how long the peer may owe an answer before the connection ends with `TimedOut`.
    /// `None` stands for the namespace's default.
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`.
    pub fn user_timeout(&self) -> io::Result<Option<Duration>> {
        let millis: u32 = self.0.option(ESP_SO_USER_TIMEOUT)?;
        Ok((millis != 0).then(|| Duration::from_millis(millis.into())))
    }

    /// Sets how long the peer may owe an answer before the connection ends, in whole milliseconds.
    /// `None` selects the namespace's default.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`; `InvalidInput` for less than 100 milliseconds or more than a
    /// day.
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let millis = match timeout {
            None => 0,
            // The value is at least 1 ms, because zero would select the default. The kernel refuses
            // 1 ms, which is too short.
            Some(timeout) => u32::try_from(timeout.as_millis())
                .unwrap_or(u32::MAX)
                .max(1),
        };
        self.0.set_option(ESP_SO_USER_TIMEOUT, millis)
    }
}

impl Read for &EspStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.recv_vectored(buffers)
    }
}

impl Write for &EspStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.send(data)
    }

    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send_vectored(data)
    }

    /// Does nothing: no data is buffered here.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for EspStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(buffers)
    }
}

impl Write for EspStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(data)
    }

    /// Does nothing: no data is buffered here.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket that accepts ESP connections, used like [`std::net::TcpListener`].
///
/// ```no_run
/// use std::io;
///
/// use sockaddr_en::EspListener;
///
/// for stream in EspListener::bind("*:2805")?.incoming() {
///     let stream = stream?;
///     println!("{} connected", stream.peer_addr()?);
///     io::copy(&mut &stream, &mut &stream)?;
/// }
/// # Ok::<(), io::Error>(())
/// ```
#[derive(Debug)]
pub struct EspListener(pub(crate) Socket);

common_methods!(EspListener);

impl EspListener {
    /// Opens a socket, binds it and listens. The accept queue holds up to 128 connections.
    ///
    /// # Errors
    ///
    /// [`FamilyMissing`](crate::FamilyMissing) if the module is not loaded, `AddrInUse` if the port
    /// is taken, `ENODEV` if the interface does not exist or is no Ethernet device, `ENETDOWN` if
    /// it is down.
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        let address = address.to_address()?;
        let socket = EspSocket::new()?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    }

    /// Waits for a connection. Returns the connection and its peer's address.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the socket is non-blocking and the accept queue is empty; otherwise the
    /// errors of `accept(2)`.
    pub fn accept(&self) -> io::Result<(EspStream, Address)> {
        let (socket, address) = self.0.accept()?;
        Ok((EspStream(socket), address))
    }

    /// Returns an endless iterator that accepts connections.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }
}

/// The iterator that [`EspListener::incoming`] returns.
#[derive(Debug)]
pub struct Incoming<'a>(&'a EspListener);

impl Iterator for Incoming<'_> {
    type Item = io::Result<EspStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}

impl FusedIterator for Incoming<'_> {}
