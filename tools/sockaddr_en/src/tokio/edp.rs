// SPDX-License-Identifier: MIT OR Apache-2.0

//! The socket for EDP datagrams, for tokio.

use std::io;

use ::tokio::io::unix::AsyncFd;
use ::tokio::io::Interest;

use crate::{Address, Received, ToAddress};

/// A socket for EDP datagrams, used like [`tokio::net::UdpSocket`].
///
/// ```no_run
/// use sockaddr_en::tokio::EdpSocket;
///
/// # async fn echo() -> std::io::Result<()> {
/// let socket = EdpSocket::bind("*%eth0:2805")?;
/// let mut buffer = [0; 1500];
/// loop {
///     let (length, sender) = socket.recv_from(&mut buffer).await?;
///     socket.send_to(&buffer[..length], sender).await?;
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct EdpSocket(pub(super) AsyncFd<crate::EdpSocket>);

impl EdpSocket {
    /// Opens a socket and binds it.
    ///
    /// # Errors
    ///
    /// The errors of [`sockaddr_en::EdpSocket::bind`](crate::EdpSocket::bind).
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        Self::from_std(crate::EdpSocket::bind(address)?)
    }

    /// Sets the peer that [`send`](Self::send) sends to. Does not wait.
    ///
    /// # Errors
    ///
    /// The errors of [`sockaddr_en::EdpSocket::connect`](crate::EdpSocket::connect).
    pub fn connect(&self, address: impl ToAddress) -> io::Result<()> {
        self.get_ref().connect(address)
    }

    /// Sends one datagram to `address` and returns the datagram's length. Waits for room in the
    /// send buffer.
    ///
    /// # Errors
    ///
    /// The errors of [`sockaddr_en::EdpSocket::send_to`](crate::EdpSocket::send_to).
    pub async fn send_to(&self, datagram: &[u8], address: impl ToAddress) -> io::Result<usize> {
        let address = address.to_address()?;
        self.writing(|socket| socket.send_to(datagram, address))
            .await
    }

    /// Sends one datagram to the peer and returns the datagram's length. Waits for room in the send
    /// buffer.
    ///
    /// # Errors
    ///
    /// The errors of [`sockaddr_en::EdpSocket::send`](crate::EdpSocket::send).
    pub async fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.writing(|socket| socket.send(datagram)).await
    }

    /// Waits for one datagram. Returns its length and its sender. Bytes that exceed `buffer` are
    /// lost.
    ///
    /// # Errors
    ///
    /// The errors of `recvfrom(2)`.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, Address)> {
        self.reading(|socket| socket.recv_from(buffer)).await
    }

    /// Waits for one datagram. Returns its length in the buffer, its sender, and its length before
    /// truncation.
    ///
    /// # Errors
    ///
    /// The errors of `recvfrom(2)`.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.reading(|socket| socket.receive(buffer)).await
    }

    /// Waits for one datagram and returns its length. Bytes that exceed `buffer` are lost.
    ///
    /// # Errors
    ///
    /// The errors of `recv(2)`.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reading(|socket| socket.recv(buffer)).await
    }

    /// Receives like [`recv_from`](Self::recv_from), but leaves the datagram in the queue.
    ///
    /// # Errors
    ///
    /// The errors of `recvfrom(2)`.
    pub async fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, Address)> {
        self.reading(|socket| socket.peek_from(buffer)).await
    }

    async fn reading<T>(
        &self,
        read: impl FnMut(&crate::EdpSocket) -> io::Result<T>,
    ) -> io::Result<T> {
        self.0.async_io(Interest::READABLE, read).await
    }

    async fn writing<T>(
        &self,
        write: impl FnMut(&crate::EdpSocket) -> io::Result<T>,
    ) -> io::Result<T> {
        self.0.async_io(Interest::WRITABLE, write).await
    }
}
