// SPDX-License-Identifier: MIT OR Apache-2.0

//! Records: reliable messages that keep their bounds.

use std::io;
use std::net::Shutdown;
use std::time::Duration;

use socket2::Type;

use crate::constants::{EPPROTO_ESP, ESP_SO_MTU, ESP_SO_STATS};
use crate::socket::{common_methods, data_methods, peer, Socket};
use crate::{Address, EspStats, ToAddress};

/// How many connections wait to be accepted at most, as in the standard library.
const BACKLOG: i32 = 128;

fn socket() -> io::Result<Socket> {
    Socket::new(Type::SEQPACKET, EPPROTO_ESP)
}

/// An ESP connection whose messages keep their bounds (`SOCK_SEQPACKET`): what one call sends, one
/// call receives.
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
    /// As [`EspStream::connect`](crate::EspStream::connect); `ConnectionRefused` also by a listener
    /// of streams.
    pub fn connect(address: impl ToAddress) -> io::Result<Self> {
        let address = peer(address)?;
        let socket = socket()?;
        socket.connect(address)?;
        Ok(Self(socket))
    }

    /// Starts to connect, and makes the socket non-blocking. It is writable (`poll(2)`) once it is
    /// connected or has failed, and [`take_error`](Self::take_error) tells which.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), but for what only the peer's answer or its absence tells.
    pub fn connect_nonblocking(address: impl ToAddress) -> io::Result<Self> {
        let address = peer(address)?;
        let socket = socket()?;
        socket.set_nonblocking(true)?;
        match socket.connect(address) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(Self(socket)),
        }
    }

    /// As [`connect`](Self::connect), giving up with `TimedOut` after `timeout`.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect); `InvalidInput` for a timeout of zero.
    pub fn connect_timeout(address: &Address, timeout: Duration) -> io::Result<Self> {
        let socket = socket()?;
        socket.connect_timeout(address, timeout)?;
        Ok(Self(socket))
    }

    /// Sends a record, as a whole or not at all.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a record without bytes, `EMSGSIZE` for one that is longer than the peer
    /// takes, or than the send buffer can become; 65,536 bytes are not. `WouldBlock` when
    /// non-blocking and the send buffer is full; otherwise what `send(2)` says.
    pub fn send(&self, record: &[u8]) -> io::Result<()> {
        self.0.send(record).map(drop)
    }

    /// Receives a record and returns how many bytes it has: more than the buffer, if that is too
    /// short. Then the rest of the record is gone. 0 is the end.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when non-blocking and no record is there; otherwise what `recv(2)` says.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.recv_with_flags(buffer, libc::MSG_TRUNC)
    }

    /// As [`recv`](Self::recv), leaving the record to be received again.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0
            .recv_with_flags(buffer, libc::MSG_TRUNC | libc::MSG_PEEK)
    }

    /// Ends one or both directions.
    ///
    /// # Errors
    ///
    /// `NotConnected` if there is no connection.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    /// The largest payload of one packet, in bytes. A longer record has several packets.
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
}

/// A socket that accepts ESP connections with records.
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
    /// Opens a socket, binds it and listens; up to 128 connections wait to be accepted.
    ///
    /// # Errors
    ///
    /// As [`EspListener::bind`](crate::EspListener::bind).
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        let address = address.to_address()?;
        let socket = socket()?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?;
        Ok(Self(socket))
    }

    /// Waits for a connection; gives it and its peer.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when non-blocking and none waits; otherwise what `accept(2)` says.
    pub fn accept(&self) -> io::Result<(EspRecords, Address)> {
        let (socket, address) = self.0.accept()?;
        Ok((EspRecords(socket), address))
    }
}
