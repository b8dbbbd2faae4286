// SPDX-License-Identifier: GPL-2.0

//! The header of an EDP datagram: three big-endian 16-bit numbers.
//!
//! ```text
//!  0           2           4           6
//!  | source    | dest.     | payload   | payload ... | checksum (4 bytes),
//!  | port      | port      | length    |             | if the length says so
//! ```
//!
//! The length is needed because Ethernet pads short frames (Reinhardt 2006). Its top bit says that
//! a checksum follows the payload: the CRC32c (Castagnoli) of header and payload, big-endian.

/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 6;

/// Length of the checksum that may follow the payload, in bytes.
pub const CHECKSUM_LEN: usize = 4;

/// The maximum payload that the length field can express, in bytes.
pub const LARGEST: u16 = 0x7fff;

/// The bit of the length field that announces a checksum.
const CHECKSUM_BIT: u16 = 0x8000;

/// The largest payload that fits an MTU of 1500 bytes. Every host of the segment is supposed to
/// accept it.
pub const COMMON_LARGEST: usize = 1494;

/// The header of a datagram, with its numbers in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sending socket's port.
    pub src: u16,
    /// The receiving socket's port; 0 for the protocol itself.
    pub dst: u16,
    /// Bytes of payload, without header, checksum and padding: at most [`LARGEST`].
    pub len: u16,
    /// Whether a checksum follows the payload.
    pub has_checksum: bool,
}

impl Header {
    /// Reads the header at the start of `bytes`. Returns `None` if there are fewer than
    /// [`HEADER_LEN`] bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [s0, s1, d0, d1, l0, l1, ..] => {
                let length = u16::from_be_bytes([l0, l1]);
                Some(Self {
                    src: u16::from_be_bytes([s0, s1]),
                    dst: u16::from_be_bytes([d0, d1]),
                    len: length & LARGEST,
                    has_checksum: length & CHECKSUM_BIT != 0,
                })
            }
            _ => None,
        }
    }

    /// Returns the header as bytes on the wire.
    #[inline(always)]
    pub const fn emit(&self) -> [u8; HEADER_LEN] {
        let checksum = if self.has_checksum { CHECKSUM_BIT } else { 0 };
        let [s0, s1] = self.src.to_be_bytes();
        let [d0, d1] = self.dst.to_be_bytes();
        let [l0, l1] = (self.len & LARGEST | checksum).to_be_bytes();
        [s0, s1, d0, d1, l0, l1]
    }

    /// Returns how many of the `following` bytes after the header are payload. The rest is the
    /// checksum, if there is one, and padding to trim. Returns `None` if the frame is shorter than
    /// the header claims. The caller drops a frame that is too short.
    #[inline]
    pub fn payload_len(&self, following: usize) -> Option<usize> {
        let len = usize::from(self.len);
        (len.saturating_add(checksum_len(self.has_checksum)) <= following).then_some(len)
    }
}

/// Returns the number of bytes of the checksum after a payload: 0 unless `has_checksum`.
#[inline]
pub const fn checksum_len(has_checksum: bool) -> usize {
    if has_checksum {
        CHECKSUM_LEN
    } else {
        0
    }
}

/// Returns the largest datagram, in bytes, that a device with an MTU of `device_mtu` bytes carries,
/// as `EDP_SO_MTU` reports it. The length field limits the datagram to [`LARGEST`] bytes, of which
/// a checksum takes [`CHECKSUM_LEN`].
#[inline]
pub const fn mtu(device_mtu: u32, has_checksum: bool) -> u32 {
    let room = device_mtu.saturating_sub(HEADER_LEN as u32);
    let room = if room > LARGEST as u32 {
        LARGEST as u32
    } else {
        room
    };
    room.saturating_sub(checksum_len(has_checksum) as u32)
}
