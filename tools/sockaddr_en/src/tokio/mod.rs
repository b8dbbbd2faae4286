// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sockets for tokio, with the manners of those in [`tokio::net`].
//!
//! Like those, they need a runtime whose I/O is enabled.

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

/// An ESP connection, used as [`tokio::net::TcpStream`] is.
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
    /// As [`sockaddr_en::EspStream::connect`](crate::EspStream::connect).
    pub async fn connect(address: impl ToAddress) -> io::Result<Self> {
        let address = peer(address)?;
        let stream = Self::from_std(EspSocket::new()?.connect_nonblocking(address)?)?;
        let _ = stream.0.writable().await?;
        match stream.get_ref().take_error()? {
            Some(error) => Err(error),
            None => Ok(stream),
        }
    }

    /// Takes a stream of the other kind over and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// What `fcntl(2)` says of `F_SETFL`, or `epoll_ctl(2)`.
    pub fn from_std(stream: crate::EspStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // SAFETY: the stream owns its descriptor and never changes it; it is lent out by shared
        // reference only, and leaves the `AsyncFd` by `into_inner`, which ends the registration.
        let registered = unsafe { AsyncFd::register(stream) };
        registered.map(Self).map_err(|failed| failed.into_parts().1)
    }

    /// Gives the stream back as one of the other kind; it is still non-blocking.
    pub fn into_std(self) -> crate::EspStream {
        self.0.into_inner()
    }

    /// The stream beneath, for its options and counters.
    pub fn get_ref(&self) -> &crate::EspStream {
        self.0.get_ref()
    }

    /// The address this stream is bound to.
    ///
    /// # Errors
    ///
    /// What `getsockname(2)` says.
    pub fn local_addr(&self) -> io::Result<Address> {
        self.get_ref().local_addr()
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// `NotConnected` if there is none.
    pub fn peer_addr(&self) -> io::Result<Address> {
        self.get_ref().peer_addr()
    }

    /// Waits until the stream is ready for one of `interest`.
    ///
    /// # Errors
    ///
    /// What the runtime says.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        Ok(self.0.ready(interest).await?.ready())
    }

    /// Reads what is there; `WouldBlock` if there is nothing.
    ///
    /// # Errors
    ///
    /// What `recv(2)` says.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let io = |mut stream: &crate::EspStream| stream.read(buffer);
        self.0.try_io(Interest::READABLE, io)
    }

    /// Writes as much as there is room for; `WouldBlock` if there is none.
    ///
    /// # Errors
    ///
    /// What `send(2)` says.
    pub fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        let io = |mut stream: &crate::EspStream| stream.write(data);
        self.0.try_io(Interest::WRITABLE, io)
    }

    /// Receives without taking the bytes from the stream.
    ///
    /// # Errors
    ///
    /// As reading.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let io = |stream: &crate::EspStream| stream.peek(buffer);
        self.0.async_io(Interest::READABLE, io).await
    }

    /// Splits the stream into halves that tasks can own. Dropping the writing half ends that direction.
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

    /// Does nothing: nothing is held back.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the sending direction.
    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.get_ref().shutdown(std::net::Shutdown::Write))
    }
}

/// A socket that accepts ESP connections, used as
/// [`tokio::net::TcpListener`] is.
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
    /// As [`sockaddr_en::EspListener::bind`](crate::EspListener::bind).
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        Self::from_std(crate::EspListener::bind(address)?)
    }

    /// Takes a listener of the other kind over and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// What `fcntl(2)` says of `F_SETFL`, or `epoll_ctl(2)`.
    pub fn from_std(listener: crate::EspListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        // SAFETY: as in `EspStream::from_std`, but that a listener never leaves.
        let registered = unsafe { AsyncFd::register(listener) };
        registered.map(Self).map_err(|failed| failed.into_parts().1)
    }

    /// Waits for a connection; gives it and its peer.
    ///
    /// # Errors
    ///
    /// What `accept(2)` says.
    pub async fn accept(&self) -> io::Result<(EspStream, Address)> {
        loop {
            let mut guard = self.0.readable().await?;
            if let Ok(accepted) = guard.try_io(|listener| listener.get_ref().accept()) {
                let (stream, peer) = accepted?;
                return Ok((EspStream::from_std(stream)?, peer));
            }
        }
    }

    /// The address this listener is bound to.
    ///
    /// # Errors
    ///
    /// What `getsockname(2)` says.
    pub fn local_addr(&self) -> io::Result<Address> {
        self.get_ref().local_addr()
    }

    /// The listener beneath.
    pub fn get_ref(&self) -> &crate::EspListener {
        self.0.get_ref()
    }
}

macro_rules! descriptor {
    ($type:ident) => {
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

descriptor!(EdpSocket);
descriptor!(EspStream);
descriptor!(EspListener);
descriptor!(EspRecords);
descriptor!(EspRecordListener);
