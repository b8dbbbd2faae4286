// SPDX-License-Identifier: GPL-2.0

//! Events off the fast path. Each event increments a counter and emits a trace event of the system
//! `enet`.

use crate::{
    address::Address,
    datagram::sock::Edp,
    edp,
    esp::{self, flags},
    net::{
        device::Device,
        namespace::{Net, PerNet},
        skb::Buffer,
        sock::Sock,
        trace::{self, DropReason, Packet},
    },
    pernet::NetState,
    skb_cb::Origin,
    statistics::{Statistic, Statistics},
    stream::sock::Esp,
};

/// Returns the counters of `net`.
fn counters(net: &Net) -> &Statistics {
    &NetState::of(net).statistics
}

/// The header that trace events show for a frame that is too short to have one.
const NO_HEADER: esp::Header = esp::Header {
    src: 0,
    dst: 0,
    len: 0,
    seq: esp::Seq(0),
    ack: esp::Seq(0),
    flags: 0,
};

/// Returns the address that a frame came from, with 0 in place of the port.
fn origin(skb: &Buffer, device: &Device) -> Address {
    Address {
        port: 0,
        ifindex: device.index(),
        mac: skb
            .source()
            .filter(|_| device.is_ethernet())
            .unwrap_or_default(),
    }
}

fn ends(local_port: u16, peer: &Address) -> Packet {
    Packet {
        ifindex: peer.ifindex,
        sport: local_port,
        dport: peer.port,
        peer: peer.mac.0,
        seq: 0,
        ack: 0,
        len: 0,
        flags: 0,
    }
}

/// Returns the trace record of a packet with `header` between `local_port` and `peer`.
fn esp_packet(local_port: u16, peer: &Address, header: &esp::Header) -> Packet {
    Packet {
        seq: header.seq.0,
        ack: header.ack.0,
        len: header.payload(),
        flags: header.flags,
        ..ends(local_port, peer)
    }
}

/// Reports that a connection or a listener has left the state `old`.
#[cold]
#[inline(never)]
pub(crate) fn esp_state(sock: &Sock<Esp>, old: u8) {
    let shared = sock.shared();
    let mut packet = ends(shared.binding.port(), &shared.peer());
    if packet.ifindex == 0 {
        packet.ifindex = shared.binding.ifindex();
    }
    trace::esp_set_state(sock, &packet, old, sock.tcp_state());
}

/// Returns the header and the trace record of `skb`, a packet between the socket and its peer. The
/// header is parsed again, so that the fast path need not keep it.
fn esp_of_socket(sock: &Sock<Esp>, skb: &Buffer) -> (esp::Header, Packet) {
    let shared = sock.shared();
    let header = esp::Header::parse(skb.head()).unwrap_or(NO_HEADER);
    let packet = esp_packet(shared.binding.port(), &shared.peer(), &header);
    (header, packet)
}

/// Reports that a connection retransmits `resent` packets, or sends a retransmission request or a
/// reset.
#[cold]
#[inline(never)]
pub(crate) fn esp_sent(sock: &Sock<Esp>, skb: &Buffer, resent: u16) {
    let counters = counters(sock.net());
    let (header, packet) = esp_of_socket(sock, skb);
    if resent > 0 {
        counters.add(Statistic::EspRetransPkts, resent.into());
        trace::esp_retransmit(sock.net(), Some(sock), &packet);
    }
    if header.is_request() {
        counters.count(Statistic::EspOutRequests);
        trace::esp_send_request(sock.net(), Some(sock), &packet);
    }
    if header.has(flags::RST) {
        counters.count(Statistic::EspOutResets);
        trace::esp_send_reset(sock.net(), Some(sock), &packet);
    }
}

/// Reports that a connection sends a probe.
pub(crate) fn esp_probe_sent(sock: &Sock<Esp>, skb: &Buffer) {
    counters(sock.net()).count(Statistic::EspOutProbes);
    let (_, packet) = esp_of_socket(sock, skb);
    trace::esp_send_probe(sock.net(), Some(sock), &packet);
}

/// Reports that a reset was sent in answer to a packet for which there is no socket.
#[cold]
pub(crate) fn esp_reset_sent(net: &Net, peer: &Address, header: &esp::Header) {
    counters(net).count(Statistic::EspOutResets);
    trace::esp_send_reset::<Esp>(net, None, &esp_packet(header.src, peer, header));
}

/// Reports a packet received for a connection, if the packet is a retransmission request or a
/// reset.
#[inline]
pub(crate) fn esp_received(sock: &Sock<Esp>, skb: &Buffer) {
    let header = esp::Header::parse(skb.head()).unwrap_or(NO_HEADER);
    if !header.has(flags::RRQ | flags::RST) {
        return;
    }
    let counters = counters(sock.net());
    let (header, packet) = esp_of_socket(sock, skb);
    if header.is_request() {
        counters.count(Statistic::EspInRequests);
        trace::esp_receive_request(sock.net(), Some(sock), &packet);
    }
    if header.has(flags::RST) {
        counters.count(Statistic::EspInResets);
        trace::esp_receive_reset(sock.net(), Some(sock), &packet);
    }
}

/// Converts the engine's reason for a drop to the reason that trace events show.
impl From<esp::DropReason> for DropReason {
    fn from(reason: esp::DropReason) -> Self {
        match reason {
            esp::DropReason::Malformed => DropReason::BadFlags,
            esp::DropReason::Duplicate => DropReason::Duplicate,
            esp::DropReason::OutOfSequence => DropReason::OutOfSequence,
            esp::DropReason::BeyondWindow => DropReason::BeyondWindow,
            esp::DropReason::NoRoom => DropReason::ReceiveBuffer,
            esp::DropReason::BadAck => DropReason::BadAck,
            esp::DropReason::BadState => DropReason::BadState,
        }
    }
}

/// Reports a packet that is dropped because `sock` does not accept it. The packet's [`Origin`] is
/// stored in `skb`.
#[cold]
#[inline(never)]
pub(crate) fn esp_drop(sock: &Sock<Esp>, skb: &Buffer, reason: DropReason) {
    counters(sock.net()).count_esp_drop(reason);
    let header = esp::Header::parse(skb.head()).unwrap_or(NO_HEADER);
    let Origin(peer) = skb.note();
    let packet = esp_packet(header.dst, &peer, &header);
    trace::esp_drop(sock.net(), Some(sock), &packet, reason);
}

/// Reports a frame of ESP's Ethernet type that is dropped before its header is parsed.
#[cold]
#[inline(never)]
pub(crate) fn esp_frame_drop(skb: &Buffer, device: &Device, reason: DropReason) {
    counters(device.net()).count_esp_drop(reason);
    let header = esp::Header::parse(skb.head()).unwrap_or(NO_HEADER);
    let peer = Address {
        port: header.src,
        ..origin(skb, device)
    };
    let packet = esp_packet(header.dst, &peer, &header);
    trace::esp_drop::<Esp>(device.net(), None, &packet, reason);
}

/// Reports a dropped datagram. `header` is the datagram's header, if it is complete.
#[cold]
#[inline(never)]
pub(crate) fn edp_drop(
    skb: &Buffer,
    device: &Device,
    sock: Option<&Sock<Edp>>,
    header: Option<&edp::wire::Header>,
    reason: DropReason,
) {
    counters(device.net()).count_edp_drop(reason);
    let mut peer = origin(skb, device);
    let packet = match header {
        Some(header) => {
            peer.port = header.src;
            Packet {
                len: header.len,
                ..ends(header.dst, &peer)
            }
        }
        None => ends(0, &peer),
    };
    trace::edp_drop(device.net(), sock, &packet, reason);
}
