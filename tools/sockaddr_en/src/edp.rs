// SPDX-License-Identifier: MIT OR Apache-2.0

//! Datagrams.

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
    /// The same, but sends do not copy the user's data: it must not change before the completion of
    /// the send has come on the error queue, as with `MSG_ZEROCOPY` (the kernel's
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

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Received {
    /// Its bytes in the buffer.
    pub length: usize,
    /// Its bytes when it was sent.
    pub whole: usize,
    /// Who sent it.
    pub sender: Address,
}

impl Received {
    /// Was the buffer too short for it?
    pub const fn is_truncated(&self) -> bool {
        self.length < self.whole
    }
}

/// A socket for EDP datagrams, used as [`std::net::UdpSocket`] is.
///
/// Datagrams may be lost, as on any Ethernet, but come whole. One larger than
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
pub struct EdpSocket(Socket);

common_methods!(EdpSocket);
data_methods!(EdpSocket);

impl EdpSocket {
    /// Opens a socket and binds it.
    ///
    /// # Errors
    ///
    /// [`FamilyMissing`](crate::FamilyMissing) where the module is not loaded, `AddrInUse` for a
    /// port that is taken, `ENODEV` for an interface that is absent or no Ethernet device,
    /// `ENETDOWN` for one that is down.
    pub fn bind(address: impl ToAddress) -> io::Result<Self> {
        Self::bind_with(EdpProtocol::Edp, address)
    }

    /// As [`bind`](Self::bind), with another protocol.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind); `EPROTONOSUPPORT` if the module lacks the protocol.
    pub fn bind_with(protocol: EdpProtocol, address: impl ToAddress) -> io::Result<Self> {
        let address = address.to_address()?;
        let socket = Socket::new(Type::DGRAM, protocol.number())?;
        socket.bind(address)?;
        Ok(Self(socket))
    }

    /// Stores the peer: [`send`](Self::send) goes to it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a wildcard, otherwise what `connect(2)` says.
    pub fn connect(&self, address: impl ToAddress) -> io::Result<()> {
        self.0.connect(address)
    }

    /// Sends one datagram to `address`; its length is returned.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` for a datagram above [`max_datagram`](Self::max_datagram); `WouldBlock` when
    /// non-blocking or timed and the send buffer is full; otherwise what `sendto(2)` says.
    pub fn send_to(&self, datagram: &[u8], address: impl ToAddress) -> io::Result<usize> {
        self.0.send_to(datagram, address)
    }

    /// Sends one datagram to the peer.
    ///
    /// # Errors
    ///
    /// As [`send_to`](Self::send_to); `EDESTADDRREQ` or `ENOTCONN` without a peer.
    pub fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.0.send(datagram)
    }

    /// Receives one datagram and its sender. What does not fit into `buffer` is cut off.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when non-blocking or timed and none is there; otherwise what `recvfrom(2)`
    /// says.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, Address)> {
        self.0.recv_from(buffer, 0)
    }

    /// Receives one datagram and its sender, and tells how long it was. What does not fit into
    /// `buffer` is cut off.
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from).
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let (whole, sender) = self.0.recv_from(buffer, libc::MSG_TRUNC)?;
        Ok(Received {
            length: whole.min(buffer.len()),
            whole,
            sender,
        })
    }

    /// As [`recv_from`](Self::recv_from), leaving the datagram in the queue.
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from).
    pub fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, Address)> {
        self.0.recv_from(buffer, libc::MSG_PEEK)
    }

    /// Receives one datagram. What does not fit into `buffer` is cut off.
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from).
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buffer)
    }

    /// As [`recv`](Self::recv), leaving the datagram in the queue.
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from).
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.peek(buffer)
    }

    /// The largest datagram in bytes: the MTU of the interface it is bound to, less EDP's header
    /// and the checksum, if there is one. It is smaller if the peer takes less, as far as the
    /// kernel knows.
    ///
    /// # Errors
    ///
    /// What the module says while the socket is bound to no interface.
    pub fn max_datagram(&self) -> io::Result<u32> {
        self.0.option(EDP_SO_MTU)
    }

    /// Whether datagrams leave with a checksum.
    ///
    /// # Errors
    ///
    /// What `getsockopt(2)` says.
    pub fn checksum(&self) -> io::Result<bool> {
        Ok(self.0.option::<u32>(EDP_SO_CHECKSUM)? != 0)
    }

    /// Has datagrams leave with a checksum (CRC32c) of 4 bytes, by which the receiver's kernel
    /// drops damaged ones. Datagrams with a checksum are always received, by any socket.
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says.
    pub fn set_checksum(&self, checksum: bool) -> io::Result<()> {
        self.0.set_option(EDP_SO_CHECKSUM, checksum.into())
    }

    /// Has sends with `MSG_ZEROCOPY` leave their bytes in place until they have left, and report on
    /// the error queue when the memory is free again. Sockets of [`EdpProtocol::Ezdp`] always do,
    /// without the flag.
    ///
    /// # Errors
    ///
    /// What `setsockopt(2)` says: `EINVAL` if EZDP's is to be switched off.
    pub fn set_zero_copy(&self, on: bool) -> io::Result<()> {
        self.0.set_option(EP_SO_ZEROCOPY, on.into())
    }

    /// What the socket counted since it was made.
    ///
    /// # Errors
    ///
    /// What `getsockopt(2)` says.
    pub fn stats(&self) -> io::Result<EdpStats> {
        self.0.option(EDP_SO_STATS)
    }
}
