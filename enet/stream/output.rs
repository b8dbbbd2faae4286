// SPDX-License-Identifier: GPL-2.0

//! Sends the ESP packets that the engine chooses.

use super::{
    ack_queue::Due,
    send_queue::Sending,
    sock::{parts, serve_by_timer, Connection, Esp, LockedEsp},
};
use crate::net::errno::prelude::*;
use crate::{
    address::Address,
    esp::{
        self, flags, records::Kind, Header, Options, Transmit, CHECKSUM_LEN, HEADER_LEN,
        MAPPED_LEN, NONCE_LEN, OPTIONS_LEN, RECORDS_LEN,
    },
    events,
    net::{
        allocation::Context,
        device::{Device, Mac},
        namespace::PerNet,
        rcu,
        skb::Skb,
        sock::Sock,
        softirq,
    },
    parameters,
    pernet::NetState,
    statistics::Statistic,
};

/// Sends everything that the engine wants sent at the time `now`, and arms the timer for its next
/// deadline.
#[inline]
pub(super) fn transmit(esp: &mut LockedEsp<'_>, now: u64) -> Due {
    let Some((sock, connection)) = parts(esp) else {
        return Due::NOT;
    };
    let due = connection
        .queue_entry
        .update(sock, &mut connection.engine, now);
    if let Some(first) = poll(connection, now) {
        if connection.engine.unsent() == 0 {
            send_from(sock, connection, first, now);
        } else {
            // Some devices take packets one by one. With bottom halves enabled, the receiver on
            // such a device would run after each packet. GRO could then not merge the packets, and
            // each would cost a softirq.
            softirq::disabled(|_| send_from(sock, connection, first, now));
        }
    }
    if sock.shared().unread.note_awaited(&connection.engine) {
        ask_for_room(sock);
    }
    connection.arm(sock, now);
    due
}

/// Transmits like [`transmit`]. If a turn is due, the timer of the ACK queue serves the queue.
#[inline]
pub(super) fn push(esp: &mut LockedEsp<'_>, now: u64) {
    let due = transmit(esp, now);
    serve_by_timer(esp, due, now);
}

/// Wakes the reader, even below `SO_RCVLOWAT`, because no more data come until the reader makes
/// room.
#[cold]
#[inline(never)]
fn ask_for_room(sock: &Sock<Esp>) {
    if sock.low_water(false, usize::MAX) != 1 && sock.shared().unread.is_readable(sock) {
        sock.data_ready();
    }
}

/// Returns the packet that the engine wants sent next, if there is one.
#[inline]
fn poll(connection: &mut Connection, now: u64) -> Option<Transmit> {
    let Connection {
        engine, sending, ..
    } = connection;
    // This check avoids the call in the common case.
    if engine.has_nothing_to_send() {
        return None;
    }
    engine.poll_transmit(now, sending)
}

/// Sends `first`, which [`poll`] has returned, and then all the engine's further packets.
#[inline]
fn send_from(sock: &Sock<Esp>, connection: &mut Connection, first: Transmit, now: u64) {
    let section = rcu::Read::enter();
    let peer = sock.shared().peer();
    let device = Device::find(sock.net(), peer.ifindex, &section);
    let mut next = Some(first);
    let mut sent_packets = 0_u32;
    while let Some(packet) = next {
        let sent = match device {
            Some(device) => send(sock, connection, device, &peer, packet),
            None => Err(ENODEV),
        };
        let count = u32::from(packet.count());
        sent_packets = sent_packets.wrapping_add(count);
        if sent.is_err() {
            // The packet is treated as lost on the wire, so the protocol retransmits it.
            let stats = &mut connection.engine.stats;
            stats.tx_err = stats.tx_err.wrapping_add(count);
            let statistics = connection.queue_entry.statistics();
            statistics.add(Statistic::EspOutErrors, count);
        }
        next = poll(connection, now);
    }
    let statistics = connection.queue_entry.statistics();
    statistics.add(Statistic::EspOutPkts, sent_packets);
}

/// Sends one transmission, which [`poll`] has returned.
#[inline(always)]
fn send(
    sock: &Sock<Esp>,
    connection: &mut Connection,
    device: &Device,
    peer: &Address,
    packet: Transmit,
) -> Result {
    let promise = &sock.shared().promise;
    match packet {
        Transmit::Control { header, resend } => {
            promise.set_granted(connection.engine.granted());
            let packet = connection.sums(header);
            let sending = &connection.sending;
            control(
                sock,
                sending,
                device,
                peer,
                packet,
                Some(connection),
                resend,
            )
        }
        Transmit::Request(header) => {
            promise.set_granted(connection.engine.granted());
            request(sock, connection, device, peer, header)
        }
        Transmit::Probe(header) => {
            let packet = connection.sums(header);
            probe(sock, &connection.sending, device, peer, packet)
        }
        Transmit::Data {
            header,
            count,
            resend,
        } => {
            connection.sending.note_device(device);
            let mask = connection.mask(&header);
            let skb = connection.sending.packets(header, count, mask)?;
            let resent = if resend { count } else { 0 };
            data(sock, connection, device, peer, skb, resent)
        }
    }
}

/// Sends packets of the write queue, of which `resent` are retransmissions.
#[inline]
fn data(
    sock: &Sock<Esp>,
    connection: &mut Connection,
    device: &Device,
    peer: &Address,
    mut skb: Skb,
    resent: u16,
) -> Result {
    if resent > 0 {
        events::esp_sent(sock, &skb, resent);
    }
    classify(sock, &connection.sending, &mut skb);
    device.send(skb, parameters::esp_type(), peer.mac)
}

/// Sets the attributes of a packet that queueing disciplines and devices use.
#[inline]
fn classify(sock: &Sock<Esp>, sending: &Sending, skb: &mut Skb) {
    if sock.owns_frames() || sending.is_stamped() {
        skb.set_owner(sock);
    }
    skb.set_class(sock, sending.processor());
}

/// Sends a packet without payload. Only a SYN or SYN|ACK has bytes after the header: its options.
fn control(
    sock: &Sock<Esp>,
    sending: &Sending,
    device: &Device,
    peer: &Address,
    (header, mask): (Header, u32),
    connection: Option<&Connection>,
    resend: bool,
) -> Result {
    let mut skb = if header.has(flags::SYN) {
        let connection = connection.ok_or(EINVAL)?;
        let mapped = connection.mapped.as_ref();
        let engine = &connection.engine;
        let (records, nonce) = (engine.records(), engine.nonce());
        let crowded = connection.queue_entry.is_crowded();
        opening(
            device,
            header,
            Options::emit_advertised(esp::mss(device.mtu()), engine.advertised()),
            mapped,
            records,
            nonce,
            crowded,
        )?
    } else {
        empty(device, &header, mask)?
    };
    if resend || header.has(flags::RRQ | flags::RST) {
        events::esp_sent(sock, &skb, resend.into());
    }
    classify(sock, sending, &mut skb);
    device.send(skb, parameters::esp_type(), peer.mac)
}

/// Sends a retransmission request that names the missing packets.
#[cold]
#[inline(never)]
fn request(
    sock: &Sock<Esp>,
    connection: &Connection,
    device: &Device,
    peer: &Address,
    header: Header,
) -> Result {
    let (header, mask) = connection.sums(header);
    let named = connection.engine.named();
    let named = named.get(..header.len.into()).unwrap_or(&named);
    let mut skb = packet(device, &header, named, mask)?;
    events::esp_sent(sock, &skb, 0);
    classify(sock, &connection.sending, &mut skb);
    device.send(skb, parameters::esp_type(), peer.mac)
}

/// Sends a probe.
#[cold]
#[inline(never)]
fn probe(
    sock: &Sock<Esp>,
    sending: &Sending,
    device: &Device,
    peer: &Address,
    (header, mask): (Header, u32),
) -> Result {
    let mut skb = empty(device, &header, mask)?;
    events::esp_probe_sent(sock, &skb);
    classify(sock, sending, &mut skb);
    device.send(skb, parameters::esp_type(), peer.mac)
}

fn empty(device: &Device, header: &Header, mask: u32) -> Result<Skb> {
    packet(device, header, &[], mask)
}

/// Builds a packet from `header` and `payload`. If the header announces a checksum, appends a
/// checksum with `mask`.
fn packet(device: &Device, header: &Header, payload: &[u8], mask: u32) -> Result<Skb> {
    const AROUND: usize = HEADER_LEN + CHECKSUM_LEN;
    let size = payload.len().saturating_add(AROUND);
    let mut skb = Skb::alloc_single(device.headroom(), size, Context::Softirq).ok_or(ENOBUFS)?;
    let whole = skb.put(&header.emit())
        && skb.put(payload)
        && (!header.has_checksum() || skb.append_sum(mask));
    whole.then_some(skb).ok_or(ENOBUFS)
}

/// Builds a SYN or SYN|ACK with this host's `options`. Behind them come the ends of a mapped
/// connection, the length of the largest record, and a nonce.
/// `crowded` is set if many connections send to this host. A mapped connection has no option for
/// records, so all options fit into [`OPTIONS_MAX`](esp::OPTIONS_MAX), and the receiver reads them
/// all.
#[cold]
fn opening(
    device: &Device,
    header: Header,
    mut options: [u8; OPTIONS_LEN],
    mapped: Option<&esp::Mapped>,
    records: Option<Kind>,
    nonce: Option<u32>,
    crowded: bool,
) -> Result<Skb> {
    const MOST: usize = OPTIONS_LEN + MAPPED_LEN + RECORDS_LEN + NONCE_LEN;
    if crowded {
        options = Options::crowded(options);
    }
    let mapped = mapped.map(esp::Mapped::emit);
    let mapped: &[u8] = mapped.as_ref().map_or(&[], |option| option);
    let records = records.map(Options::emit_records);
    let records: &[u8] = records.as_ref().map_or(&[], |option| option);
    let nonce = nonce.map(Options::emit_nonce);
    let nonce: &[u8] = nonce.as_ref().map_or(&[], |option| option);
    let mut bytes = [0; MOST];
    let mut len = 0_usize;
    let all = options.iter().chain(mapped).chain(records).chain(nonce);
    for (to, byte) in bytes.iter_mut().zip(all) {
        *to = *byte;
        len = len.saturating_add(1);
    }
    let header = Header {
        len: len as u16,
        ..header
    };
    // The checksum of a packet with SYN has no mask.
    packet(device, &header, bytes.get(..len).unwrap_or(&bytes), 0)
}

/// Sends a packet without payload to the socket's peer at once, independent of [`poll`].
pub(super) fn send_control(esp: &mut LockedEsp<'_>, header: Header) {
    let Some((sock, connection)) = parts(esp) else {
        return;
    };
    let peer = sock.shared().peer();
    let packet = connection.sums(header);
    let sending = &connection.sending;
    let section = rcu::Read::enter();
    let sent = Device::find(sock.net(), peer.ifindex, &section)
        .ok_or(ENODEV)
        .and_then(|device| control(sock, sending, device, &peer, packet, None, false));
    let stats = &mut connection.engine.stats;
    let statistics = connection.queue_entry.statistics();
    match sent {
        Ok(()) => {
            stats.pkt_tx = stats.pkt_tx.wrapping_add(1);
            statistics.count(Statistic::EspOutPkts);
        }
        Err(_) => {
            stats.tx_err = stats.tx_err.wrapping_add(1);
            statistics.count(Statistic::EspOutErrors);
        }
    }
}

/// Tells the peer that the connection has ended. The peer knows the device by the address `from`.
/// `mask` is the mask of the packet's checksum.
pub(super) fn send_farewell(
    sock: &Sock<Esp>,
    device: &Device,
    from: Mac,
    header: &Header,
    mask: u32,
) {
    let to = sock.shared().peer().mac;
    if to == from {
        // Both ends are on this device, so the other end notices the change itself.
        return;
    }
    if let Ok(skb) = empty(device, header, mask) {
        events::esp_sent(sock, &skb, 0);
        // The error is ignored, because the peer times out if this packet is lost.
        let _ = device.send_as(skb, parameters::esp_type(), Some(from), to);
    }
}

/// Answers a SYN with a cookie, and keeps no state.
pub(super) fn send_cookie(device: &Device, to: Mac, answer: Header, records: Option<Kind>) {
    // A cookie does not preserve the SYN's option for selective requests, so the answer does not
    // offer them.
    let config = esp::Config {
        selective: esp::Selective::Never,
        ..NetState::of(device.net()).sysctl.config()
    };
    let options = Options::emit(esp::mss(device.mtu()), &config);
    if let Ok(skb) = opening(device, answer, options, None, records, None, true) {
        // The error is ignored, because the client retransmits the SYN if the answer is lost.
        let _ = device.send(skb, parameters::esp_type(), to);
    }
}

/// Answers a packet that no socket receives. `mask` is the mask of both checksums, the packet's and
/// the answer's.
pub(super) fn send_reset(device: &Device, to: Mac, header: &Header, mask: u32) {
    if let Some(reset) = esp::reset_for(header) {
        let peer = Address {
            port: reset.dst,
            ifindex: device.index(),
            mac: to,
        };
        events::esp_reset_sent(device.net(), &peer, &reset);
        if let Ok(skb) = empty(device, &reset, mask) {
            // The error is ignored, because the peer's next packet causes another reset if this one
            // is lost.
            let _ = device.send(skb, parameters::esp_type(), to);
        }
    }
}
