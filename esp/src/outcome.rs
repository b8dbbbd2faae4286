// SPDX-License-Identifier: GPL-2.0

//! The types that the engine and its caller exchange.

use super::seq::Seq;
use super::state::Failure;
use super::wire::Header;

/// The reason why a packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The packet has a combination of flags or lengths that no sender uses.
    Malformed,
    /// The packet was received before. It is answered with an acknowledgement.
    Duplicate,
    /// The packet arrived while earlier packets are missing. The missing packets are requested.
    OutOfSequence,
    /// The packet's number is farther from the expected number than a window reaches.
    BeyondWindow,
    /// The receive queue is full, and need not keep the packet: see [`Room::kept`].
    NoRoom,
    /// The packet acknowledges a number that was never sent, or less than an earlier packet did.
    BadAck,
    /// The packet does not belong to the connection in its present state.
    BadState,
}

/// The receive queue as the caller charges it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Room {
    /// Number of bytes in the queue.
    pub queued: u32,
    /// The limit of the queue, in bytes.
    pub limit: u32,
    /// Number of bytes that the arriving packets add to the queue.
    pub arriving: u32,
    /// Number of bytes that one full packet takes in the queue.
    pub packet: u32,
}

/// Number of packets of a burst that even the smallest receive queue keeps.
const LEAST_KEPT: u16 = 64;

impl Room {
    /// Returns how many of the `granted` packets after the last advertised number are kept even if
    /// the queue has no room.
    #[inline]
    pub fn kept(&self, granted: u16) -> u16 {
        let fit = self.limit.checked_div(self.packet).unwrap_or(0);
        let most = u16::try_from(fit).unwrap_or(u16::MAX).max(LEAST_KEPT);
        granted.min(most)
    }
}

/// The effects of a packet or a timer, and what the caller must do. Several fields can be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[must_use]
pub struct Outcome {
    /// The caller must queue the payload of the `taken` packets after the first `skip` packets of
    /// the run: this payload is next in the stream. In a connection with records, call
    /// [`take_part`](super::Connection::take_part) first.
    pub deliver: bool,
    /// This many packets at the front of the run were received before.
    pub skip: u16,
    /// Number of packets whose payload is next in the stream.
    pub taken: u16,
    /// The caller must keep all packets of this run, with header and count, in the order of their
    /// numbers, because packets before them are missing. While
    /// [`reaches`](super::Connection::reaches) is true for the first kept packet, deliver that
    /// packet with [`on_kept`](super::Connection::on_kept). Once
    /// [`keeps`](super::Connection::keeps) is false, free all kept packets.
    pub keep: bool,
    /// The reason for which the caller must drop the packet's payload. The packet's acknowledgement
    /// still counts, in `acked`.
    pub drop: Option<DropReason>,
    /// Number of data packets to free from the head of the write queue.
    pub acked: u16,
    /// Whether the caller must split the write queue again, after it has freed `acked` packets, and
    /// then call [`recut`](super::Connection::recut).
    pub cut: bool,
    /// Whether the packet is the peer's SYN or SYN|ACK. If so, pass its [options](super::Options)
    /// to [`take_answer`](super::Connection::take_answer).
    pub answered: bool,
    /// Whether the handshake is complete.
    pub established: bool,
    /// Whether the peer's stream has just ended.
    pub fin: bool,
    /// Why the connection has just failed; `None` if it has not.
    pub failed: Option<Failure>,
    /// Whether the connection is over. The connection receives nothing more, and sends only the
    /// packets that [`poll_transmit`](super::Connection::poll_transmit) still returns.
    pub closed: bool,
}

impl Outcome {
    /// Returns whether the packet's numbers show that it belongs to an open connection. They do so
    /// if the packet is taken now or was taken before.
    pub fn is_of_open_connection(&self) -> bool {
        self.failed.is_none()
            && !self.closed
            && !self.keep
            && matches!(self.drop, None | Some(DropReason::Duplicate))
    }
}

/// The write queue as the engine sees it.
pub trait WriteQueue {
    /// Returns the TXS and TXF flags of the packet `seq`. If it was sent, these are the flags with
    /// which it was sent. In a connection with records, `seq` may also be a packet that was not
    /// sent yet. Then TXS is set if a record begins with the packet, and TXF if a record ends with
    /// it.
    fn flags(&mut self, seq: Seq) -> u8;

    /// Returns the number of packets from `seq` on that can be sent as one run, at least 1. All of
    /// these packets but the last are full. In a connection with records, all of them belong to one
    /// record.
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

/// Packets to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transmit {
    /// A run of queued packets, from the header's number on. The caller fills in [`Header::len`].
    /// For retransmissions, the caller records TXS for the first packet and TXF for the last
    /// packet.
    Data {
        /// The first packet's header. Its length is not filled in, and it has the TXF flag of the
        /// last packet.
        header: Header,
        /// Number of packets.
        count: u16,
        /// Whether the packets were sent before.
        resend: bool,
    },
    /// A complete packet without payload.
    Control {
        /// The packet, which consists only of this header.
        header: Header,
        /// Whether the packet, a SYN or a FIN, was sent before.
        resend: bool,
    },
    /// An empty packet that asks the peer for an answer.
    Probe(Header),
    /// A request whose payload is the first [`Header::len`] bytes of
    /// [`Connection::named`](super::Connection::named).
    Request(Header),
}

impl Transmit {
    /// Returns the number of packets.
    #[inline]
    pub fn count(&self) -> u16 {
        match self {
            Self::Data { count, .. } => *count,
            Self::Control { .. } | Self::Probe(_) | Self::Request(_) => 1,
        }
    }

    /// Returns the packet's header.
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
