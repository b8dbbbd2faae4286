// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sockets for tokio, used like the sockets of [`tokio::net`].
//!
//! They need a runtime whose I/O driver is enabled.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::task::{ready, Context, Poll};

use ::tokio::io::unix::AsyncFd;
use ::tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};

use crate::socket::peer;
use crate::{Address, EspSocket, ToAddress};

mod edp;
mod records;
mod split;

pub use edp::EdpSocket;
pub use records::{EspRecordListener, EspRecords};
pub use split::{OwnedReadHalf, OwnedWriteHalf};

/// An ESP connection, used like [`tokio::net::TcpStream`].
///
/// ```no_run
/// use sockaddr_en::tokio::EspStream;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # async fn ask() -> std::io::Result<()> {
/// let mut stream = EspStream::connect("02:00:00:00:00:01%eth0:2805").await?;
/// stream.write_all(b"a question").await?;
/// stream.shutdown().await?;
/// let mut answer = Vec::new();
/// stream.read_to_end(&mut answer).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EspStream(AsyncFd<crate::EspStream>);

impl EspStream {
    /// Opens a connection.
    ///
    /// # Errors
    ///
    /// The errors of [`sockaddr_en::EspStream::connect`](crate::EspStream::connect).
    pub async fn connect(address: impl ToAddress) -> io::Result<Self> {
        let address = peer(address)?;
        let stream = Self::from_std(EspSocket::new()?.connect_nonblocking(address)?)?;
        let _ = stream.0.writable().await?;
        match stream.get_ref().take_error()? {
            Some(error) => Err(error),
            None => Ok(stream),
        }
    }

    /// Reads the bytes that are queued. Fails with `WouldBlock` if no bytes are queued.
    ///
    /// # Errors
    ///
    /// The errors of `recv(2)`.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let io = |mut stream: &crate::EspStream| stream.read(buffer);
        self.0.try_io(Interest::READABLE, io)
    }

    /// Writes as many bytes as the send buffer has room for. Fails with `WouldBlock` if the buffer
    /// is full.
    ///
    /// # Errors
    ///
    /// The errors of `send(2)`.
    pub fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        let io = |mut stream: &crate::EspStream| stream.write(data);
        self.0.try_io(Interest::WRITABLE, io)
    }

    /// Waits for bytes and leaves them in the stream.
    ///
    /// # Errors
    ///
    /// The errors of `recv(2)`.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let io = |stream: &crate::EspStream| stream.peek(buffer);
        self.0.async_io(Interest::READABLE, io).await
    }

    /// Splits the stream into halves that different tasks can own. Dropping the write half shuts
    /// down the sending direction.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        split::split(self)
    }
}

impl AsyncRead for EspStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_reading(context, buffer)
    }
}

impl EspStream {
    fn poll_reading(
        &self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            let unfilled = buffer.initialize_unfilled();
            if let Ok(done) = guard.try_io(|stream| stream.get_ref().read(unfilled)) {
                return Poll::Ready(done.map(|length| buffer.advance(length)));
            }
        }
    }

    fn poll_writing(
        &self,
        context: &mut Context<'_>,
        mut write: impl FnMut(&crate::EspStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(context))?;
            if let Ok(done) = guard.try_io(|stream| write(stream.get_ref())) {
                return Poll::Ready(done);
            }
        }
    }
}

impl AsyncWrite for EspStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(context, |mut stream| stream.write(data))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(context, |mut stream| stream.write_vectored(data))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: no data is buffered here.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Shuts down the sending direction.
    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.get_ref().shutdown(std::net::Shutdown::Write))
    }
}

/// A socket that accepts ESP connections, used like [`tokio::net::TcpListener`].
///
/// ```no_run
/// use sockaddr_en::tokio::EspListener;
///
/// # async fn serve() -> std::io::Result<()> {
/// let listener = EspListener::bind("*:2805")?;
/// loop {
///     let (stream, peer) = listener.accept().await?;
///     println!("{peer} connected");
///     tokio::spawn(async move {
///         let (mut from, mut to) = tokio::io::split(stream);
///         tokio::io::copy(&mut from, &mut to).await
///     });
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct EspListener(AsyncFd<crate::EspListener>);

impl EspListener {
    /// Opens a socket, binds it and listens.
    ///
    /// # Errors
    ///
    /// The errors of [`sockaddr_en::EspListener::bind`](crate::EspListener::bind).
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        Self::from_std(crate::EspListener::bind(address)?)
    }

    /// Waits for a connection. Returns the connection and its peer's address.
    ///
    /// # Errors
    ///
    /// The errors of `accept(2)`.
    pub async fn accept(&self) -> io::Result<(EspStream, Address)> {
        loop {
            let mut guard = self.0.readable().await?;
            if let Ok(accepted) = guard.try_io(|listener| listener.get_ref().accept()) {
                let (stream, peer) = accepted?;
                return Ok((EspStream::from_std(stream)?, peer));
            }
        }
    }
}

/// Implements the registration of a socket with the runtime, and the methods of all sockets.
macro_rules! socket {
    ($type:ident) => {
        impl $type {
            /// Makes the blocking socket non-blocking and registers it with the runtime.
            ///
            /// # Errors
            ///
            /// The errors of `fcntl(2)` with `F_SETFL`, and of `epoll_ctl(2)`.
            pub fn from_std(socket: crate::$type) -> io::Result<Self> {
                socket.set_nonblocking(true)?;
                // SAFETY: the socket owns its descriptor and never changes it. `AsyncFd` only lends
                // the socket by shared reference. `into_inner`, the only way out of the `AsyncFd`,
                // ends the registration.
                let registered = unsafe { AsyncFd::register(socket) };
                registered.map(Self).map_err(|failed| failed.into_parts().1)
            }

            /// Returns the underlying socket, for its options, counters and non-blocking calls.
            pub fn get_ref(&self) -> &crate::$type {
                self.0.get_ref()
            }

            /// Returns the address that this socket is bound to.
            ///
            /// # Errors
            ///
            /// The errors of `getsockname(2)`.
            pub fn local_addr(&self) -> io::Result<Address> {
                self.get_ref().local_addr()
            }
        }

        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.get_ref().as_fd()
            }
        }

        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                self.get_ref().as_raw_fd()
            }
        }
    };
}

/// Implements the methods of sockets that send and receive.
macro_rules! carrier {
    ($type:ident) => {
        impl $type {
            /// Returns the underlying socket, which stays non-blocking.
            pub fn into_std(self) -> crate::$type {
                self.0.into_inner()
            }

            /// Waits until the socket is ready for one of the operations in `interest`.
            ///
            /// # Errors
            ///
            /// The error of the runtime's I/O driver.
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                Ok(self.0.ready(interest).await?.ready())
            }
        }
    };
}

/// Implements the methods of connections.
macro_rules! connection {
    ($type:ident) => {
        impl $type {
            /// Returns the peer's address.
            ///
            /// # Errors
            ///
            /// `NotConnected` if the socket is not connected.
            pub fn peer_addr(&self) -> io::Result<Address> {
                self.get_ref().peer_addr()
            }
        }
    };
}

socket!(EdpSocket);
socket!(EspStream);
socket!(EspListener);
socket!(EspRecords);
socket!(EspRecordListener);

carrier!(EdpSocket);
carrier!(EspStream);
carrier!(EspRecords);

connection!(EspStream);
connection!(EspRecords);
