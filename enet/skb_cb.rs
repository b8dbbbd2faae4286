// SPDX-License-Identifier: GPL-2.0

//! The values that the protocols store in a buffer while it is queued.

use crate::{
    address::Address,
    esp::{flags, Seq},
    net::{
        device::Mac,
        seq_queue::Sequenced,
        skb::{Note, Words},
    },
};

/// For a received ESP frame: the sender and, if the frame has a checksum, the mask that the sender
/// combined with the checksum.
#[derive(Clone, Copy)]
pub(crate) struct Masked {
    pub(crate) peer: Address,
    pub(crate) mask: u32,
}

impl Note for Masked {
    #[inline]
    fn to_words(self) -> Words {
        let [end, ifindex] = Origin(self.peer).to_words();
        [end, u64::from(self.mask) << 32 | ifindex]
    }

    #[inline]
    fn from_words([end, word]: Words) -> Self {
        let Origin(peer) = Origin::from_words([end, word]);
        Masked {
            peer,
            mask: (word >> 32) as u32,
        }
    }
}

/// For a received frame: the sender.
#[derive(Clone, Copy)]
pub(crate) struct Origin(pub(crate) Address);

impl Note for Origin {
    #[inline]
    fn to_words(self) -> Words {
        let Address { port, ifindex, mac } = self.0;
        [mac.to_bits() << 16 | u64::from(port), ifindex.into()]
    }

    #[inline]
    fn from_words([end, ifindex]: Words) -> Self {
        Origin(Address {
            port: end as u16,
            ifindex: ifindex as u32,
            mac: Mac::from_bits(end >> 16),
        })
    }
}

/// For a buffer in the write queue: its packets that are not acknowledged.
#[derive(Clone, Copy)]
pub(crate) struct TxCb {
    /// Sequence number of the first packet.
    pub(crate) seq: u16,
    /// Number of packets.
    pub(crate) count: u16,
    /// Payload bytes of each packet except the last.
    pub(crate) size: u16,
    /// `TXS` if the first packet was sent with that flag, `TXF` if the last packet was; 0 before
    /// they are sent.
    pub(crate) flags: u8,
    /// Acknowledged bytes at the start of the buffer.
    pub(crate) acked_bytes: u32,
}

impl TxCb {
    /// Returns whether the buffer holds exactly the `count` packets from `seq` on, and none of its
    /// packets has been acknowledged.
    #[inline]
    pub(crate) fn is_all(&self, seq: Seq, count: u16) -> bool {
        self.acked_bytes == 0 && self.seq == seq.0 && self.count == count
    }

    /// Returns the offset in bytes of the packet that follows the first `index` unacknowledged
    /// packets.
    #[inline]
    pub(crate) fn offset(&self, index: u16) -> usize {
        let bytes = u32::from(index).saturating_mul(self.size.into());
        self.acked_bytes.saturating_add(bytes) as usize
    }

    /// Removes the first `count` packets, which are acknowledged. At least one packet remains.
    #[inline]
    pub(crate) fn acknowledge(&mut self, count: u16) {
        self.acked_bytes = self.offset(count) as u32;
        self.seq = self.seq.wrapping_add(count);
        self.count = self.count.saturating_sub(count);
        self.flags &= !flags::TXS;
    }
}

impl Note for TxCb {
    #[inline]
    fn to_words(self) -> Words {
        let numbers = u64::from(self.count) << 16 | u64::from(self.seq);
        let form = u64::from(self.flags) << 16 | u64::from(self.size);
        [form << 32 | numbers, self.acked_bytes.into()]
    }

    #[inline]
    fn from_words([word, acked_bytes]: Words) -> Self {
        TxCb {
            seq: word as u16,
            count: (word >> 16) as u16,
            size: (word >> 32) as u16,
            flags: (word >> 48) as u8,
            acked_bytes: acked_bytes as u32,
        }
    }
}

impl Sequenced for TxCb {
    #[inline]
    fn number(&self) -> u16 {
        self.seq
    }

    #[inline]
    fn count(&self) -> u16 {
        self.count
    }
}

/// For a buffer in a stream's receive queue: its bytes that no reader has taken.
#[derive(Clone, Copy)]
pub(crate) struct Unread {
    /// Offset of the first byte.
    pub(crate) start: u32,
    /// Offset of the end of these bytes. Bytes of the buffer after `end` do not belong to the
    /// stream.
    pub(crate) end: u32,
}

impl Unread {
    /// Returns the number of unread bytes.
    #[inline]
    pub(crate) fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// Returns the unread bytes that remain after `n` bytes have been taken.
    #[inline]
    #[must_use]
    pub(crate) fn after(self, n: usize) -> Self {
        Unread {
            start: self.start.saturating_add(n as u32),
            ..self
        }
    }
}

/// Like [`Unread`], but in a queue of records: the bytes belong to one record.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) bytes: Unread,
    /// Whether the record ends with these bytes.
    pub(crate) ends: bool,
}

impl Note for Piece {
    #[inline]
    fn to_words(self) -> Words {
        let [start, end] = self.bytes.to_words();
        [start, end | u64::from(self.ends) << 32]
    }

    #[inline]
    fn from_words([start, end]: Words) -> Self {
        Piece {
            bytes: Unread::from_words([start, end]),
            ends: end >> 32 != 0,
        }
    }
}

impl Note for Unread {
    #[inline]
    fn to_words(self) -> Words {
        [self.start.into(), self.end.into()]
    }

    #[inline]
    fn from_words([start, end]: Words) -> Self {
        Unread {
            start: start as u32,
            end: end as u32,
        }
    }
}
