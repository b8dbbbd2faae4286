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
        queue::Cursor,
        rcu,
        skb::{Context, Note, Skb},
        sock::{Sock, SockRef, TcpState},
        timer,
    },
    space::Space,
};
use core::sync::atomic::Ordering::Relaxed;

/// The most packets that a write queue may hold, as the engine's `can_enqueue` has it.
const MOST_QUEUED: u16 = 0x7ffd;

/// Has the connections by device `ifindex` look at what that has become. Does not wait for tasks
/// that own a socket, which user memory may hold up for ever: they do it when they let go.
pub(crate) fn tell(space: &Space, ifindex: u32) {
    let change = space
        .device_changes
        .fetch_add(1, Relaxed)
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
    // Once more, for those that were left out, until there is none.
    while space.esp_connections.for_each_held(is_new, tell) {}
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
/// the engine. Ends the connection if that cannot be done.
pub(crate) fn cut(sock: &Sock<Esp>, stream: &mut Stream, from: Seq) {
    stream.cursor = Cursor::new();
    let flags = sock
        .write_queue()
        .seek(&mut stream.cursor, from.0)
        .map_or(0, |packet| packet.note().flags);
    match recut(sock, stream, from) {
        Ok(packets) => stream.connection.recut(from, packets, |_| flags),
        Err(error) => {
            if let Some(reset) = stream.connection.abort() {
                esp_output::send_control(sock, stream, reset);
            }
            esp_connection::fail_for_good(sock, stream, error);
        }
    }
}

/// Returns how many packets there are now from `from` on.
///
/// # Errors
///
/// `ENOBUFS` without memory, `EMSGSIZE` if there would be more than can be told apart.
fn recut(sock: &Sock<Esp>, stream: &mut Stream, from: Seq) -> Result<u16> {
    let queue = sock.write_queue();
    let mss = stream.mss as usize;
    let headroom = stream.headroom.saturating_add(HEADER_LEN);
    let una = stream.connection.first_unacked();
    let mut seq = from;
    let mut number = || {
        let note = Note {
            seq: seq.0,
            ..Note::default()
        };
        seq = seq.add(1);
        (una.distance(seq) < MOST_QUEUED)
            .then_some(note)
            .ok_or(EMSGSIZE)
    };
    let mut next = queue.seek(&mut stream.cursor, from.0);
    while let Some(packet) = next {
        let len = packet.len();
        let note = number()?;
        queue.with(packet, |skb| skb.set_note(note));
        let mut last = packet;
        let mut start = mss;
        while start < len {
            let part = mss.min(len.saturating_sub(start));
            let mut skb = Skb::alloc(headroom, part, Context::Softirq).ok_or(ENOBUFS)?;
            if !skb.put_copy(packet, start, part) {
                return Err(ENOBUFS);
            }
            skb.release_header();
            skb.set_note(number()?);
            esp_output::charge(sock, &skb);
            last = queue.insert_behind(last, skb);
            start = start.saturating_add(part);
        }
        if len > mss {
            // The bytes stay where they are, for a clone that may still be on its way.
            queue.with(packet, |skb| skb.trim(mss));
        }
        next = queue.after(last);
    }
    Ok(from.distance(seq))
}
