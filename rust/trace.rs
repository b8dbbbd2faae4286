// SPDX-License-Identifier: GPL-2.0

//! Trace events, and the reasons for dropping packets.
//!
//! The kernel crate's `declare_trace!` only finds the tracepoints of the kernel's own Rust code. So
//! each event is reached through a C function, which tests the event's static branch. None of the
//! events is on a packet's fast path.
//!
//! C headers: `rust/enet_trace.h`,
//! [`include/net/dropreason-core.h`](srctree/include/net/dropreason-core.h)

use super::{
    bindings,
    namespace::Net,
    sock::{Protocol, Sock},
};
use core::ptr;

/// A packet as events report it. `sport` is the local port, and `dport` and `peer` are the remote
/// end. Numbers are in host byte order.
pub(crate) use bindings::enet_trace_packet as Packet;

/// Why a received packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum DropReason {
    /// The packet was sent to a group address or another host, or from a group address, or has no
    /// Ethernet header.
    NotOurs = bindings::enet_drop_reason_ENET_DROP_NOT_OURS,
    /// The packet is too short for the header, or for the length stated there.
    Malformed = bindings::enet_drop_reason_ENET_DROP_MALFORMED,
    /// The packet is for a port without a socket.
    NoSocket = bindings::enet_drop_reason_ENET_DROP_NO_SOCKET,
    /// There is no memory for the packet.
    NoMemory = bindings::enet_drop_reason_ENET_DROP_NO_MEMORY,
    /// The socket's filter rejected the packet.
    Filter = bindings::enet_drop_reason_ENET_DROP_FILTER,
    /// The receive buffer is full.
    ReceiveBuffer = bindings::enet_drop_reason_ENET_DROP_RECEIVE_BUFFER,
    /// The backlog of the task that owns the socket is full.
    Backlog = bindings::enet_drop_reason_ENET_DROP_BACKLOG,
    /// Too many connections wait to be accepted.
    ListenQueue = bindings::enet_drop_reason_ENET_DROP_LISTEN_QUEUE,
    /// The packet has contradictory flags.
    BadFlags = bindings::enet_drop_reason_ENET_DROP_BAD_FLAGS,
    /// The packet was received before.
    Duplicate = bindings::enet_drop_reason_ENET_DROP_DUPLICATE,
    /// Earlier packets are missing.
    OutOfSequence = bindings::enet_drop_reason_ENET_DROP_OUT_OF_SEQUENCE,
    /// The packet is beyond every advertised window.
    BeyondWindow = bindings::enet_drop_reason_ENET_DROP_BEYOND_WINDOW,
    /// The packet acknowledges packets that were never sent.
    BadAck = bindings::enet_drop_reason_ENET_DROP_BAD_ACK,
    /// The packet's checksum is wrong, or missing.
    Checksum = bindings::enet_drop_reason_ENET_DROP_CHECKSUM,
    /// The packet does not fit the current state of the connection.
    BadState = bindings::enet_drop_reason_ENET_DROP_BAD_STATE,
}

impl DropReason {
    /// Returns the networking core's closest reason. For sequence numbers and flags, the core only
    /// has TCP's reasons.
    pub(super) fn of_skb(self) -> bindings::skb_drop_reason {
        match self {
            DropReason::NotOurs => bindings::skb_drop_reason_SKB_DROP_REASON_OTHERHOST,
            DropReason::Malformed => bindings::skb_drop_reason_SKB_DROP_REASON_PKT_TOO_SMALL,
            DropReason::NoSocket => bindings::skb_drop_reason_SKB_DROP_REASON_NO_SOCKET,
            DropReason::NoMemory => bindings::skb_drop_reason_SKB_DROP_REASON_NOMEM,
            DropReason::Filter => bindings::skb_drop_reason_SKB_DROP_REASON_SOCKET_FILTER,
            DropReason::ReceiveBuffer => bindings::skb_drop_reason_SKB_DROP_REASON_SOCKET_RCVBUFF,
            DropReason::Backlog => bindings::skb_drop_reason_SKB_DROP_REASON_SOCKET_BACKLOG,
            DropReason::ListenQueue => {
                bindings::skb_drop_reason_SKB_DROP_REASON_TCP_LISTEN_OVERFLOW
            }
            DropReason::Duplicate => bindings::skb_drop_reason_SKB_DROP_REASON_TCP_OLD_SEQUENCE,
            DropReason::OutOfSequence => {
                bindings::skb_drop_reason_SKB_DROP_REASON_TCP_INVALID_SEQUENCE
            }
            DropReason::BeyondWindow => bindings::skb_drop_reason_SKB_DROP_REASON_TCP_OVERWINDOW,
            DropReason::BadAck => {
                bindings::skb_drop_reason_SKB_DROP_REASON_TCP_INVALID_ACK_SEQUENCE
            }
            DropReason::Checksum => bindings::skb_drop_reason_SKB_DROP_REASON_TCP_CSUM,
            DropReason::BadFlags | DropReason::BadState => {
                bindings::skb_drop_reason_SKB_DROP_REASON_TCP_FLAGS
            }
        }
    }
}

fn raw<P: Protocol>(sock: Option<&Sock<P>>) -> *const bindings::sock {
    sock.map_or(ptr::null(), |sock| sock.as_ptr().cast_const())
}

macro_rules! packet_events {
    ($($(#[$doc:meta])* $name:ident => $event:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name<P: Protocol>(net: &Net, sock: Option<&Sock<P>>, packet: &Packet) {
            // SAFETY: The socket is null or valid, the namespace and the packet are valid, and the
            // event only reads them, during the call.
            unsafe { bindings::$event(raw(sock), net.as_ptr(), packet) };
        }
    )*};
}

packet_events! {
    /// A packet is retransmitted.
    esp_retransmit => trace_esp_retransmit;
    /// A retransmission request is sent.
    esp_send_request => trace_esp_send_request;
    /// A retransmission request was received.
    esp_receive_request => trace_esp_receive_request;
    /// A probe is sent.
    esp_send_probe => trace_esp_send_probe;
    /// A reset is sent.
    esp_send_reset => trace_esp_send_reset;
    /// A reset was received.
    esp_receive_reset => trace_esp_receive_reset;
}

/// A connection changes its state (`TCP_*`).
pub(crate) fn esp_set_state<P: Protocol>(sock: &Sock<P>, packet: &Packet, old: u8, new: u8) {
    // SAFETY: The socket, its namespace and the packet are valid, and the event only reads them.
    unsafe {
        bindings::trace_esp_set_state(
            sock.as_ptr(),
            sock.net().as_ptr(),
            packet,
            old.into(),
            new.into(),
        );
    }
}

/// A received ESP packet is dropped.
pub(crate) fn esp_drop<P: Protocol>(
    net: &Net,
    sock: Option<&Sock<P>>,
    packet: &Packet,
    reason: DropReason,
) {
    // SAFETY: The socket is null or valid, the namespace and the packet are valid, and the event
    // only reads them, during the call.
    unsafe { bindings::trace_esp_drop(raw(sock), net.as_ptr(), packet, reason as i32) };
}

/// A received EDP datagram is dropped.
pub(crate) fn edp_drop<P: Protocol>(
    net: &Net,
    sock: Option<&Sock<P>>,
    packet: &Packet,
    reason: DropReason,
) {
    // SAFETY: The socket is null or valid, the namespace and the packet are valid, and the event
    // only reads them, during the call.
    unsafe { bindings::trace_edp_drop(raw(sock), net.as_ptr(), packet, reason as i32) };
}
