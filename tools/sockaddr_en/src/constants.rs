// SPDX-License-Identifier: MIT OR Apache-2.0

//! The constants of PF_ENET, with the same values as in the kernel module and `include/af_enet.h`.

/// Address and protocol family that the module registers unless its parameter `family` sets
/// another. `linux/socket.h` calls this number `AF_MPLS`, and Linux registers no sockets for it.
pub const AF_ENET: u16 = 28;
/// Protocol family, the same number as [`AF_ENET`].
pub const PF_ENET: u16 = AF_ENET;

/// Level of `getsockopt` and `setsockopt` for EDP and ESP: "EP" in ASCII. The module also
/// accepts 285, the number in the first version of the header, which Linux has since given to
/// another protocol.
pub const SOL_EP: i32 = 0x4550;
/// Control message of level [`SOL_EP`] that `MSG_ERRQUEUE` returns: a `struct sock_extended_err`.
pub const EP_RECVERR: i32 = 3;

/// Protocol of a `SOCK_DGRAM` socket: Ethernet Datagram Protocol.
pub const EPPROTO_EDP: i32 = 0;
/// Protocol of a `SOCK_DGRAM` socket: EDP that sends without copying the user's data.
pub const EPPROTO_EZDP: i32 = 1;
/// Protocol of a `SOCK_STREAM` socket: Ethernet Streaming Protocol.
pub const EPPROTO_ESP: i32 = 0;

/// Protocol of a `SOCK_STREAM` socket of `AF_INET` or `AF_INET6` that the module serves. All its
/// calls act like the calls of a TCP socket.
pub const IPPROTO_ENET: i32 = 259;

/// Interface number that stands for every interface in `bind`.
pub const ENET_INTERFACE_ANY: u32 = 0;

/// Option of both protocols, `u32`, read and write: 1 if `MSG_ZEROCOPY` sends the user's pages
/// without a copy and reports when they are free again. The number is the same as the number of
/// `SO_ZEROCOPY`.
pub const EP_SO_ZEROCOPY: i32 = 60;
/// ESP option, `u32`, set once: the size of the ring in which a program receives without system
/// calls, in bytes.
pub const EP_SO_RECEIVE_RING: i32 = 61;
/// Option of an ESP socket with records, set once before it connects or listens: the descriptor
/// whose regions are the memory of the channel's puts, its own or another one.
pub const EP_SO_DOMAIN: i32 = 62;
/// `ioctl` of a channel that makes a region: three 64-bit numbers, the address, the length and, as
/// an answer, the key.
pub const EP_IOC_REGION: libc::c_ulong = 0x89E0;
/// `ioctl` of a channel that ends the region with the key in the third of three 64-bit numbers.
pub const EP_IOC_END_REGION: libc::c_ulong = 0x89E1;
/// Operation of a message that the peer's program receives.
pub const EP_SEND: u8 = 1;
/// Operation of a message whose bytes go to a region of the peer's.
pub const EP_PUT: u8 = 2;
/// Flag of a put: the peer's program receives the header once all bytes are in their place.
pub const EP_TELLS: u8 = 1;
/// EDP option, `u32`: the largest datagram in bytes.
pub const EDP_SO_MTU: i32 = 1;
/// EDP option, [`EdpStats`](crate::EdpStats): the socket's counters.
pub const EDP_SO_STATS: i32 = 2;
/// EDP option, `u32`, read and write: 1 if datagrams are sent with a checksum, otherwise 0.
pub const EDP_SO_CHECKSUM: i32 = 3;
/// ESP option, `u32`: the largest payload of a packet in bytes.
pub const ESP_SO_MTU: i32 = 1;
/// ESP option, [`EspStats`](crate::EspStats): the socket's counters.
pub const ESP_SO_STATS: i32 = 2;
/// ESP option, `u32`, read and write: the time in milliseconds after which the connection ends if
/// the peer owes an answer; 0 for the default, `/proc/sys/esp/user_timeout`.
pub const ESP_SO_USER_TIMEOUT: i32 = 3;
/// ESP option, `u32`, read and write: 1 if the packets of the next connection are to have a CRC32c,
/// otherwise 0.
pub const ESP_SO_CHECKSUM: i32 = 4;

/// First payload byte of a datagram to EDP port 0 that asks for an echo.
pub const EDP_ECHO_REQUEST: u8 = 1;
/// First payload byte of the answer to [`EDP_ECHO_REQUEST`].
pub const EDP_ECHO_REPLY: u8 = 2;
/// First payload byte of a datagram to EDP port 0 that asks for version, capabilities and limits.
pub const EDP_QUERY: u8 = 3;
/// First payload byte of the answer to [`EDP_QUERY`].
pub const EDP_ANSWER: u8 = 4;

/// Ethernet type of EDP (host order): IEEE local experimental type 1.
pub const ETH_P_EDP: u16 = 0x88B5;
/// Ethernet type of ESP (host order): IEEE local experimental type 2.
pub const ETH_P_ESP: u16 = 0x88B6;

/// Length of an Ethernet address in bytes.
pub const ETH_ALEN: usize = 6;
