// SPDX-License-Identifier: GPL-2.0

//! The header of an ESP packet: bytes and nothing else.
//!
//! ```text
//!  0         2         4         6          8          10      11
//!  | source  | dest.   | payload | sequence | acknow-  | flags | payload ...
//!  | port    | port    | length  | number   | ledgement|       |
//! ```
//!
//! Numbers are big-endian; the first six bytes are those of an EDP header. With
//! [`flags::CRC`] a sum of [`CHECKSUM_LEN`] bytes follows the payload. The engine never sees that
//! flag: its caller checks and makes the sums.

use super::seq::Seq;

/// Bytes of the header.
pub const HEADER_LEN: usize = 11;

/// Bytes of the sum behind the payload: the CRC32c (Castagnoli) of header and payload,
/// big-endian.
pub const CHECKSUM_LEN: usize = 4;

/// Bits of [`Header::flags`].
pub mod flags {
    /// Opens a connection and takes a sequence number.
    pub const SYN: u8 = 0x01;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x02;
    /// The sender's stream ends here; takes a sequence number.
    pub const FIN: u8 = 0x04;
    /// The connection is gone.
    pub const RST: u8 = 0x08;
    /// Retransmission request: send again from the acknowledgement number on.
    pub const RRQ: u8 = 0x10;
    /// First packet of a transmission.
    pub const TXS: u8 = 0x20;
    /// Last packet of a transmission.
    pub const TXF: u8 = 0x40;
    /// A sum follows the payload.
    pub const CRC: u8 = 0x80;
}

/// The flags of an empty packet that acknowledges receipt and opens no window:
/// what it acknowledges need not be kept or sent again, but those that may
/// follow wait for their turn or for room. `TXS` means nothing else in a packet
/// without payload.
pub(super) const HOLD: u8 = flags::ACK | flags::TXS;

/// The flags of an empty packet that acknowledges, opens the window and says how large it is: its
/// length field has a [`Grant`]. With a length, `RRQ` means nothing else.
pub(super) const GRANT: u8 = flags::ACK | flags::RRQ | flags::TXF;

/// The flags of an empty packet whose sender skips numbers: from the first unacknowledged one,
/// which its length field has, up to its sequence number. What had them and has not arrived never
/// will.
pub(super) const SKIP: u8 = flags::ACK | flags::RRQ | flags::TXS | flags::TXF;

/// The flags of an empty packet that answers a skip. Its sequence number is that of the skip, and
/// its acknowledgement number the one that was expected before.
pub(super) const SKIPPED: u8 = flags::ACK | flags::RRQ | flags::TXS;

/// The flags of a request that names packets in its payload. A peer that tells its version sends no
/// data with them.
pub(super) const NAMING: u8 = SKIPPED;

/// Bytes of the longest list of missing packets.
pub const MISSING_MOST: usize = super::bits::BYTES;

/// What a receiver lets a sender have in flight, in packets. On the wire each is a byte, that of
/// `start` first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grant {
    /// With an announcement that is not acknowledged, 0 to 255.
    pub start: u8,
    /// Behind an acknowledgement, 0 to 255; 0 for the sender's own choice.
    pub window: u8,
}

/// The header, in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The sending socket's port.
    pub src: u16,
    /// The receiving socket's port.
    pub dst: u16,
    /// Bytes of payload, without header and padding; a [`Grant`] in its packet, a number in that of
    /// a skip.
    pub len: u16,
    /// The packet's number, or, of a packet that takes none, the number of the
    /// next one that does.
    pub seq: Seq,
    /// The number expected next from the peer, when [`flags::ACK`] is set.
    pub ack: Seq,
    /// [`flags`].
    pub flags: u8,
}

impl Header {
    /// Reads the header at the start of `bytes`, `None` if there are fewer than
    /// [`HEADER_LEN`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [s0, s1, d0, d1, l0, l1, q0, q1, a0, a1, flags, ..] => Some(Self {
                src: u16::from_be_bytes([s0, s1]),
                dst: u16::from_be_bytes([d0, d1]),
                len: u16::from_be_bytes([l0, l1]),
                seq: Seq(u16::from_be_bytes([q0, q1])),
                ack: Seq(u16::from_be_bytes([a0, a1])),
                flags,
            }),
            _ => None,
        }
    }

    /// The header as it stands on the wire.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        // In words: byte by byte it takes many times the instructions.
        let front = (u64::from(self.src) << 48)
            | (u64::from(self.dst) << 32)
            | (u64::from(self.len) << 16)
            | u64::from(self.seq.0);
        let mut bytes = [0; HEADER_LEN];
        if let Some((to, rest)) = bytes.split_first_chunk_mut() {
            *to = front.to_be_bytes();
            if let [a0, a1, last] = rest {
                [*a0, *a1] = self.ack.0.to_be_bytes();
                *last = self.flags;
            }
        }
        bytes
    }

    /// How many of the `following` bytes behind the header are payload; the
    /// rest is padding to be trimmed. `None` when the frame holds fewer than
    /// the header claims: such a frame is dropped.
    #[inline]
    pub fn payload_len(&self, following: usize) -> Option<usize> {
        let len = usize::from(self.payload());
        (len <= following).then_some(len)
    }

    /// Bytes of payload.
    #[inline]
    pub const fn payload(&self) -> u16 {
        // Of a grant and of a skip the length means something else.
        if self.flags & !(flags::CRC | flags::TXS) == GRANT {
            0
        } else {
            self.len
        }
    }

    /// Whether a sum follows the payload.
    #[inline]
    pub const fn has_checksum(&self) -> bool {
        self.has(flags::CRC)
    }

    /// The header with a sum behind the payload, or without.
    #[inline]
    #[must_use]
    pub const fn with_checksum(self, has_checksum: bool) -> Self {
        let flags = self.flags & !flags::CRC;
        Self {
            flags: if has_checksum {
                flags | flags::CRC
            } else {
                flags
            },
            ..self
        }
    }

    /// Whether any of the given [`flags`] is set.
    #[inline]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether the packet takes a sequence number: data, SYN and FIN do.
    #[inline]
    pub const fn takes_number(&self) -> bool {
        self.payload() > 0 || self.has(flags::SYN | flags::FIN)
    }

    /// Whether the packet is empty and its length field has a [`Grant`].
    #[inline]
    pub const fn is_grant(&self) -> bool {
        self.len > 0 && self.flags & !flags::CRC == GRANT
    }

    /// The grant that an empty packet carries.
    #[inline]
    pub(super) fn grant(&self) -> Option<Grant> {
        let [start, window] = self.len.to_be_bytes();
        self.is_grant().then_some(Grant { start, window })
    }

    /// The header of an empty packet with a grant; one of nothing is none.
    #[inline]
    pub(super) const fn granting(self, grant: Grant) -> Self {
        let len = u16::from_be_bytes([grant.start, grant.window]);
        if len == 0 {
            return self;
        }
        Self {
            len,
            flags: GRANT,
            ..self
        }
    }

    /// Whether the packet is empty and skips numbers: its length field has a number.
    #[inline]
    pub const fn is_skip(&self) -> bool {
        self.flags & !flags::CRC == SKIP
    }

    /// Whether the packet is empty and answers a skip.
    #[inline]
    pub const fn is_skipped(&self) -> bool {
        self.len == 0 && self.flags & !flags::CRC == SKIPPED
    }

    /// Whether the payload names missing packets, from a peer that tells a version: bit n of byte m
    /// stands for the packet with the acknowledgement number + 8 m + n. The packet takes no number,
    /// and is for [`Connection::on_named`](super::Connection::on_named).
    #[inline]
    pub const fn names_missing(&self) -> bool {
        self.len > 0 && self.flags & !flags::CRC == NAMING
    }

    /// Whether the packet asks for others again.
    #[inline]
    pub const fn is_request(&self) -> bool {
        self.has(flags::RRQ) && !self.is_grant() && !self.is_skip() && !self.is_skipped()
    }

    /// The header of one packet of a run that has this one: behind `index` others, with
    /// `len` bytes of payload, and the run's `last` or not. TXS is the first packet's,
    /// TXF the last one's.
    #[inline]
    #[must_use]
    pub const fn of_run(&self, index: u16, len: u16, last: bool) -> Self {
        let mut flags = self.flags;
        if index > 0 {
            flags &= !flags::TXS;
        }
        if !last {
            flags &= !flags::TXF;
        }
        Self {
            len,
            seq: self.seq.add(index),
            flags,
            ..*self
        }
    }

    /// Whether data can begin a run: nothing but data, with `following` bytes behind the
    /// header, without a sum, and no padding among them, and not the end of a transmission,
    /// which waits for nothing.
    #[inline]
    pub const fn begins_run(&self, following: usize) -> bool {
        self.len > 0
            && self.len as usize == following
            && self.flags & !(flags::TXS | flags::CRC) == flags::ACK
    }

    /// The header of a run of `count` packets with this header, of `size` bytes each, and one
    /// packet more with the header `next` and `following` bytes behind it, without a sum.
    /// `None` if that does not come right behind them, or if the whole could not be taken
    /// apart into the same packets again.
    #[inline]
    pub fn joined(&self, count: u16, size: u16, next: &Self, following: usize) -> Option<Self> {
        let continues = self.is_one_flow(next)
            && next.seq == self.seq.add(count)
            && next.ack == self.ack
            && next.len > 0
            && next.len <= size
            && usize::from(next.len) == following
            && self.len == count.checked_mul(size)?
            && self.has_checksum() == next.has_checksum()
            && self.flags & !(flags::TXS | flags::CRC) == flags::ACK
            && next.flags & !(flags::TXF | flags::CRC) == flags::ACK;
        if !continues {
            return None;
        }
        Some(Self {
            len: self.len.checked_add(next.len)?,
            flags: self.flags | next.flags,
            ..*self
        })
    }

    /// Whether two packets between the same hosts belong to one connection.
    #[inline]
    pub const fn is_one_flow(&self, other: &Self) -> bool {
        self.src == other.src && self.dst == other.dst
    }

    /// Whether the packet asks to open a connection: what a listener makes a
    /// connection of with [`Connection::accept`](super::Connection::accept).
    #[inline]
    pub const fn opens(&self) -> bool {
        self.has(flags::SYN) && !self.has(flags::ACK) && !self.is_malformed()
    }

    /// Whether the packet is the RST of a host that does not know the connection: see
    /// [`reset_for`].
    #[inline]
    pub(super) const fn is_stateless_reset(&self) -> bool {
        self.flags & (flags::RST | flags::ACK) == flags::RST
    }

    /// Whether the packet is a hold: an empty packet that acknowledges receipt
    /// and opens no window, [`HOLD`].
    #[inline]
    pub(super) const fn is_hold(&self) -> bool {
        self.len == 0 && self.flags == HOLD
    }

    /// Whether no sender would form such a packet: a SYN, FIN or RST combined
    /// with each other or with a request, a FIN or RST with payload, a request or a
    /// FIN that acknowledges nothing, or a packet without flags and payload. What
    /// a SYN has as payload are [options](super::options).
    #[inline]
    pub(super) const fn is_malformed(&self) -> bool {
        let control = self.flags & (flags::SYN | flags::FIN | flags::RST);
        if control == 0 {
            return !self.has(flags::ACK) && (self.len == 0 || self.has(flags::RRQ));
        }
        !control.is_power_of_two()
            || (self.len > 0 && control != flags::SYN)
            || self.has(flags::RRQ)
            || (control == flags::FIN && !self.has(flags::ACK))
    }
}

/// The RST that answers a packet for which there is no socket; `None` for a
/// RST, which is never answered.
///
/// As in TCP (RFC 9293, 3.10.7.1) it carries the numbers by which the peer will believe it: the
/// packet's own acknowledgement number as its sequence number or, for a packet without one, 0 and
/// an acknowledgement of the packet. So a RST with ACK in a connection comes from a peer that gives
/// it up, one without from a host that knows of none. It has a sum if the packet had one.
#[inline]
pub fn reset_for(header: &Header) -> Option<Header> {
    if header.has(flags::RST) {
        return None;
    }
    let (seq, bits) = if header.has(flags::ACK) {
        (header.ack, flags::RST)
    } else {
        (Seq(0), flags::RST | flags::ACK)
    };
    Some(Header {
        src: header.dst,
        dst: header.src,
        len: 0,
        seq,
        ack: header
            .seq
            .add(u16::from(header.takes_number() && !header.names_missing())),
        flags: bits | (header.flags & flags::CRC),
    })
}

/// The most payload, in bytes, that a device with an MTU of `device_mtu` bytes
/// carries in one packet: what `ESP_SO_MTU` reports. Never more than the length
/// field can say.
#[inline]
pub const fn mss(device_mtu: u32) -> u32 {
    let room = device_mtu.saturating_sub(HEADER_LEN as u32);
    if room > u16::MAX as u32 {
        u16::MAX as u32
    } else {
        room
    }
}
