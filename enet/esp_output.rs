// SPDX-License-Identifier: GPL-2.0

//! ESP packets that leave.

use crate::net::errno::prelude::*;
use crate::{
    address::Address,
    esp::{self, flags, Header, Transmit, HEADER_LEN},
    esp_connection::{readable, Stream, FALL_ASLEEP, MAKE_ROOM},
    esp_socket::Esp,
    esp_turns, events,
    net::{
        device::{Device, Mac},
        rcu,
        skb::{Context, Processor, Skb},
        sock::Sock,
    },
    parameters,
};
use core::sync::atomic::Ordering::Relaxed;

/// Sends everything that the engine wants sent at `now`, and arms the timer for what it waits for.
#[inline]
pub(crate) fn transmit(sock: &Sock<Esp>, stream: &mut Stream, now: u64) {
    esp_turns::update(sock, stream, now);
    if let Some(first) = poll(sock, stream, now) {
        send_from(sock, stream, first, now);
    }
    let connection = &stream.connection;
    let mut awaited = 0;
    if connection.waits_for_data() {
        awaited |= FALL_ASLEEP;
    }
    if connection.waits_for_room() {
        awaited |= MAKE_ROOM;
    }
    let known = &sock.shared().awaited;
    let new = awaited & !known.load(Relaxed);
    known.store(awaited, Relaxed);
    if new & MAKE_ROOM != 0 {
        ask_for_room(sock);
    }
    arm(sock, stream);
}

/// No more comes until the reader makes room: what is there is for it, be it less than
/// `SO_RCVLOWAT`.
#[cold]
#[inline(never)]
fn ask_for_room(sock: &Sock<Esp>) {
    if sock.low_water(false, usize::MAX) != 1 && readable(sock) {
        sock.data_ready();
    }
}

/// What the engine wants sent next, and whether it leaves for another time.
#[inline]
fn poll(sock: &Sock<Esp>, stream: &mut Stream, now: u64) -> Option<(Transmit, bool)> {
    let Stream {
        connection, cursor, ..
    } = stream;
    let queue = sock.write_queue();
    // The engine counts what it sends again.
    let repeats = connection.stats.pkt_rtx;
    let kept = |seq: esp::Seq| queue.seek(cursor, seq.0).map_or(0, |skb| skb.note().flags);
    let next = connection.poll_transmit(now, kept)?;
    Some((next, connection.stats.pkt_rtx != repeats))
}

/// Sends what [`poll`] gave, and on until the engine wants nothing more.
#[inline]
fn send_from(sock: &Sock<Esp>, stream: &mut Stream, first: (Transmit, bool), now: u64) {
    let section = rcu::Read::enter();
    let peer = sock.shared().peer();
    let device = Device::find(sock.net(), peer.ifindex, &section);
    let mut next = Some(first);
    while let Some((packet, again)) = next {
        let sent = match (packet, device) {
            (_, None) => Err(ENODEV),
            (Transmit::Control(header), Some(device)) => {
                control(sock, stream.processor, device, &peer, header, again)
            }
            (Transmit::Data(header), Some(device)) => {
                stream.headroom = device.headroom();
                data(sock, stream, device, &peer, header, again)
            }
        };
        if sent.is_err() {
            // As good as lost on the wire: the protocol sends it again.
            stream.connection.stats.tx_err = stream.connection.stats.tx_err.wrapping_add(1);
        }
        next = poll(sock, stream, now);
    }
}

/// Arms the timer if the engine needs it earlier than it is armed. A deadline that has moved away
/// is met early and found to be nothing: cheaper than moving the timer with every packet.
#[inline]
fn arm(sock: &Sock<Esp>, stream: &mut Stream) {
    let deadline = match stream.connection.deadline() {
        Some(deadline) => deadline.min(stream.corked),
        None => return,
    };
    if deadline < stream.armed {
        stream.armed = deadline;
        sock.arm_timer(deadline);
    }
}

/// Sends a packet of the write queue, which keeps its payload for another time.
#[inline]
fn data(
    sock: &Sock<Esp>,
    stream: &mut Stream,
    device: &Device,
    peer: &Address,
    mut header: Header,
    again: bool,
) -> Result {
    let queue = sock.write_queue();
    let packet = queue.seek(&mut stream.cursor, header.seq.0).ok_or(ENOENT)?;
    header.len = packet.len() as u16;
    queue.with(packet, |skb| {
        let mut note = skb.note();
        note.flags = header.flags;
        skb.set_note(note);
    });
    // While an earlier transmission is still with a device or a receiver on this host, the room
    // for headers is in use and must not be written.
    let copy = if packet.is_cloned() {
        packet.copy(Context::Softirq)
    } else {
        packet.try_clone(Context::Softirq)
    };
    let mut skb = copy.ok_or(ENOBUFS)?;
    if !skb.push(&header.emit()) {
        return Err(ENOBUFS);
    }
    if again {
        events::esp_sent(sock, &skb, again);
    }
    classify(sock, stream.processor, &mut skb);
    device.send(skb, parameters::esp_type(), peer.mac)
}

/// Gives a packet what queueing disciplines and devices go by.
#[inline]
fn classify(sock: &Sock<Esp>, sender: Processor, skb: &mut Skb) {
    skb.set_class(sock, sender);
    if sock.owns_frames() {
        skb.set_owner(sock);
    }
}

/// Sends a packet without payload.
fn control(
    sock: &Sock<Esp>,
    sender: Processor,
    device: &Device,
    peer: &Address,
    header: Header,
    again: bool,
) -> Result {
    let mut skb = empty(device, &header)?;
    if again || header.has(flags::RRQ | flags::RST) {
        events::esp_sent(sock, &skb, again);
    }
    classify(sock, sender, &mut skb);
    device.send(skb, parameters::esp_type(), peer.mac)
}

fn empty(device: &Device, header: &Header) -> Result<Skb> {
    let mut skb = Skb::alloc(device.headroom(), HEADER_LEN, Context::Softirq).ok_or(ENOBUFS)?;
    if !skb.put(&header.emit()) {
        return Err(ENOBUFS);
    }
    Ok(skb)
}

/// Sends a packet without payload to the socket's peer, outside the engine's order.
pub(crate) fn send_control(sock: &Sock<Esp>, stream: &mut Stream, header: Header) {
    let peer = sock.shared().peer();
    let section = rcu::Read::enter();
    let sent = Device::find(sock.net(), peer.ifindex, &section)
        .ok_or(ENODEV)
        .and_then(|device| control(sock, stream.processor, device, &peer, header, false));
    let stats = &mut stream.connection.stats;
    match sent {
        Ok(()) => stats.pkt_tx = stats.pkt_tx.wrapping_add(1),
        Err(_) => stats.tx_err = stats.tx_err.wrapping_add(1),
    }
}

/// Tells the peer that the connection has ended, from the address `from` that it knows the device
/// by.
pub(crate) fn send_farewell(sock: &Sock<Esp>, device: &Device, from: Mac, header: &Header) {
    let to = sock.shared().peer().mac;
    if to == from {
        // The other end is on this device and ends as this one does.
        return;
    }
    if let Ok(skb) = empty(device, header) {
        events::esp_sent(sock, &skb, false);
        // A peer that does not hear of it finds out by itself.
        let _ = device.send_as(skb, parameters::esp_type(), Some(from), to);
    }
}

/// Answers a packet that no socket knows.
pub(crate) fn send_reset(device: &Device, to: Mac, header: &Header) {
    if let Some(reset) = esp::reset_for(header) {
        let peer = Address {
            port: reset.dst,
            ifindex: device.index(),
            mac: to,
        };
        events::esp_reset_sent(device.net(), &peer, &reset);
        if let Ok(skb) = empty(device, &reset) {
            // A reset that is lost is asked for again by the next packet.
            let _ = device.send(skb, parameters::esp_type(), to);
        }
    }
}

/// The most packets that are kept to be filled again: more than are acknowledged at a time.
const MOST_SPARES: u16 = 32;

/// Frees `count` packets at the head of the write queue, and wakes writers.
pub(crate) fn free_acknowledged(sock: &Sock<Esp>, stream: &mut Stream, count: u16) {
    // As many as there are packets behind them, or one: who has nothing to send keeps no memory.
    let most = stream.connection.unacked().clamp(1, MOST_SPARES);
    stream.spares.limit(most);
    for _ in 0..count {
        let Some(skb) = sock.write_queue().pop_before(&mut stream.cursor) else {
            break;
        };
        uncharge(sock, &skb);
        stream.spares.put(skb, most);
    }
    if writable(sock) {
        sock.wake_writers();
    }
}

/// Empties the write queue.
pub(crate) fn discard(sock: &Sock<Esp>, stream: &mut Stream) {
    while let Some(skb) = sock.write_queue().pop_before(&mut stream.cursor) {
        uncharge(sock, &skb);
        skb.purge();
    }
    stream.spares.limit(0);
}

fn uncharge(sock: &Sock<Esp>, skb: &Skb) {
    let queued = sock.write_queued();
    queued.store(queued.load(Relaxed).saturating_sub(skb.truesize()), Relaxed);
    let unacknowledged = &sock.shared().unacknowledged;
    let left = unacknowledged
        .load(Relaxed)
        .saturating_sub(skb.len() as u32);
    unacknowledged.store(left, Relaxed);
}

/// Charges a packet that joins the write queue.
pub(crate) fn charge(sock: &Sock<Esp>, skb: &Skb) {
    let queued = sock.write_queued();
    queued.store(queued.load(Relaxed).saturating_add(skb.truesize()), Relaxed);
}

/// Whether a writer is told that there is room: when a third of the send buffer is free, as the
/// core's streams do it.
#[inline]
pub(crate) fn writable(sock: &Sock<Esp>) -> bool {
    let queued = sock.write_queued().load(Relaxed);
    sock.send_limit().saturating_sub(queued) >= queued / 2
}
