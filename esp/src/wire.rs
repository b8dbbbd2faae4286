// SPDX-License-Identifier: GPL-2.0

//! The header of an ESP packet.
//!
//! ```text
//!  0         2         4         6          8          10      11
//!  | source  | dest.   | payload | sequence | acknow-  | flags | payload ...
//!  | port    | port    | length  | number   | ledgement|       |
//! ```
//!
//! Numbers are big-endian, and the first six bytes have the same layout as an EDP header. With
//! [`flags::CRC`] a checksum of [`CHECKSUM_LEN`] bytes follows the payload. The engine never sees
//! that flag: its caller verifies and computes checksums.

use super::seq::Seq;

/// Number of bytes of the header.
pub const HEADER_LEN: usize = 11;

/// Number of bytes of the checksum after the payload: the CRC32c (Castagnoli) of header and
/// payload, big-endian.
pub const CHECKSUM_LEN: usize = 4;

/// Bits of [`Header::flags`].
pub mod flags {
    /// The packet opens a connection and takes a sequence number.
    pub const SYN: u8 = 0x01;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 0x02;
    /// The packet ends the sender's stream and takes a sequence number.
    pub const FIN: u8 = 0x04;
    /// The connection does not exist any more.
    pub const RST: u8 = 0x08;
    /// The packet requests retransmissions from the acknowledgement number on.
    pub const RRQ: u8 = 0x10;
    /// The packet is the first of a transmission.
    pub const TXS: u8 = 0x20;
    /// The packet is the last of a transmission.
    pub const TXF: u8 = 0x40;
    /// A checksum follows the payload.
    pub const CRC: u8 = 0x80;
}

/// The flags of a hold, an empty packet that acknowledges receipt and opens no window. The sender
/// of the data need not keep or retransmit the acknowledged packets. It sends new packets only
/// after the receiver has a turn or room. In a packet with neither payload nor `RRQ`, `TXS` means
/// only this.
pub(super) const HOLD: u8 = flags::ACK | flags::TXS;

/// The flags of an empty packet that acknowledges, opens the window and sets the window's size. The
/// packet's length field holds a [`Grant`]. No other packet with a nonzero length has these flags.
pub(super) const GRANT: u8 = flags::ACK | flags::RRQ | flags::TXF;

/// The flags of a skip, an empty packet whose sender skips numbers. The length field holds the
/// first skipped number, which is the first unacknowledged one. The packet's sequence number is the
/// number after the last skipped one. If a packet with a skipped number has not arrived, it will
/// never be sent again.
pub(super) const SKIP: u8 = flags::ACK | flags::RRQ | flags::TXS | flags::TXF;

/// The flags of an empty packet that answers a skip. The packet has the sequence number of the
/// skip. The acknowledgement number is the number that the answering host expected before the skip.
pub(super) const SKIPPED: u8 = flags::ACK | flags::RRQ | flags::TXS;

/// The flags of a request that names packets in its payload. A peer with the version option sends
/// no data with these flags.
pub(super) const NAMING: u8 = SKIPPED;

/// Number of bytes of the longest list of missing packets.
pub const MISSING_MOST: usize = super::bits::BYTES;

/// The two limits that a receiver sets for its peer's packets in flight.
///
/// On the wire each field is a byte, `start` first. A *wide* grant has a window above
/// [`MOST_NARROW`] packets. Its bits are, from the highest one on: a 1, six bits of `start`, nine
/// bits of the window in units of four packets. Only a sender that has advertised such
/// windows gets wide grants. The `start` of its other grants has no highest bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Maximum number of packets after an unacknowledged announcement, 0 to 255; in a wide grant,
    /// 0 to [`MOST_WIDE_START`].
    pub start: u8,
    /// Maximum number of packets after an acknowledgement; 0 leaves the choice to the sender.
    pub window: u16,
}

/// The largest window of a grant that is not wide, in packets.
pub const MOST_NARROW: u16 = 255;

/// The largest `start` of a wide grant.
pub const MOST_WIDE_START: u8 = 63;

/// The unit of a wide grant's window, in packets.
const WIDE_UNIT: u16 = 4;

/// The bit of the length field that marks a wide grant.
const WIDE: u16 = 1 << 15;

/// Number of bits of a wide grant's window, and the number of the lowest bit of its `start`.
const WIDE_BITS: u32 = 9;

impl Grant {
    /// Returns the largest window, at most `window`, that a grant can carry.
    #[inline]
    pub(super) const fn rounded(window: u16) -> u16 {
        if window > MOST_NARROW {
            window - window % WIDE_UNIT
        } else {
            window
        }
    }

    /// Reads a grant from the length field. `wide` is set if the receiver of the packet has
    /// advertised that it accepts wide grants.
    #[inline]
    const fn parse(len: u16, wide: bool) -> Self {
        if wide && len & WIDE != 0 {
            return Self {
                start: (len >> WIDE_BITS) as u8 & MOST_WIDE_START,
                window: (len & ((1 << WIDE_BITS) - 1)).saturating_mul(WIDE_UNIT),
            };
        }
        let [start, window] = len.to_be_bytes();
        Self {
            start,
            window: window as u16,
        }
    }

    /// Returns the length field with this grant.
    #[inline]
    const fn emit(self) -> u16 {
        if self.window > MOST_NARROW {
            let start = if self.start > MOST_WIDE_START {
                MOST_WIDE_START
            } else {
                self.start
            };
            WIDE | ((start as u16) << WIDE_BITS) | (self.window / WIDE_UNIT)
        } else {
            u16::from_be_bytes([self.start, self.window as u8])
        }
    }
}

/// The header, in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The sending socket's port.
    pub src: u16,
    /// The receiving socket's port.
    pub dst: u16,
    /// Number of bytes of payload, without header and padding. In a packet with a [`Grant`] this
    /// field holds the grant; in a skip, a sequence number.
    pub len: u16,
    /// The packet's number; if the packet takes no number, the number of the next packet that does.
    pub seq: Seq,
    /// The next number expected from the peer, if [`flags::ACK`] is set.
    pub ack: Seq,
    /// The packet's [`flags`].
    pub flags: u8,
}

impl Header {
    /// Reads the header at the start of `bytes`. Returns `None` if there are fewer than
    /// [`HEADER_LEN`] bytes.
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

    /// Returns the header as bytes on the wire.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        // Storing whole words takes a fraction of the instructions that single bytes take.
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

    /// Returns how many of the `following` bytes after the header are payload. The rest is padding
    /// to trim. Returns `None` if the frame is shorter than the header claims. The caller drops a
    /// frame that is too short.
    #[inline]
    pub fn payload_len(&self, following: usize) -> Option<usize> {
        let len = usize::from(self.payload());
        (len <= following).then_some(len)
    }

    /// Returns the number of bytes of payload.
    #[inline]
    pub const fn payload(&self) -> u16 {
        // In a grant or a skip the length field has a different meaning.
        if self.flags & !(flags::CRC | flags::TXS) == GRANT {
            0
        } else {
            self.len
        }
    }

    /// Returns whether a checksum follows the payload.
    #[inline]
    pub const fn has_checksum(&self) -> bool {
        self.has(flags::CRC)
    }

    /// Returns the header with the checksum flag set to `has_checksum`.
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

    /// Returns whether any of the given [`flags`] is set.
    #[inline]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns whether the packet takes a sequence number: data, SYN and FIN do.
    #[inline]
    pub const fn takes_number(&self) -> bool {
        self.payload() > 0 || self.has(flags::SYN | flags::FIN)
    }

    /// Returns whether the packet is empty and its length field holds a [`Grant`].
    #[inline]
    pub const fn is_grant(&self) -> bool {
        self.len > 0 && self.flags & !flags::CRC == GRANT
    }

    /// Returns the grant that an empty packet carries. `wide` is set if the packet's receiver has
    /// advertised that it accepts wide grants.
    #[inline]
    pub fn grant(&self, wide: bool) -> Option<Grant> {
        self.is_grant().then(|| Grant::parse(self.len, wide))
    }

    /// Returns the header of an empty packet that carries this grant. If the grant is zero, returns
    /// the header unchanged.
    #[inline]
    pub(super) const fn granting(self, grant: Grant) -> Self {
        let len = grant.emit();
        if len == 0 {
            return self;
        }
        Self {
            len,
            flags: GRANT,
            ..self
        }
    }

    /// Returns whether the packet is empty and skips numbers. The first skipped number is in the
    /// packet's length field.
    #[inline]
    pub const fn is_skip(&self) -> bool {
        self.flags & !flags::CRC == SKIP
    }

    /// Returns whether the packet is empty and answers a skip.
    #[inline]
    pub const fn is_skipped(&self) -> bool {
        self.len == 0 && self.flags & !flags::CRC == SKIPPED
    }

    /// Returns whether the payload names missing packets. This holds only if the peer has the
    /// version option. Bit n of byte m stands for the packet whose number is 8 m + n more than the
    /// acknowledgement number. A packet that names others takes no number. Pass it to
    /// [`Connection::on_named`](super::Connection::on_named).
    #[inline]
    pub const fn names_missing(&self) -> bool {
        self.len > 0 && self.flags & !flags::CRC == NAMING
    }

    /// Returns whether the packet requests retransmissions.
    #[inline]
    pub const fn is_request(&self) -> bool {
        self.has(flags::RRQ) && !self.is_grant() && !self.is_skip() && !self.is_skipped()
    }

    /// Returns the header of one packet of the run whose header this is: the packet after the first
    /// `index` packets, with `len` bytes of payload. `last` is set for the last packet of the run.
    /// Only the first packet keeps TXS, and only the last one keeps TXF.
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

    /// Returns whether the packet can begin a run. It must be pure data that fills the `following`
    /// bytes after the header, without checksum and padding. The last packet of a transmission does
    /// not begin a run, because it must not wait for other packets.
    #[inline]
    pub const fn begins_run(&self, following: usize) -> bool {
        self.len > 0
            && self.len as usize == following
            && self.flags & !(flags::TXS | flags::CRC) == flags::ACK
    }

    /// Returns the header of this run with one more packet. The run has `count` packets of `size`
    /// bytes each. `next` is the header of the packet, and `following` is the number of bytes after
    /// that header, without the checksum. Returns `None` if the packet is not the run's next one,
    /// or if the longer run could not be split into the same packets again.
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

    /// Returns whether two packets between the same hosts belong to one connection.
    #[inline]
    pub const fn is_one_flow(&self, other: &Self) -> bool {
        self.src == other.src && self.dst == other.dst
    }

    /// Returns whether the packet asks to open a connection. A listener passes such a packet to
    /// [`Connection::accept`](super::Connection::accept).
    #[inline]
    pub const fn opens(&self) -> bool {
        self.has(flags::SYN) && !self.has(flags::ACK) && !self.is_malformed()
    }

    /// Returns whether the packet is the RST of a host that does not know the connection: see
    /// [`reset_for`].
    #[inline]
    pub const fn is_stateless_reset(&self) -> bool {
        self.flags & (flags::RST | flags::ACK) == flags::RST
    }

    /// Returns whether the packet is a [`HOLD`]: an empty packet that acknowledges receipt and
    /// opens no window.
    #[inline]
    pub(super) const fn is_hold(&self) -> bool {
        self.len == 0 && self.flags == HOLD
    }

    /// Returns whether the packet is malformed. No correct host sends such a packet.
    ///
    /// A packet is malformed if it combines SYN, FIN and RST with each other or with a request, or
    /// if it is a FIN or RST with payload. A request or a FIN without an acknowledgement is
    /// malformed too, and so is a packet that has neither flags nor payload. A SYN's payload is its
    /// [options](super::options).
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

/// Returns the RST that answers a packet for which there is no socket; `None` for a RST, which is
/// never answered.
///
/// As in TCP (RFC 9293, 3.10.7.1), the RST carries numbers that the peer accepts. The RST's
/// sequence number is the packet's acknowledgement number. If the packet has no acknowledgement
/// number, the RST's sequence number is 0, and the RST acknowledges the packet. The packets of an
/// open connection usually have an acknowledgement number. So there, a RST with ACK means that the
/// peer gives up the connection. A RST without ACK means that its sender does not know the
/// connection. The RST has a checksum if the packet had one.
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

/// Returns the maximum payload, in bytes, of one packet on a device with an MTU of `device_mtu`
/// bytes, as `ESP_SO_MTU` reports it. The length field limits the payload to [`u16::MAX`].
#[inline]
pub const fn mss(device_mtu: u32) -> u32 {
    let room = device_mtu.saturating_sub(HEADER_LEN as u32);
    if room > u16::MAX as u32 {
        u16::MAX as u32
    } else {
        room
    }
}
