// SPDX-License-Identifier: MIT OR Apache-2.0

//! Streams.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::iter::FusedIterator;
use std::net::Shutdown;
use std::time::Duration;

use crate::constants::{
    EP_SO_ZEROCOPY, ESP_SO_CHECKSUM, ESP_SO_MTU, ESP_SO_STATS, ESP_SO_USER_TIMEOUT,
};
use crate::socket::{common_methods, data_methods, peer, Socket};
use crate::{Address, EspSocket, EspStats, ToAddress};

/// How many connections wait to be accepted at most, as in the standard library.
const BACKLOG: u32 = 128;

/// An ESP connection, used as [`std::net::TcpStream`] is.
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
    /// [`FamilyMissing`](crate::FamilyMissing) where the module is not loaded, `ConnectionRefused`
    /// by a host where nobody listens on the port, `TimedOut` if there is no such host, `ENODEV`
    /// for an interface that is absent or no Ethernet device, `ENETDOWN` for one that is down.
    pub fn connect(address: impl ToAddress) -> io::Result<Self> {
        // Before the socket: a wrong address is wrong without the module, too.
        let address = peer(address)?;
        EspSocket::new()?.connect(address)
    }

    /// As [`connect`](Self::connect), giving up with `TimedOut` after `timeout`.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect); `InvalidInput` for a timeout of zero.
    pub fn connect_timeout(address: &Address, timeout: Duration) -> io::Result<Self> {
        let EspSocket(socket) = EspSocket::new()?;
        socket.connect_timeout(address, timeout)?;
        Ok(Self(socket))
    }

    /// Receives without taking the bytes from the stream.
    ///
    /// # Errors
    ///
    /// As reading.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.peek(buffer)
    }

    /// Ends one or both directions.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the stream is not.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    /// The largest payload of one packet, in bytes: the interface's MTU less ESP's header.
    ///
    /// # Errors
    ///
    /// What `getsockopt(2)` says.
    pub fn max_payload(&self) -> io::Result<u32> {
        self.0.option(ESP_SO_MTU)
    }

    /// What the socket counted since it was made.
    ///
    /// # Errors
    ///
    /// What `getsockopt(2)` says.
    pub fn stats(&self) -> io::Result<EspStats> {
        self.0.option(ESP_SO_STATS)
    }

    /// Has sends with `MSG_ZEROCOPY` leave their bytes in place until the peer has acknowledged
    /// them, and report on the error queue when the memory is free again, as TCP's do with
    /// `SO_ZEROCOPY`.
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says: `ENOPROTOOPT` of a module that cannot do it.
    pub fn set_zero_copy(&self, on: bool) -> io::Result<()> {
        self.0.set_option(EP_SO_ZEROCOPY, on.into())
    }

    /// Whether each packet has a CRC32c: if either end wanted so
    /// ([`EspSocket::set_checksum`]).
    ///
    /// # Errors
    ///
    /// What `getsockopt(2)` says.
    pub fn has_checksum(&self) -> io::Result<bool> {
        let value: u32 = self.0.option(ESP_SO_CHECKSUM)?;
        Ok(value != 0)
    }

    /// How long the peer may owe an answer before the connection ends with `TimedOut`; `None` for
    /// the namespace's default.
    ///
    /// # Errors
    ///
    /// What `getsockopt(2)` says.
    pub fn user_timeout(&self) -> io::Result<Option<Duration>> {
        let millis: u32 = self.0.option(ESP_SO_USER_TIMEOUT)?;
        Ok((millis != 0).then(|| Duration::from_millis(millis.into())))
    }

    /// Sets how long the peer may owe an answer, in whole milliseconds; `None` for the namespace's
    /// default.
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says: `InvalidInput` for less than 100 milliseconds or more than a day.
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let millis = match timeout {
            None => 0,
            // Zero would mean the default: as any time too short, it is refused by the kernel.
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

    /// Does nothing: nothing is held back.
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

    /// Does nothing: nothing is held back.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket that accepts ESP connections, used as [`std::net::TcpListener`] is.
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
    /// Opens a socket, binds it and listens; up to 128 connections wait to be accepted.
    ///
    /// # Errors
    ///
    /// [`FamilyMissing`](crate::FamilyMissing) where the module is not loaded, `AddrInUse` for a
    /// port that is taken, `ENODEV` for an interface that is absent or no Ethernet device,
    /// `ENETDOWN` for one that is down.
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        let address = address.to_address()?;
        let socket = EspSocket::new()?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    }

    /// Waits for a connection; gives it and its peer.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when non-blocking and none waits; otherwise what `accept(2)` says.
    pub fn accept(&self) -> io::Result<(EspStream, Address)> {
        let (socket, address) = self.0.accept()?;
        Ok((EspStream(socket), address))
    }

    /// The connections as they come, without end.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }
}

/// What [`EspListener::incoming`] returns.
#[derive(Debug)]
pub struct Incoming<'a>(&'a EspListener);

impl Iterator for Incoming<'_> {
    type Item = io::Result<EspStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}

impl FusedIterator for Incoming<'_> {}
