// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sockets for ESP records: reliable messages whose boundaries are kept.

use std::io;
use std::net::Shutdown;
use std::time::Duration;

use socket2::Type;

use crate::constants::{EPPROTO_ESP, ESP_SO_MTU, ESP_SO_STATS};
use crate::socket::{common_methods, data_methods, peer, Socket, BACKLOG};
use crate::{Address, EspStats, ToAddress};

fn socket() -> io::Result<Socket> {
    Socket::new(Type::SEQPACKET, EPPROTO_ESP)
}

/// An ESP connection that keeps message boundaries (`SOCK_SEQPACKET`): each receiving call returns
/// the bytes of one sending call.
///
/// ```no_run
/// use sockaddr_en::EspRecords;
///
/// let records = EspRecords::connect("02:00:00:00:00:01%eth0:2805")?;
/// records.send(b"a question")?;
/// let mut answer = [0; 65_536];
/// let length = records.recv(&mut answer)?;
/// println!("{}", String::from_utf8_lossy(&answer[..length]));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct EspRecords(Socket);

common_methods!(EspRecords);
data_methods!(EspRecords);

impl EspRecords {
    /// Opens a connection.
    ///
    /// # Errors
    ///
    /// The errors of [`EspStream::connect`](crate::EspStream::connect); `ConnectionRefused` also if
    /// the listener accepts streams.
    pub fn connect(address: impl ToAddress) -> io::Result<Self> {
        let address = peer(address)?;
        let socket = socket()?;
        socket.connect(address)?;
        Ok(Self(socket))
    }

    /// Starts to connect and makes the socket non-blocking. The socket is writable (`poll(2)`) once
    /// it is connected or has failed; [`take_error`](Self::take_error) returns the failure.
    ///
    /// # Errors
    ///
    /// The errors of [`connect`](Self::connect), except errors that depend on the peer's answer.
    pub fn connect_nonblocking(address: impl ToAddress) -> io::Result<Self> {
        let address = peer(address)?;
        let socket = socket()?;
        socket.set_nonblocking(true)?;
        match socket.connect(address) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(Self(socket)),
        }
    }

    /// Opens a connection like [`connect`](Self::connect), but fails with `TimedOut` after
    /// `timeout`.
    ///
    /// # Errors
    ///
    /// The errors of [`connect`](Self::connect); `InvalidInput` for a timeout of zero.
    pub fn connect_timeout(address: &Address, timeout: Duration) -> io::Result<Self> {
        let socket = socket()?;
        socket.connect_timeout(address, timeout)?;
        Ok(Self(socket))
    }

    /// Sends a record as a whole or not at all.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an empty record, `EMSGSIZE` for a record that is longer than the peer
    /// accepts or than the send buffer can grow to. Records of up to 65,536 bytes are never too
    /// long. `WouldBlock` if the socket is non-blocking and the send buffer is full; otherwise the
    /// errors of `send(2)`.
    pub fn send(&self, record: &[u8]) -> io::Result<()> {
        self.0.send(record).map(drop)
    }

    /// Receives a record and returns its length in bytes. If the record is longer than the buffer,
    /// the rest of the record is lost. Returns 0 at the end of the connection.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the socket is non-blocking and no record is queued; otherwise the errors of
    /// `recv(2)`.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.recv_with_flags(buffer, libc::MSG_TRUNC)
    }

    /// Receives like [`recv`](Self::recv), but leaves the record in the queue.
    ///
    /// # Errors
    ///
    /// The errors of [`recv`](Self::recv).
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0
            .recv_with_flags(buffer, libc::MSG_TRUNC | libc::MSG_PEEK)
    }

    /// Shuts down one or both directions.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the socket is not connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    /// Returns the largest payload of a packet in bytes. A longer record takes several packets.
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
}

/// A socket that accepts ESP connections of records.
///
/// ```no_run
/// use sockaddr_en::EspRecordListener;
///
/// let listener = EspRecordListener::bind("*:2805")?;
/// let (records, peer) = listener.accept()?;
/// println!("{peer} connected");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct EspRecordListener(Socket);

common_methods!(EspRecordListener);

impl EspRecordListener {
    /// Opens a socket, binds it and listens. The accept queue holds up to 128 connections.
    ///
    /// # Errors
    ///
    /// The errors of [`EspListener::bind`](crate::EspListener::bind).
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        let address = address.to_address()?;
        let socket = socket()?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?;
        Ok(Self(socket))
    }

    /// Waits for a connection. Returns the connection and its peer's address.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the socket is non-blocking and the accept queue is empty; otherwise the
    /// errors of `accept(2)`.
    pub fn accept(&self) -> io::Result<(EspRecords, Address)> {
        let (socket, address) = self.0.accept()?;
        Ok((EspRecords(socket), address))
    }
}
