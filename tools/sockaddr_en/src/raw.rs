// SPDX-License-Identifier: MIT OR Apache-2.0

//! The C structures that system calls read and fill in, laid out as in `include/af_enet.h`.

use crate::constants::ETH_ALEN;

/// `struct sockaddr_en`: the socket address of the family, 16 bytes.
///
/// Programs use [`Address`](crate::Address); this type is for calls of the C library.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SockaddrEn {
    /// Address family, host byte order.
    pub sen_family: u16,
    /// Port, network byte order.
    pub sen_port: u16,
    /// Interface number, host byte order; 0 stands for every interface in `bind`.
    pub sen_ifindex: u32,
    /// Bytes of `sen_addr` in use: 6. The kernel takes 0 as 6.
    pub sen_addrlen: u8,
    /// Ethernet address.
    pub sen_addr: [u8; ETH_ALEN],
    /// Padding, which is zero.
    pub sen_zero: u8,
}

/// The counters of an EDP socket since its creation (option `EDP_SO_STATS`). They wrap.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdpStats {
    /// Number of datagrams handed to the device.
    pub pkt_tx: u32,
    /// Number of datagrams refused by the device or its queue.
    pub tx_err: u32,
    /// Number of datagrams received and queued for the program.
    pub pkt_rx: u32,
    /// Number of datagrams received and dropped.
    pub pkt_rx_drop: u32,
}

/// The counters of an ESP socket since its creation (option `ESP_SO_STATS`). They wrap.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EspStats {
    /// Packets sent, including retransmissions.
    pub pkt_tx: u32,
    /// Packets retransmitted.
    pub pkt_rtx: u32,
    /// Packets refused by the device or its queue.
    pub tx_err: u32,
    /// Packets received.
    pub pkt_rx: u32,
    /// Packets received out of order.
    pub pkt_rx_oos: u32,
    /// Packets received and dropped.
    pub pkt_rx_drop: u32,
    /// Packets found missing in the sequence.
    pub seq_lost: u32,
    /// Number of requests for retransmission that were sent.
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
