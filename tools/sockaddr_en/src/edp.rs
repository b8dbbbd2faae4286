// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sockets for EDP datagrams.

use std::io;

use socket2::Type;

use crate::constants::{
    EDP_SO_CHECKSUM, EDP_SO_MTU, EDP_SO_STATS, EPPROTO_EDP, EPPROTO_EZDP, EP_SO_ZEROCOPY,
};
use crate::socket::{common_methods, data_methods, Socket};
use crate::{Address, EdpStats, ToAddress};

/// Protocols of a datagram socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EdpProtocol {
    /// Ethernet Datagram Protocol.
    #[default]
    Edp,
    /// EDP that sends without copying the user's data. The data must not change until the error
    /// queue reports the completion of the send, as with `MSG_ZEROCOPY` (the kernel's
    /// `Documentation/networking/msg_zerocopy.rst`).
    Ezdp,
}

impl EdpProtocol {
    const fn number(self) -> i32 {
        match self {
            Self::Edp => EPPROTO_EDP,
            Self::Ezdp => EPPROTO_EZDP,
        }
    }
}

/// The result of receiving a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Received {
    /// Number of bytes stored in the buffer.
    pub length: usize,
    /// Number of bytes of the whole datagram, as it was sent.
    pub whole: usize,
    /// The sender's address.
    pub sender: Address,
}

impl Received {
    /// Returns whether the buffer was too short for the datagram.
    pub const fn is_truncated(&self) -> bool {
        self.length < self.whole
    }
}

/// A socket for EDP datagrams, used like [`std::net::UdpSocket`].
///
/// Datagrams may be lost, as on any Ethernet, but arrive whole. A datagram larger than
/// [`max_datagram`](Self::max_datagram) is refused with `EMSGSIZE`.
///
/// ```no_run
/// use sockaddr_en::EdpSocket;
///
/// let socket = EdpSocket::bind("*%eth0:2805")?;
/// let mut buffer = [0; 1500];
/// let (length, sender) = socket.recv_from(&mut buffer)?;
/// println!("{length} bytes from {sender}");
/// socket.send_to(&buffer[..length], sender)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct EdpSocket(pub(crate) Socket);

common_methods!(EdpSocket);
data_methods!(EdpSocket);

impl EdpSocket {
    /// Opens a socket and binds it.
    ///
    /// # Errors
    ///
    /// [`FamilyMissing`](crate::FamilyMissing) if the module is not loaded, `AddrInUse` if the port
    /// is taken, `ENODEV` if the interface does not exist or is no Ethernet device, `ENETDOWN` if
    /// it is down.
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        Self::bind_with(EdpProtocol::Edp, address)
    }

    /// Opens and binds a socket like [`bind`](Self::bind), but with the given protocol.
    ///
    /// # Errors
    ///
    /// The errors of [`bind`](Self::bind); `EPROTONOSUPPORT` if the module lacks the protocol.
    pub fn bind_with(protocol: EdpProtocol, address: impl ToAddress) -> io::Result<Self> {
        let address = address.to_address()?;
        let socket = Socket::new(Type::DGRAM, protocol.number())?;
        socket.bind(address)?;
        Ok(Self(socket))
    }

    /// Sets the peer that [`send`](Self::send) sends to.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a wildcard, otherwise the errors of `connect(2)`.
    pub fn connect(&self, address: impl ToAddress) -> io::Result<()> {
        self.0.connect(address)
    }

    /// Sends one datagram to `address` and returns its length.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` for a datagram larger than [`max_datagram`](Self::max_datagram); `WouldBlock` if
    /// the send buffer is full and the socket is non-blocking or has a timeout; otherwise the
    /// errors of `sendto(2)`.
    pub fn send_to(&self, datagram: &[u8], address: impl ToAddress) -> io::Result<usize> {
        self.0.send_to(datagram, address)
    }

    /// Sends one datagram to the peer and returns its length.
    ///
    /// # Errors
    ///
    /// The errors of [`send_to`](Self::send_to); `EDESTADDRREQ` or `ENOTCONN` if no peer is set.
    pub fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.0.send(datagram)
    }

    /// Receives one datagram. Returns its length and its sender. Bytes that exceed `buffer` are
    /// lost.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if no datagram is queued and the socket is non-blocking or has a timeout;
    /// otherwise the errors of `recvfrom(2)`.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, Address)> {
        self.0.recv_from(buffer, 0)
    }

    /// Receives one datagram. Returns its length in the buffer, its sender, and its length before
    /// truncation. Bytes that exceed `buffer` are lost.
    ///
    /// # Errors
    ///
    /// The errors of [`recv_from`](Self::recv_from).
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let (whole, sender) = self.0.recv_from(buffer, libc::MSG_TRUNC)?;
        Ok(Received {
            length: whole.min(buffer.len()),
            whole,
            sender,
        })
    }

    /// Receives like [`recv_from`](Self::recv_from), but leaves the datagram in the queue.
    ///
    /// # Errors
    ///
    /// The errors of [`recv_from`](Self::recv_from).
    pub fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, Address)> {
        self.0.recv_from(buffer, libc::MSG_PEEK)
    }

    /// Receives one datagram and returns its length. Bytes that exceed `buffer` are lost.
    ///
    /// # Errors
    ///
    /// The errors of [`recv_from`](Self::recv_from).
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buffer)
    }

    /// Receives like [`recv`](Self::recv), but leaves the datagram in the queue.
    ///
    /// # Errors
    ///
    /// The errors of [`recv_from`](Self::recv_from).
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.peek(buffer)
    }

    /// Returns the largest datagram in bytes: the MTU of the bound interface less EDP's header,
    /// less the checksum if there is one. Returns less if the kernel knows that the peer accepts
    /// less.
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`. The call fails for a socket that is bound to no interface.
    pub fn max_datagram(&self) -> io::Result<u32> {
        self.0.option(EDP_SO_MTU)
    }

    /// Returns whether datagrams are sent with a checksum.
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`.
    pub fn checksum(&self) -> io::Result<bool> {
        Ok(self.0.option::<u32>(EDP_SO_CHECKSUM)? != 0)
    }

    /// Sets whether datagrams are sent with a checksum (CRC32c) of 4 bytes. The receiver's kernel
    /// drops datagrams with a wrong checksum. Every socket accepts datagrams with a checksum, even
    /// if this option is not set for it.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`.
    pub fn set_checksum(&self, checksum: bool) -> io::Result<()> {
        self.0.set_option(EDP_SO_CHECKSUM, checksum.into())
    }

    /// Sets whether sends with `MSG_ZEROCOPY` avoid the copy: the device reads the user's pages,
    /// and the error queue reports when they are free again. Sockets of [`EdpProtocol::Ezdp`]
    /// always avoid the copy, without the flag.
    ///
    /// # Errors
    ///
    /// The errors of `setsockopt(2)`; `EINVAL` if `on` is false for EZDP.
    pub fn set_zero_copy(&self, on: bool) -> io::Result<()> {
        self.0.set_option(EP_SO_ZEROCOPY, on.into())
    }

    /// Returns the counters of the socket since its creation.
    ///
    /// # Errors
    ///
    /// The errors of `getsockopt(2)`.
    pub fn stats(&self) -> io::Result<EdpStats> {
        self.0.option(EDP_SO_STATS)
    }
}
