// SPDX-License-Identifier: GPL-2.0

//! What becomes of ESP connections when their device changes.

use crate::net::errno::prelude::*;
use crate::{
    esp::{Seq, HEADER_LEN},
    esp_connection::{self, Stream, DEVICE},
    esp_output,
    esp_socket::Esp,
    net::{
        device::Device,
        namespace::PerNet,
        queue::Cursor,
        rcu,
        skb::{Context, Note, Skb},
        sock::{Sock, SockRef, TcpState},
        timer,
    },
    space::Space,
};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// The most packets that a write queue may hold, as the engine's `can_enqueue` has it.
const MOST_QUEUED: u16 = 0x7ffd;

/// Has the connections by device `ifindex` look at what that has become. Does not wait for tasks
/// that own a socket, which user memory may hold up for ever: they do it when they let go.
pub(crate) fn tell(space: &Space, ifindex: u32) {
    // Whoever sees the number sees the change.
    let change = space
        .device_changes
        .fetch_add(1, AcqRel)
        .wrapping_add(1);
    let is_new = |sock: &Sock<Esp>| {
        let shared = sock.shared();
        shared.peer().ifindex == ifindex && shared.told.load(Relaxed) != change
    };
    let tell = |sock: SockRef<Esp>| {
        rcu::without_bottom_halves(|| {
            let mut guard = sock.lock_bh();
            sock.shared().told.store(change, Relaxed);
            match guard.parts() {
                Some((sock, stream)) => look(sock, stream),
                None => {
                    sock.shared().missed.fetch_or(DEVICE, Relaxed);
                }
            }
        });
    };
    // Once more, for those that were left out, until there is none. Connections that are made from
    // now on are not among them, however fast they come: see `begin`.
    while space.esp_connections.for_each_held(is_new, tell) {}
}

/// Has a connection count as told of the changes so far: to be called before it is put among the
/// connections and before its device is looked at.
pub(crate) fn begin(sock: &Sock<Esp>) {
    let changes = Space::of(sock.net()).device_changes.load(Acquire);
    sock.shared().told.store(changes, Relaxed);
}

/// Looks at what the connection's device has become, with the socket locked and bottom halves
/// disabled.
pub(crate) fn look(sock: &Sock<Esp>, stream: &mut Stream) {
    if sock.tcp_state() == TcpState::Close as u8 {
        return;
    }
    let section = rcu::Read::enter();
    let device = Device::find(sock.net(), sock.shared().peer().ifindex, &section)
        .filter(|device| device.is_ethernet());
    let Some(device) = device else {
        esp_connection::fail_for_good(sock, stream, ENETDOWN);
        return;
    };
    if stream.local != device.address() {
        readdressed(sock, stream, device);
    } else {
        resized(sock, stream, device.mtu());
    }
}

/// The device has another address now. The peer knows this end by the old one, so the connection is
/// over for both.
fn readdressed(sock: &Sock<Esp>, stream: &mut Stream, device: &Device) {
    if sock.tcp_state() == TcpState::SynSent as u8 {
        // The next SYN comes from the new address.
        stream.local = device.address();
        return;
    }
    if let Some(reset) = stream.connection.abort() {
        esp_output::send_farewell(sock, device, stream.local, &reset);
    }
    esp_connection::fail_for_good(sock, stream, ECONNABORTED);
}

/// The device has another MTU now, of `mtu` bytes.
fn resized(sock: &Sock<Esp>, stream: &mut Stream, mtu: u32) {
    stream.resize(mtu);
    if stream.connection.is_paused() {
        return;
    }
    let queue = sock.write_queue();
    let mss = stream.mss as usize;
    let mut next = queue.first();
    while let Some(packet) = next.filter(|packet| packet.len() <= mss) {
        next = queue.after(packet);
    }
    let Some(oversized) = next else {
        return;
    };
    let now = timer::now();
    let from = Seq(oversized.note().seq);
    if stream.connection.is_unsent(from) {
        cut(sock, stream, from);
    } else {
        stream.connection.pause(now);
    }
    esp_output::transmit(sock, stream, now);
}

/// Cuts the packets from the number `from` on so that none is too large for the device, and tells
/// the engine. What there is no memory for is cut later: the engine pauses for a while, as if the
/// device had changed once more. Ends the connection if the packets would be too many.
pub(crate) fn cut(sock: &Sock<Esp>, stream: &mut Stream, from: Seq) {
    stream.cursor = Cursor::new();
    let flags = sock
        .write_queue()
        .seek(&mut stream.cursor, from.0)
        .map_or(0, |packet| packet.note().flags);
    let divided = divide(sock, stream, from);
    if divided == Err(EMSGSIZE) {
        if let Some(reset) = stream.connection.abort() {
            esp_output::send_control(sock, stream, reset);
        }
        return esp_connection::fail_for_good(sock, stream, EMSGSIZE);
    }
    let packets = number(sock, stream, from);
    stream.connection.recut(from, packets, |_| flags);
    if divided.is_err() {
        stream.connection.pause(timer::now());
    }
}

/// Divides every packet from `from` on that is too large, each from its end on: the queue holds the
/// stream at every moment. The new packets have no numbers yet.
///
/// # Errors
///
/// `ENOBUFS` without memory, `EMSGSIZE` if there would be more packets than can be told apart; then
/// some are as large as they were.
fn divide(sock: &Sock<Esp>, stream: &mut Stream, from: Seq) -> Result {
    let queue = sock.write_queue();
    let mss = stream.mss as usize;
    let headroom = stream.headroom.saturating_add(HEADER_LEN);
    let mut room = MOST_QUEUED.saturating_sub(stream.connection.first_unacked().distance(from));
    let mut next = queue.seek(&mut stream.cursor, from.0);
    while let Some(packet) = next {
        next = queue.after(packet);
        room = room.checked_sub(1).ok_or(EMSGSIZE)?;
        while packet.len() > mss {
            room = room.checked_sub(1).ok_or(EMSGSIZE)?;
            // What full packets leave over, or the last of these.
            let rest = packet.len().checked_rem(mss).filter(|&rest| rest > 0);
            let part = rest.unwrap_or(mss);
            let start = packet.len().saturating_sub(part);
            let mut skb = Skb::alloc(headroom, part, Context::Softirq).ok_or(ENOBUFS)?;
            // The bytes stay where they are, for a clone that may still be on its way.
            let trim = |skb: &mut Skb| skb.trim(start);
            if !skb.put_copy(packet, start, part) || queue.with(packet, trim) != Some(true) {
                return Err(ENOBUFS);
            }
            skb.release_header();
            esp_output::charge(sock, &skb);
            queue.insert_behind(packet, skb);
        }
    }
    Ok(())
}

/// Numbers the packets from `from` on anew, as if none of them had left, and returns how many there
/// are.
fn number(sock: &Sock<Esp>, stream: &mut Stream, from: Seq) -> u16 {
    let queue = sock.write_queue();
    let mut seq = from;
    let mut next = queue.seek(&mut stream.cursor, from.0);
    while let Some(packet) = next {
        let note = Note {
            seq: seq.0,
            ..Note::default()
        };
        queue.with(packet, |skb| skb.set_note(note));
        seq = seq.add(1);
        next = queue.after(packet);
    }
    from.distance(seq)
}
