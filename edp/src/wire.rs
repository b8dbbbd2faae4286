// SPDX-License-Identifier: GPL-2.0

//! The header of an EDP datagram: three big-endian 16-bit numbers.
//!
//! ```text
//!  0           2           4           6
//!  | source    | dest.     | payload   | payload ... | sum (4 bytes),
//!  | port      | port      | length    |             | if the length says so
//! ```
//!
//! The length is there because Ethernet pads short frames (Reinhardt 2006). Its top bit
//! says that a sum follows the payload: the CRC32c (Castagnoli) of header and payload,
//! big-endian.

/// Bytes of the header.
pub const HEADER_LEN: usize = 6;

/// Bytes of the sum behind the payload.
pub const SUM_LEN: usize = 4;

/// The most payload that the length field can state, bytes.
pub const LARGEST: u16 = 0x7fff;

/// The bit of the length field that announces a sum.
const SUMMED: u16 = 0x8000;

/// Payload of a datagram that needs an MTU of no more than 1500 bytes, which every host
/// of the segment is supposed to take.
pub const COMMON_LARGEST: usize = 1494;

/// The header, in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sending socket's port.
    pub src: u16,
    /// The receiving socket's port; 0 is the protocol itself.
    pub dst: u16,
    /// Bytes of payload, without header, sum and padding: [`LARGEST`] at most.
    pub len: u16,
    /// A sum follows the payload.
    pub summed: bool,
}

impl Header {
    /// Reads the header at the start of `bytes`, `None` if there are fewer than
    /// [`HEADER_LEN`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [s0, s1, d0, d1, l0, l1, ..] => {
                let length = u16::from_be_bytes([l0, l1]);
                Some(Self {
                    src: u16::from_be_bytes([s0, s1]),
                    dst: u16::from_be_bytes([d0, d1]),
                    len: length & LARGEST,
                    summed: length & SUMMED != 0,
                })
            }
            _ => None,
        }
    }

    /// The header as it stands on the wire.
    #[inline(always)]
    pub const fn emit(&self) -> [u8; HEADER_LEN] {
        let sum = if self.summed { SUMMED } else { 0 };
        let [s0, s1] = self.src.to_be_bytes();
        let [d0, d1] = self.dst.to_be_bytes();
        let [l0, l1] = (self.len & LARGEST | sum).to_be_bytes();
        [s0, s1, d0, d1, l0, l1]
    }

    /// How many of the `following` bytes behind the header are payload; the rest
    /// is the sum, if there is one, and padding to be trimmed. `None` when the frame
    /// holds fewer than the header claims: such a frame is dropped.
    #[inline]
    pub fn payload_len(&self, following: usize) -> Option<usize> {
        let len = usize::from(self.len);
        (len.saturating_add(sum_len(self.summed)) <= following).then_some(len)
    }
}

/// Bytes of the sum behind a payload that has one if it is `summed`.
#[inline]
pub const fn sum_len(summed: bool) -> usize {
    if summed {
        SUM_LEN
    } else {
        0
    }
}

/// The largest datagram, in bytes, that a device with an MTU of `device_mtu`
/// bytes carries: what `EDP_SO_MTU` reports. Never more than the length field
/// can say. It is smaller by [`SUM_LEN`] if datagrams are `summed`.
#[inline]
pub const fn mtu(device_mtu: u32, summed: bool) -> u32 {
    let room = device_mtu.saturating_sub(HEADER_LEN as u32);
    let room = if room > LARGEST as u32 {
        LARGEST as u32
    } else {
        room
    };
    room.saturating_sub(sum_len(summed) as u32)
}
