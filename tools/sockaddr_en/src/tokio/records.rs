// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sockets for ESP records, for tokio.

use std::io;
use std::net::Shutdown;

use ::tokio::io::unix::AsyncFd;
use ::tokio::io::Interest;

use crate::{Address, ToAddress};

/// An ESP connection that keeps message boundaries: each receiving call returns the bytes of one
/// sending call.
///
/// Tasks can share the connection by reference: one task can wait for records while another sends.
///
/// ```no_run
/// use sockaddr_en::tokio::EspRecords;
///
/// # async fn ask() -> std::io::Result<()> {
/// let records = EspRecords::connect("02:00:00:00:00:01%eth0:2805").await?;
/// records.send(b"a question").await?;
/// let mut answer = [0; 65_536];
/// let length = records.recv(&mut answer).await?;
/// println!("{}", String::from_utf8_lossy(&answer[..length]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EspRecords(pub(super) AsyncFd<crate::EspRecords>);

impl EspRecords {
    /// Opens a connection.
    ///
    /// # Errors
    ///
    /// The errors of [`sockaddr_en::EspRecords::connect`](crate::EspRecords::connect).
    pub async fn connect(address: impl ToAddress) -> io::Result<Self> {
        let records = Self::from_std(crate::EspRecords::connect_nonblocking(address)?)?;
        let _ = records.0.writable().await?;
        match records.get_ref().take_error()? {
            Some(error) => Err(error),
            None => Ok(records),
        }
    }

    /// Sends a record as a whole or not at all. Waits for room in the send buffer.
    ///
    /// # Errors
    ///
    /// The errors of [`sockaddr_en::EspRecords::send`](crate::EspRecords::send).
    pub async fn send(&self, record: &[u8]) -> io::Result<()> {
        let write = |records: &crate::EspRecords| records.send(record);
        self.0.async_io(Interest::WRITABLE, write).await
    }

    /// Waits for a record and returns its length in bytes. If the record is longer than the buffer,
    /// the rest of the record is lost. Returns 0 at the end of the connection.
    ///
    /// # Errors
    ///
    /// The errors of `recv(2)`.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = |records: &crate::EspRecords| records.recv(buffer);
        self.0.async_io(Interest::READABLE, read).await
    }

    /// Receives like [`recv`](Self::recv), but leaves the record in the queue.
    ///
    /// # Errors
    ///
    /// The errors of [`recv`](Self::recv).
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = |records: &crate::EspRecords| records.peek(buffer);
        self.0.async_io(Interest::READABLE, read).await
    }

    /// Shuts down one or both directions. Does not wait.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the socket is not connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.get_ref().shutdown(how)
    }
}

/// A socket that accepts ESP connections of records.
///
/// ```no_run
/// use sockaddr_en::tokio::EspRecordListener;
///
/// # async fn serve() -> std::io::Result<()> {
/// let listener = EspRecordListener::bind("*:2805")?;
/// loop {
///     let (records, peer) = listener.accept().await?;
///     println!("{peer} connected");
///     tokio::spawn(async move { records.send(b"welcome").await });
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct EspRecordListener(pub(super) AsyncFd<crate::EspRecordListener>);

impl EspRecordListener {
    /// Opens a socket, binds it and listens.
    ///
    /// # Errors
    ///
    /// The errors of [`sockaddr_en::EspRecordListener::bind`](crate::EspRecordListener::bind).
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        Self::from_std(crate::EspRecordListener::bind(address)?)
    }

    /// Waits for a connection. Returns the connection and its peer's address.
    ///
    /// # Errors
    ///
    /// The errors of `accept(2)`.
    pub async fn accept(&self) -> io::Result<(EspRecords, Address)> {
        let accept = |listener: &crate::EspRecordListener| listener.accept();
        let (records, peer) = self.0.async_io(Interest::READABLE, accept).await?;
        Ok((EspRecords::from_std(records)?, peer))
    }
}
