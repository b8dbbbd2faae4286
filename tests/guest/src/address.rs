// SPDX-License-Identifier: GPL-2.0-only

//! Encodes and decodes endpoint addresses, the kernel's `struct sockaddr_en`, byte by byte.
//!
//! The scenarios encode the layout themselves and do not use the library crate. Otherwise an error
//! that the crate shared with the module would go unnoticed.

use anyhow::{ensure, Result};

/// `AF_ENET`, the family's default number.
pub const AF_ENET: i32 = 28;
/// `IPPROTO_ENET`, the protocol of `AF_INET` and `AF_INET6` stream sockets that the module serves.
pub const IPPROTO_ENET: i32 = 259;
/// `SOL_EP`, the option level of both protocols.
pub const SOL_EP: i32 = 0x4550;
/// The option level of both protocols in the header file of Reinhardt's thesis (2006).
pub const SOL_EP_2006: i32 = 285;
/// `EPPROTO_EZDP`: EDP with zero-copy sends.
pub const EPPROTO_EZDP: i32 = 1;
/// Option of level [`SOL_EP`], a u32: whether `MSG_ZEROCOPY` is honoured.
pub const EP_SO_ZEROCOPY: i32 = 60;
/// The size of a stream's receive ring.
pub const EP_SO_RECEIVE_RING: i32 = 61;
/// The descriptor whose regions are the memory of a channel's puts.
pub const EP_SO_DOMAIN: i32 = 62;
/// `ioctl` of a channel: makes a region of memory.
pub const EP_IOC_REGION: u64 = 0x89e0;
/// `ioctl` of a channel: ends a region of memory.
pub const EP_IOC_END_REGION: u64 = 0x89e1;
/// `EDP_SO_MTU` and `ESP_SO_MTU`: the largest payload of one packet, a u32.
pub const SO_MTU: i32 = 1;
/// `ESP_SO_CHECKSUM`: whether packets have a checksum, a u32.
pub const ESP_SO_CHECKSUM: i32 = 4;
/// `EDP_SO_STATS` and `ESP_SO_STATS`: the socket's counters, an array of u32.
pub const SO_STATS: i32 = 2;
/// `EDP_SO_CHECKSUM`: whether datagrams are sent with a checksum, a u32.
pub const EDP_SO_CHECKSUM: i32 = 3;
/// Option of level [`SOL_EP`], ESP only: how long the peer may leave data unacknowledged, in
/// milliseconds.
pub const ESP_SO_USER_TIMEOUT: i32 = 3;
/// Length of `struct sockaddr_en` in bytes.
pub const SOCKADDR_LEN: usize = 16;

/// One end of a conversation: a station, one of its ports, and the local interface that leads to
/// the station.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// Port number; host order here, network order in the kernel's structure.
    pub port: u16,
    /// Index of the local interface; 0 means all of them (bind only).
    pub ifindex: u32,
    /// Hardware address of the station.
    pub mac: [u8; 6],
}

impl Address {
    /// Encodes the structure, with the family [`AF_ENET`].
    pub fn to_bytes(self) -> [u8; SOCKADDR_LEN] {
        self.with_family(AF_ENET)
    }

    /// Encodes the structure with any family number.
    pub fn with_family(self, family: i32) -> [u8; SOCKADDR_LEN] {
        let mut bytes = [0; SOCKADDR_LEN];
        bytes[0..2].copy_from_slice(&(family as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.port.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.ifindex.to_ne_bytes());
        bytes[8] = 6;
        bytes[9..15].copy_from_slice(&self.mac);
        bytes
    }

    /// Decodes a structure that the kernel wrote.
    ///
    /// # Errors
    /// If the structure's length, its family or the length of its hardware address is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::from_bytes_of(bytes, AF_ENET)
    }

    /// Decodes like [`Address::from_bytes`], but for a module loaded with another family number.
    ///
    /// # Errors
    /// As [`Address::from_bytes`].
    pub fn from_bytes_of(bytes: &[u8], family: i32) -> Result<Self> {
        ensure!(
            bytes.len() == SOCKADDR_LEN,
            "an address of {} bytes came back, not {SOCKADDR_LEN}",
            bytes.len()
        );
        let found = u16::from_ne_bytes([bytes[0], bytes[1]]);
        ensure!(i32::from(found) == family, "address of family {found}");
        ensure!(bytes[8] == 6, "sen_addrlen {} on output", bytes[8]);
        ensure!(bytes[15] == 0, "the last byte is {:#x}", bytes[15]);
        let mut mac = [0; 6];
        mac.copy_from_slice(&bytes[9..15]);
        Ok(Self {
            port: u16::from_be_bytes([bytes[2], bytes[3]]),
            ifindex: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            mac,
        })
    }

    /// Returns this address with `port` in place of its port.
    pub fn port(self, port: u16) -> Self {
        Self { port, ..self }
    }
}

/// Encodes a `struct sockaddr_in`.
pub fn internet(address: [u8; 4], port: u16) -> Vec<u8> {
    let mut name = vec![0; 16];
    name[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    name[2..4].copy_from_slice(&port.to_be_bytes());
    name[4..8].copy_from_slice(&address);
    name
}

/// Encodes a `struct sockaddr_in6`.
pub fn internet6(address: [u8; 16], port: u16) -> Vec<u8> {
    let mut name = vec![0; 28];
    name[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
    name[2..4].copy_from_slice(&port.to_be_bytes());
    name[8..24].copy_from_slice(&address);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_the_protocols() {
        let address = Address {
            port: 0x0af5,
            ifindex: 7,
            mac: [2, 0, 0, 0, 0, 1],
        };
        let bytes = address.to_bytes();
        assert_eq!(&bytes[2..4], &[0x0a, 0xf5]);
        assert_eq!(&bytes[8..], &[6, 2, 0, 0, 0, 0, 1, 0]);
        assert_eq!(Address::from_bytes(&bytes).unwrap(), address);
    }

    #[test]
    fn a_short_address_is_refused() {
        assert!(Address::from_bytes(&Address::default().to_bytes()[..15]).is_err());
    }
}
