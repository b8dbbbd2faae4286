// SPDX-License-Identifier: GPL-2.0

//! What the engine and its caller tell each other.

use super::seq::Seq;
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
    /// Its number is farther from the expected one than a window reaches.
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
    /// Added to it by the packets that are handed over.
    pub arriving: u32,
    /// What one full packet costs in it.
    pub packet: u32,
}

/// A burst of so many packets is kept in the smallest receive queue.
const LEAST_KEPT: u16 = 64;

impl Room {
    /// Of `granted` packets behind the last advertised number, how many are kept without room.
    #[inline]
    pub fn kept(&self, granted: u16) -> u16 {
        let fit = self.limit.checked_div(self.packet).unwrap_or(0);
        let most = u16::try_from(fit).unwrap_or(u16::MAX).max(LEAST_KEPT);
        granted.min(most)
    }
}

/// What a packet or a timer brought about. More than one of these can hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[must_use]
pub struct Outcome {
    /// There is payload that is next in the stream: queue it. It is that of `taken`
    /// packets, behind the first `skip` ones. In a connection with records it is for
    /// [`take_part`](super::Connection::take_part) first.
    pub deliver: bool,
    /// Packets at the front of a run that were received before.
    pub skip: u16,
    /// Packets whose payload is next in the stream.
    pub taken: u16,
    /// Packets before these are missing: all of them are to be kept, with header and count, in the
    /// order of their numbers. As long as [`reaches`](super::Connection::reaches) says so of the
    /// first one, it is to be handed over by [`on_kept`](super::Connection::on_kept); once
    /// [`keeps`](super::Connection::keeps) says no, all are to be freed.
    pub keep: bool,
    /// The packet's payload is to be thrown away. What it acknowledged counts
    /// nevertheless and stands in `acked`.
    pub drop: Option<DropReason>,
    /// Data packets to free from the head of the write queue.
    pub acked: u16,
    /// What is queued is to be cut anew now, and
    /// [`recut`](super::Connection::recut) to be called, after `acked` was freed.
    pub cut: bool,
    /// The packet is the SYN or SYN|ACK of the connection's peer: its
    /// [options](super::Options) are for
    /// [`take_answer`](super::Connection::take_answer).
    pub answered: bool,
    /// The handshake is complete.
    pub established: bool,
    /// The peer's stream has ended, just now.
    pub fin: bool,
    /// The connection failed, just now.
    pub failed: Option<Failure>,
    /// The connection is over; nothing more is received, and nothing sent
    /// beyond what [`poll_transmit`](super::Connection::poll_transmit) still
    /// gives out.
    pub closed: bool,
}

impl Outcome {
    /// Whether the packet belongs to an open connection, so far as its numbers tell: it was
    /// taken, or had been before.
    pub fn is_of_open_connection(&self) -> bool {
        self.failed.is_none()
            && !self.closed
            && !self.keep
            && matches!(self.drop, None | Some(DropReason::Duplicate))
    }
}

/// The write queue, as the engine asks for it.
pub trait WriteQueue {
    /// TXS and TXF, as the packet `seq` left with them. In a connection with records, of a
    /// packet that has not left too: TXS if a record begins with it, TXF if one ends.
    fn flags(&mut self, seq: Seq) -> u8;

    /// How many packets from `seq` on can leave as one run, at least 1. All of them but
    /// the last are full. With records, they are of one record.
    fn run(&mut self, seq: Seq) -> u16;
}

/// A queue of packets that are sent one by one.
impl<F: FnMut(Seq) -> u8> WriteQueue for F {
    fn flags(&mut self, seq: Seq) -> u8 {
        self(seq)
    }

    fn run(&mut self, _seq: Seq) -> u16 {
        1
    }
}

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transmit {
    /// A run of queued packets, from the header's number on. The caller fills in
    /// [`Header::len`], and keeps TXS with the first and TXF with the last packet
    /// for resends.
    Data {
        /// The header, but for the length: the first packet's, with the TXF of the
        /// last.
        header: Header,
        /// How many packets.
        count: u16,
        /// They were sent before.
        resend: bool,
    },
    /// A packet without payload, complete as it is.
    Control {
        /// The whole packet.
        header: Header,
        /// The packet, a SYN or a FIN, was sent before.
        resend: bool,
    },
    /// A packet without payload that asks the peer for an answer.
    Probe(Header),
    /// A request whose payload is the first [`Header::len`] bytes of
    /// [`Connection::named`](super::Connection::named).
    Request(Header),
}

impl Transmit {
    /// How many packets.
    #[inline]
    pub fn count(&self) -> u16 {
        match self {
            Self::Data { count, .. } => *count,
            Self::Control { .. } | Self::Probe(_) | Self::Request(_) => 1,
        }
    }

    /// The packet's header.
    #[inline]
    pub fn header(&self) -> &Header {
        match self {
            Self::Data { header, .. }
            | Self::Control { header, .. }
            | Self::Probe(header)
            | Self::Request(header) => header,
        }
    }
}
