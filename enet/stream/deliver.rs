// SPDX-License-Identifier: GPL-2.0

//! Moves received payload that is next in order into the receive queue.

use super::{
    channel,
    pieces::queue_part,
    ring,
    sock::{parts, Esp, LockedEsp},
};
use crate::{
    esp::{self, Header, HEADER_LEN},
    events,
    net::{offload::Contents, skb::Skb, sock::Sock, trace::DropReason},
    skb_cb::Unread,
};

/// Drops a packet that `sock` does not accept.
#[cold]
#[inline(never)]
pub(super) fn drop_packet(sock: &Sock<Esp>, skb: Skb, reason: DropReason) {
    events::esp_drop(sock, &skb, reason);
    skb.refuse(Some(sock), reason);
}

/// The packets in a received buffer.
#[derive(Clone, Copy)]
pub(super) struct Packets {
    pub(super) count: u16,
    /// Number of payload bytes of each packet except the last.
    size: u16,
}

impl Packets {
    /// Returns the packets of `skb`, whose header is `header`. Returns `None` if the buffer's
    /// contents are [foreign](Contents::Foreign). The number of packets is computed here, because
    /// the buffer may have been segmented or merged on its way.
    #[inline]
    pub(super) fn of(skb: &Skb, header: &Header) -> Option<Self> {
        match skb.contents() {
            Contents::Packets(size) if header.payload() > size => Some(Packets {
                count: header.payload().div_ceil(size.max(1)),
                size,
            }),
            Contents::Foreign => None,
            Contents::Packet | Contents::Packets(_) => Some(Packets {
                count: 1,
                size: header.payload(),
            }),
        }
    }

    /// Returns the number of payload bytes in the first `n` packets.
    #[inline]
    fn bytes(self, n: u16) -> u32 {
        u32::from(n).saturating_mul(self.size.into())
    }
}

/// Queues, for the reader, the payloads of a received buffer that are next in the stream.
#[inline]
pub(super) fn deliver(
    esp: &mut LockedEsp<'_>,
    skb: Skb,
    header: &Header,
    packets: Packets,
    outcome: &mut esp::Outcome,
) {
    let sock = esp.sock();
    if sock.is_dead() {
        return;
    }
    if parts(esp).is_some_and(|(_, connection)| connection.engine.has_records()) {
        return deliver_record(esp, skb, header, packets, outcome);
    }
    if ring::is_made(sock) {
        return deliver_to_ring(esp, skb, packets, outcome);
    }
    let (skb, bytes) = payload(esp, skb, packets, outcome);
    queue(esp, skb, bytes);
}

/// Delivers like [`deliver`], but to the ring. Queues what must not overtake queued bytes, or does
/// not fit.
#[cold]
#[inline(never)]
fn deliver_to_ring(esp: &mut LockedEsp<'_>, skb: Skb, packets: Packets, outcome: &esp::Outcome) {
    let (skb, bytes) = payload(esp, skb, packets, outcome);
    if let Some(skb) = ring::put(esp, skb, bytes) {
        queue(esp, skb, bytes);
    }
}

/// Queues payload for the reader, and wakes the reader.
#[inline(always)]
fn queue(esp: &mut LockedEsp<'_>, mut skb: Skb, bytes: Unread) {
    let sock = esp.sock();
    let unread = &sock.shared().unread;
    unread.add(bytes.len());
    skb.set_note(bytes);
    esp.queue_received(skb);
    // A sleeping reader may already have a part of its bytes. It is woken for the rest, even below
    // the low-water mark.
    if esp.state.has_readers() || unread.is_readable(sock) {
        sock.data_ready();
    }
}

/// Delivers like [`deliver`], but for a connection with records.
// The function is out of line, so that streams only pay for a branch.
#[cold]
#[inline(never)]
fn deliver_record(
    esp: &mut LockedEsp<'_>,
    skb: Skb,
    header: &Header,
    packets: Packets,
    outcome: &mut esp::Outcome,
) {
    let (skb, bytes) = payload(esp, skb, packets, outcome);
    let run = (header.flags, packets.count);
    deliver_pieces(esp, skb, run, bytes, outcome);
}

/// Returns the buffer without its header, and the payloads in it that are next in order.
#[inline(always)]
fn payload(
    esp: &mut LockedEsp<'_>,
    mut skb: Skb,
    packets: Packets,
    outcome: &esp::Outcome,
) -> (Skb, Unread) {
    let sock = esp.sock();
    skb.pull(HEADER_LEN);
    let single = packets.count == 1;
    if let Some(connection) = esp.state.connection() {
        let mut cost = skb.truesize();
        if !single {
            cost = cost.checked_div(packets.count.into()).unwrap_or(0);
        }
        (connection.receiving).note_cost(&sock.shared().promise, cost);
    }
    let bytes = if single {
        Unread {
            start: 0,
            end: skb.len() as u32,
        }
    } else {
        let behind = outcome.skip.saturating_add(outcome.taken);
        Unread {
            start: packets.bytes(outcome.skip),
            end: packets.bytes(behind).min(skb.len() as u32),
        }
    };
    (skb, bytes)
}

/// Queues the next payload in order: `bytes` of `skb`. The buffer has a run of `count` packets with
/// `flags`.
#[inline(never)]
fn deliver_pieces(
    esp: &mut LockedEsp<'_>,
    skb: Skb,
    (flags, count): (u8, u16),
    bytes: Unread,
    outcome: &mut esp::Outcome,
) {
    let Some((_, connection)) = parts(esp) else {
        return;
    };
    let len = bytes.len() as u32;
    let Some(part) = connection.engine.take_part(flags, count, len, outcome) else {
        return;
    };
    if connection.engine.is_channel() {
        return channel::take(esp, skb, bytes, part, outcome);
    }
    queue_part(esp, skb, bytes, part);
}
