// SPDX-License-Identifier: MIT OR Apache-2.0

//! Datagrams for tokio.

use std::io;

use ::tokio::io::unix::AsyncFd;
use ::tokio::io::Interest;

use crate::{Address, Received, ToAddress};

/// A socket for EDP datagrams, used as [`tokio::net::UdpSocket`] is.
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
    /// As [`sockaddr_en::EdpSocket::bind`](crate::EdpSocket::bind).
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        Self::from_std(crate::EdpSocket::bind(address)?)
    }

    /// Stores the peer: [`send`](Self::send) goes to it. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`sockaddr_en::EdpSocket::connect`](crate::EdpSocket::connect).
    pub fn connect(&self, address: impl ToAddress) -> io::Result<()> {
        self.get_ref().connect(address)
    }

    /// Sends one datagram to `address`, which is looked up once; waits for room.
    ///
    /// # Errors
    ///
    /// As [`sockaddr_en::EdpSocket::send_to`](crate::EdpSocket::send_to).
    pub async fn send_to(&self, datagram: &[u8], address: impl ToAddress) -> io::Result<usize> {
        let address = address.to_address()?;
        self.writing(|socket| socket.send_to(datagram, address))
            .await
    }

    /// Sends one datagram to the peer; waits for room.
    ///
    /// # Errors
    ///
    /// As [`sockaddr_en::EdpSocket::send`](crate::EdpSocket::send).
    pub async fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.writing(|socket| socket.send(datagram)).await
    }

    /// Waits for one datagram; gives its length and its sender. What does not fit is cut off.
    ///
    /// # Errors
    ///
    /// What `recvfrom(2)` says.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, Address)> {
        self.reading(|socket| socket.recv_from(buffer)).await
    }

    /// The same, telling how long the datagram was.
    ///
    /// # Errors
    ///
    /// What `recvfrom(2)` says.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.reading(|socket| socket.receive(buffer)).await
    }

    /// Waits for one datagram. What does not fit is cut off.
    ///
    /// # Errors
    ///
    /// What `recv(2)` says.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reading(|socket| socket.recv(buffer)).await
    }

    /// As [`recv_from`](Self::recv_from), leaving the datagram in the queue.
    ///
    /// # Errors
    ///
    /// What `recvfrom(2)` says.
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
