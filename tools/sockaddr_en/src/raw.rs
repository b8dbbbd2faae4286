// SPDX-License-Identifier: MIT OR Apache-2.0

//! The structures that cross the system call boundary, laid out as in `include/af_enet.h`.

use crate::constants::ETH_ALEN;

/// `struct sockaddr_en`: the socket address of the family, 16 bytes.
///
/// [`Address`](crate::Address) is the type to work with; this one is for calling the C library.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SockaddrEn {
    /// Address family, host byte order.
    pub sen_family: u16,
    /// Port, network byte order.
    pub sen_port: u16,
    /// Interface number, host byte order; 0 means every interface in `bind`.
    pub sen_ifindex: u32,
    /// Bytes of `sen_addr` in use: 6. The kernel takes 0 as 6.
    pub sen_addrlen: u8,
    /// Ethernet address.
    pub sen_addr: [u8; ETH_ALEN],
    /// Zero.
    pub sen_zero: u8,
}

/// What an EDP socket counted since it was made (option `EDP_SO_STATS`). Counters wrap.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdpStats {
    /// Datagrams handed to the device.
    pub pkt_tx: u32,
    /// Datagrams the device or its queue refused.
    pub tx_err: u32,
    /// Datagrams received and queued for the program.
    pub pkt_rx: u32,
    /// Datagrams received and dropped.
    pub pkt_rx_drop: u32,
}

/// What an ESP socket counted since it was made (option `ESP_SO_STATS`). Counters wrap.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EspStats {
    /// Packets sent, in all.
    pub pkt_tx: u32,
    /// Of these, packets sent again.
    pub pkt_rtx: u32,
    /// Packets the device or its queue refused.
    pub tx_err: u32,
    /// Packets received.
    pub pkt_rx: u32,
    /// Packets received out of sequence.
    pub pkt_rx_oos: u32,
    /// Packets received and dropped.
    pub pkt_rx_drop: u32,
    /// Packets found missing in the sequence.
    pub seq_lost: u32,
    /// Requests for retransmission sent.
    pub arq_tx: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{align_of, offset_of, size_of};

    #[test]
    fn layout_is_the_kernels() {
        assert_eq!(size_of::<SockaddrEn>(), 16);
        assert!(align_of::<SockaddrEn>() <= 4);
        assert_eq!(offset_of!(SockaddrEn, sen_family), 0);
        assert_eq!(offset_of!(SockaddrEn, sen_port), 2);
        assert_eq!(offset_of!(SockaddrEn, sen_ifindex), 4);
        assert_eq!(offset_of!(SockaddrEn, sen_addrlen), 8);
        assert_eq!(offset_of!(SockaddrEn, sen_addr), 9);
        assert_eq!(offset_of!(SockaddrEn, sen_zero), 15);
        assert_eq!(size_of::<EdpStats>(), 16);
        assert_eq!(size_of::<EspStats>(), 32);
    }
}
