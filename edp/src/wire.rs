// SPDX-License-Identifier: GPL-2.0

//! The header of an EDP datagram: three big-endian 16-bit numbers.
//!
//! ```text
//!  0           2           4           6
//!  | source    | dest.     | payload   | payload ...
//!  | port      | port      | length    |
//! ```
//!
//! The length is there because Ethernet pads short frames (Reinhardt 2006).

/// Bytes of the header.
pub const HEADER_LEN: usize = 6;

/// The header, in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sending socket's port.
    pub src: u16,
    /// The receiving socket's port; 0 is the protocol itself.
    pub dst: u16,
    /// Bytes of payload, without header and padding.
    pub len: u16,
}

impl Header {
    /// Reads the header at the start of `bytes`, `None` if there are fewer than
    /// [`HEADER_LEN`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [s0, s1, d0, d1, l0, l1, ..] => Some(Self {
                src: u16::from_be_bytes([s0, s1]),
                dst: u16::from_be_bytes([d0, d1]),
                len: u16::from_be_bytes([l0, l1]),
            }),
            _ => None,
        }
    }

    /// The header as it stands on the wire.
    #[inline]
    pub const fn emit(&self) -> [u8; HEADER_LEN] {
        let [s0, s1] = self.src.to_be_bytes();
        let [d0, d1] = self.dst.to_be_bytes();
        let [l0, l1] = self.len.to_be_bytes();
        [s0, s1, d0, d1, l0, l1]
    }

    /// How many of the `following` bytes behind the header are payload; the
    /// rest is padding to be trimmed. `None` when the frame holds fewer than
    /// the header claims: such a frame is dropped.
    #[inline]
    pub fn payload_len(&self, following: usize) -> Option<usize> {
        let len = usize::from(self.len);
        (len <= following).then_some(len)
    }
}

/// The largest datagram, in bytes, that a device with an MTU of `device_mtu`
/// bytes carries: what `EDP_SO_MTU` reports. Never more than the length field
/// can say.
#[inline]
pub const fn mtu(device_mtu: u32) -> u32 {
    let room = device_mtu.saturating_sub(HEADER_LEN as u32);
    if room > u16::MAX as u32 {
        u16::MAX as u32
    } else {
        room
    }
}
