// SPDX-License-Identifier: MIT OR Apache-2.0

//! Datagrams for tokio.

use std::io;

use ::tokio::io::unix::AsyncFd;
use ::tokio::io::{Interest, Ready};

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
pub struct EdpSocket(AsyncFd<crate::EdpSocket>);

impl EdpSocket {
    /// Opens a socket and binds it.
    ///
    /// # Errors
    ///
    /// As [`sockaddr_en::EdpSocket::bind`](crate::EdpSocket::bind).
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        Self::from_std(crate::EdpSocket::bind(address)?)
    }

    /// Takes a socket of the other kind over and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// What `fcntl(2)` says of `F_SETFL`, or `epoll_ctl(2)`.
    pub fn from_std(socket: crate::EdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // SAFETY: the socket owns its descriptor and never changes it; it is lent out by shared
        // reference only, and leaves the `AsyncFd` by `into_inner`, which ends the registration.
        let registered = unsafe { AsyncFd::register(socket) };
        registered.map(Self).map_err(|failed| failed.into_parts().1)
    }

    /// Gives the socket back as one of the other kind; it is still non-blocking.
    pub fn into_std(self) -> crate::EdpSocket {
        self.0.into_inner()
    }

    /// The socket beneath, for its options, its counters, and calls that do not wait.
    pub fn get_ref(&self) -> &crate::EdpSocket {
        self.0.get_ref()
    }

    /// The address this socket is bound to.
    ///
    /// # Errors
    ///
    /// What `getsockname(2)` says.
    pub fn local_addr(&self) -> io::Result<Address> {
        self.get_ref().local_addr()
    }

    /// Stores the peer: [`send`](Self::send) goes to it. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`sockaddr_en::EdpSocket::connect`](crate::EdpSocket::connect).
    pub fn connect(&self, address: impl ToAddress) -> io::Result<()> {
        self.get_ref().connect(address)
    }

    /// Waits until the socket is ready for one of `interest`.
    ///
    /// # Errors
    ///
    /// What the runtime says.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        Ok(self.0.ready(interest).await?.ready())
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
