// SPDX-License-Identifier: GPL-2.0

//! What the engine and its caller tell each other.

use super::state::Failure;
use super::wire::Header;

/// Why a packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Flags or lengths that no sender would put together.
    Malformed,
    /// Received before; answered with an acknowledgement.
    Duplicate,
    /// Packets before it are missing; they are asked for.
    OutOfSequence,
    /// Beyond the largest window that the number given last can have opened.
    BeyondWindow,
    /// The receive queue is full and the packet was not promised a place.
    NoRoom,
    /// Acknowledges what was never sent, or less than was acknowledged before.
    BadAck,
    /// Does not belong to the connection as it now is.
    BadState,
}

/// The receive queue as the caller charges it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Room {
    /// In the queue now.
    pub queued: u32,
    /// What it may hold.
    pub limit: u32,
    /// What the packet that is handed over adds to it.
    pub arriving: u32,
    /// What one full packet costs in it.
    pub packet: u32,
}

/// What a packet or a timer brought about. More than one of these can hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[must_use]
pub struct Outcome {
    /// The packet's payload is next in the stream: queue it.
    pub deliver: bool,
    /// The packet's payload is to be thrown away. What it acknowledged counts
    /// nevertheless and stands in `acked`.
    pub drop: Option<DropReason>,
    /// Data packets to free from the head of the write queue.
    pub acked: u16,
    /// What is queued is to be cut anew now, and
    /// [`recut`](super::Connection::recut) to be called, after `acked` was freed.
    pub cut: bool,
    /// The handshake is complete.
    pub established: bool,
    /// The other side's stream has ended, just now.
    pub fin: bool,
    /// The connection failed, just now.
    pub failed: Option<Failure>,
    /// The connection is over; nothing more is received, and nothing sent
    /// beyond what [`poll_transmit`](super::Connection::poll_transmit) still
    /// gives out.
    pub closed: bool,
}

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transmit {
    /// The queued packet with the header's number. The caller fills in
    /// [`Header::len`] and keeps the flags with the packet for resends.
    Data {
        /// The header, but for the length.
        header: Header,
        /// The packet has left before.
        resend: bool,
    },
    /// A packet without payload, complete as it is.
    Control {
        /// The whole packet.
        header: Header,
        /// The packet, a SYN or a FIN, has left before.
        resend: bool,
    },
    /// A packet without payload that asks the other side for an answer.
    Probe(Header),
}

impl Transmit {
    /// The packet's header.
    #[inline]
    pub fn header(&self) -> &Header {
        match self {
            Self::Data { header, .. } | Self::Control { header, .. } | Self::Probe(header) => {
                header
            }
        }
    }
}
