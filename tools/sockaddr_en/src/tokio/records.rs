// SPDX-License-Identifier: MIT OR Apache-2.0

//! Records for tokio.

use std::io;
use std::net::Shutdown;

use ::tokio::io::unix::AsyncFd;
use ::tokio::io::Interest;

use crate::{Address, ToAddress};

/// An ESP connection whose messages keep their bounds: what one call sends, one call receives.
///
/// Tasks can share it by reference: one may wait for records while another sends.
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
    /// As [`sockaddr_en::EspRecords::connect`](crate::EspRecords::connect).
    pub async fn connect(address: impl ToAddress) -> io::Result<Self> {
        let records = Self::from_std(crate::EspRecords::connect_nonblocking(address)?)?;
        let _ = records.0.writable().await?;
        match records.get_ref().take_error()? {
            Some(error) => Err(error),
            None => Ok(records),
        }
    }

    /// Sends a record, as a whole or not at all; waits for room.
    ///
    /// # Errors
    ///
    /// As [`sockaddr_en::EspRecords::send`](crate::EspRecords::send).
    pub async fn send(&self, record: &[u8]) -> io::Result<()> {
        let write = |records: &crate::EspRecords| records.send(record);
        self.0.async_io(Interest::WRITABLE, write).await
    }

    /// Waits for a record and returns how many bytes it has: more than the buffer, if that is too
    /// short. Then the rest of the record is gone. 0 is the end.
    ///
    /// # Errors
    ///
    /// What `recv(2)` says.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = |records: &crate::EspRecords| records.recv(buffer);
        self.0.async_io(Interest::READABLE, read).await
    }

    /// As [`recv`](Self::recv), leaving the record to be received again.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = |records: &crate::EspRecords| records.peek(buffer);
        self.0.async_io(Interest::READABLE, read).await
    }

    /// Ends one or both directions. Does not wait.
    ///
    /// # Errors
    ///
    /// `NotConnected` if there is no connection.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.get_ref().shutdown(how)
    }
}

/// A socket that accepts ESP connections with records.
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
    /// As [`sockaddr_en::EspRecordListener::bind`](crate::EspRecordListener::bind).
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        Self::from_std(crate::EspRecordListener::bind(address)?)
    }

    /// Waits for a connection; gives it and its peer.
    ///
    /// # Errors
    ///
    /// What `accept(2)` says.
    pub async fn accept(&self) -> io::Result<(EspRecords, Address)> {
        let accept = |listener: &crate::EspRecordListener| listener.accept();
        let (records, peer) = self.0.async_io(Interest::READABLE, accept).await?;
        Ok((EspRecords::from_std(records)?, peer))
    }
}
