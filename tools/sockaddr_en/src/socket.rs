// SPDX-License-Identifier: MIT OR Apache-2.0

//! The descriptor behind the typed sockets, with the calls that these sockets share.

use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use socket2::{Domain, MaybeUninitSlice, Protocol, Type};

use crate::constants::SOL_EP;
use crate::family::explain;
use crate::raw::{EdpStats, EspStats};
use crate::{family, Address, ToAddress};

/// Maximum number of connections in the accept queue, as in the standard library.
pub(crate) const BACKLOG: u32 = 128;

/// A socket of the family.
#[derive(Debug)]
pub(crate) struct Socket(socket2::Socket);

impl Socket {
    /// Opens a socket, with its close-on-exec flag set.
    pub(crate) fn new(kind: Type, protocol: i32) -> io::Result<Self> {
        let domain = Domain::from(i32::from(family()));
        socket2::Socket::new(domain, kind, Some(Protocol::from(protocol)))
            .map(Self)
            .map_err(explain)
    }

    pub(crate) fn bind(&self, address: impl ToAddress) -> io::Result<()> {
        self.0.bind(&address.to_address()?.into())
    }

    /// Connects. As in the standard library, a signal does not end the call.
    pub(crate) fn connect(&self, address: impl ToAddress) -> io::Result<()> {
        let address = peer(address)?.into();
        loop {
            match self.0.connect(&address) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel completed the `connect` that a signal had interrupted.
                Err(error) if error.raw_os_error() == Some(libc::EISCONN) => return Ok(()),
                done => return done,
            }
        }
    }

    pub(crate) fn connect_timeout(&self, address: &Address, timeout: Duration) -> io::Result<()> {
        if timeout.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a timeout of zero would never let it connect",
            ));
        }
        self.0.connect_timeout(&peer(address)?.into(), timeout)
    }

    pub(crate) fn listen(&self, backlog: u32) -> io::Result<()> {
        self.0.listen(i32::try_from(backlog).unwrap_or(i32::MAX))
    }

    pub(crate) fn accept(&self) -> io::Result<(Self, Address)> {
        loop {
            match self.0.accept() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok((inner, address)) => {
                    let address = Address::try_from(&address)?;
                    return Ok((Self(inner), address));
                }
            }
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<Address> {
        (&self.0.local_addr()?).try_into()
    }

    pub(crate) fn peer_addr(&self) -> io::Result<Address> {
        (&self.0.peer_addr()?).try_into()
    }

    /// Sends. If the peer has closed the connection, fails with `BrokenPipe` and raises no SIGPIPE.
    pub(crate) fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.0.send_with_flags(data, libc::MSG_NOSIGNAL)
    }

    pub(crate) fn send_vectored(&self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send_vectored_with_flags(data, libc::MSG_NOSIGNAL)
    }

    pub(crate) fn send_to(&self, data: &[u8], address: impl ToAddress) -> io::Result<usize> {
        let address = peer(address)?.into();
        self.0
            .send_to_with_flags(data, &address, libc::MSG_NOSIGNAL)
    }

    pub(crate) fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(buffer)
    }

    pub(crate) fn recv_with_flags(&self, buffer: &mut [u8], flags: i32) -> io::Result<usize> {
        self.0.recv_with_flags(uninit(buffer), flags)
    }

    pub(crate) fn recv_vectored(&self, buffers: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
        (&self.0).read_vectored(buffers)
    }

    pub(crate) fn recv_vectored_with_flags(
        &self,
        buffers: &mut [io::IoSliceMut<'_>],
        flags: i32,
    ) -> io::Result<usize> {
        let mut parts: Vec<_> = buffers
            .iter_mut()
            .map(|part| MaybeUninitSlice::new(uninit(part)))
            .collect();
        let (length, _) = self.0.recv_vectored_with_flags(&mut parts, flags)?;
        Ok(length)
    }

    pub(crate) fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.peek(uninit(buffer))
    }

    pub(crate) fn recv_from(&self, buffer: &mut [u8], flags: i32) -> io::Result<(usize, Address)> {
        let (length, address) = self.0.recv_from_with_flags(uninit(buffer), flags)?;
        Ok((length, Address::try_from(&address)?))
    }

    pub(crate) fn shutdown(&self, how: std::net::Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.0.set_nonblocking(nonblocking)
    }

    pub(crate) fn read_timeout(&self) -> io::Result<Option<Duration>> {
        self.0.read_timeout()
    }

    pub(crate) fn write_timeout(&self) -> io::Result<Option<Duration>> {
        self.0.write_timeout()
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(not_zero(timeout)?)
    }

    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_write_timeout(not_zero(timeout)?)
    }

    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.take_error()
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Reads option `name` of level [`SOL_EP`].
    pub(crate) fn option<T: PlainOption>(&self, name: i32) -> io::Result<T> {
        get_option(self.as_fd(), SOL_EP, name)
    }

    /// Sets option `name` of level [`SOL_EP`].
    pub(crate) fn set_option(&self, name: i32, value: u32) -> io::Result<()> {
        let length = size_of::<u32>() as libc::socklen_t;
        // SAFETY: the descriptor is open, and the kernel reads `length` bytes, the size of `value`.
        let result = unsafe {
            libc::setsockopt(
                self.as_raw_fd(),
                SOL_EP,
                name,
                std::ptr::from_ref(&value).cast(),
                length,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self(fd.into())
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.0.into()
    }
}

/// Returns the address to connect or send to. Fails for a wildcard.
pub(crate) fn peer(address: impl ToAddress) -> io::Result<Address> {
    let address = address.to_address()?;
    if address.is_wildcard() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{address}` can only be bound: write the peer's Ethernet address for `*`"),
        ));
    }
    Ok(address)
}

/// Fails for a timeout of zero, which the kernel would take as no timeout.
fn not_zero(timeout: Option<Duration>) -> io::Result<Option<Duration>> {
    match timeout {
        Some(timeout) if timeout.is_zero() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a timeout of zero would mean none: give None, or make the socket non-blocking",
        )),
        timeout => Ok(timeout),
    }
}

fn uninit(buffer: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: `u8` and `MaybeUninit<u8>` have the same layout. The slice only goes to receive calls
    // of socket2, which promise to write no uninitialised bytes, so the buffer stays initialised.
    unsafe { &mut *(std::ptr::from_mut(buffer) as *mut [MaybeUninit<u8>]) }
}

/// A type in which the kernel stores the value of a socket option.
///
/// # Safety
///
/// Every bit pattern must be a valid value of the type, and the type must have no padding.
pub(crate) unsafe trait PlainOption: Default {}

// SAFETY: every bit pattern is a valid `u32`, which has no padding.
unsafe impl PlainOption for u32 {}
// SAFETY: the type is `repr(C)` with four `u32` fields, so it has no padding and every bit pattern
// is valid.
unsafe impl PlainOption for EdpStats {}
// SAFETY: the type is `repr(C)` with eight `u32` fields, so it has no padding and every bit pattern
// is valid.
unsafe impl PlainOption for EspStats {}

fn get_option<T: PlainOption>(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<T> {
    let mut value = T::default();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the descriptor is open. The kernel writes at most `length` bytes, the size of
    // `value`, and by the contract of `PlainOption` every bit pattern is a valid `T`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            std::ptr::from_mut(&mut value).cast(),
            &mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    if length as usize != size_of::<T>() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "socket option {name} has {length} bytes, not {}",
                size_of::<T>()
            ),
        ));
    }
    Ok(value)
}

/// Implements the descriptor traits and the methods that all typed sockets have.
macro_rules! common_methods {
    ($type:ident) => {
        impl $type {
            /// Returns the address that this socket is bound to.
            ///
            /// # Errors
            ///
            /// The errors of `getsockname(2)`.
            pub fn local_addr(&self) -> std::io::Result<$crate::Address> {
                self.0.local_addr()
            }

            /// Returns a second handle of the same socket.
            ///
            /// # Errors
            ///
            /// The errors of `fcntl(2)` with `F_DUPFD_CLOEXEC`.
            pub fn try_clone(&self) -> std::io::Result<Self> {
                self.0.try_clone().map(Self)
            }

            /// Sets whether calls that would block fail with `WouldBlock` instead.
            ///
            /// # Errors
            ///
            /// The errors of `fcntl(2)` with `F_SETFL`.
            pub fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
                self.0.set_nonblocking(nonblocking)
            }

            /// Returns and clears the socket's pending error (`SO_ERROR`).
            ///
            /// # Errors
            ///
            /// The errors of `getsockopt(2)`.
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.0.take_error()
            }
        }

        impl std::os::fd::AsFd for $type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                self.0.as_raw_fd()
            }
        }

        /// Takes ownership of the descriptor. If it is not a socket of this kind, the socket's
        /// methods fail.
        impl From<std::os::fd::OwnedFd> for $type {
            fn from(fd: std::os::fd::OwnedFd) -> Self {
                Self(fd.into())
            }
        }

        impl From<$type> for std::os::fd::OwnedFd {
            fn from(socket: $type) -> Self {
                socket.0.into()
            }
        }

        impl std::os::fd::IntoRawFd for $type {
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                std::os::fd::OwnedFd::from(self).into_raw_fd()
            }
        }

        impl std::os::fd::FromRawFd for $type {
            unsafe fn from_raw_fd(fd: std::os::fd::RawFd) -> Self {
                // SAFETY: the caller owns the open descriptor and gives up its ownership.
                unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) }.into()
            }
        }

        #[cfg(feature = "mio")]
        impl mio::event::Source for $type {
            fn register(
                &mut self,
                registry: &mio::Registry,
                token: mio::Token,
                interests: mio::Interest,
            ) -> std::io::Result<()> {
                mio::unix::SourceFd(&std::os::fd::AsRawFd::as_raw_fd(&self.0))
                    .register(registry, token, interests)
            }

            fn reregister(
                &mut self,
                registry: &mio::Registry,
                token: mio::Token,
                interests: mio::Interest,
            ) -> std::io::Result<()> {
                mio::unix::SourceFd(&std::os::fd::AsRawFd::as_raw_fd(&self.0))
                    .reregister(registry, token, interests)
            }

            fn deregister(&mut self, registry: &mio::Registry) -> std::io::Result<()> {
                mio::unix::SourceFd(&std::os::fd::AsRawFd::as_raw_fd(&self.0)).deregister(registry)
            }
        }
    };
}

/// Implements the methods of sockets that carry data.
macro_rules! data_methods {
    ($type:ident) => {
        impl $type {
            /// Returns the address that this socket is connected to.
            ///
            /// # Errors
            ///
            /// `NotConnected` if the socket is not connected.
            pub fn peer_addr(&self) -> std::io::Result<$crate::Address> {
                self.0.peer_addr()
            }

            /// Returns the maximum time for which a receiving call waits; `None` if it waits
            /// without limit.
            ///
            /// # Errors
            ///
            /// The errors of `getsockopt(2)`.
            pub fn read_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                self.0.read_timeout()
            }

            /// Returns the maximum time for which a sending call waits; `None` if it waits without
            /// limit.
            ///
            /// # Errors
            ///
            /// The errors of `getsockopt(2)`.
            pub fn write_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                self.0.write_timeout()
            }

            /// Makes receiving calls fail with `WouldBlock` after `timeout`.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a timeout of zero.
            pub fn set_read_timeout(
                &self,
                timeout: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                self.0.set_read_timeout(timeout)
            }

            /// Makes sending calls fail with `WouldBlock` after `timeout`.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a timeout of zero.
            pub fn set_write_timeout(
                &self,
                timeout: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                self.0.set_write_timeout(timeout)
            }
        }
    };
}

pub(crate) use {common_methods, data_methods};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_timeouts_and_wildcard_peers_are_refused() {
        assert_eq!(
            not_zero(Some(Duration::ZERO)).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(not_zero(None).unwrap(), None);
        assert_eq!(
            peer(Address::any(1)).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
