// SPDX-License-Identifier: GPL-2.0

//! Out-of-order packets, which are kept until the missing packets before them arrive. The engine
//! decides which packets are kept, and when they are next in the stream. Kept packets are charged
//! like packets in the receive queue, and are the first to be dropped if there is no room.

use super::{
    deliver::{deliver, drop_packet, Packets},
    sock::{parts, Connection, LockedEsp},
};
use crate::{
    esp::{self, Header, Seq, HEADER_LEN, MISSING_MOST},
    net::skb::{Buffer, Skb},
};

/// Tells the engine which missing packets a retransmission request names. The engine then
/// retransmits them.
#[cold]
#[inline(never)]
pub(super) fn named(
    connection: &mut Connection,
    skb: &Skb,
    header: &Header,
    outcome: &esp::Outcome,
    now: u64,
) {
    let mut bytes = [0; MISSING_MOST];
    let length = usize::from(header.len).min(MISSING_MOST);
    let there = bytes.get_mut(..length);
    let there = there.is_some_and(|bytes| skb.copy_bits(HEADER_LEN, bytes));
    let named = bytes.get(..if there { length } else { 0 });
    (connection.engine).on_named(header, named.unwrap_or_default(), outcome, now);
}

/// Keeps a packet, or a run of packets. `skb` still has the header.
#[cold]
#[inline(never)]
pub(super) fn keep(esp: &mut LockedEsp<'_>, skb: Skb, header: &Header) {
    charge(
        esp,
        esp.sock()
            .shared()
            .unread
            .out_of_order_memory()
            .saturating_add(skb.truesize()),
    );
    let seq = header.seq;
    esp.queue_out_of_order(skb, |other| !seq_of(other).after(seq));
}

/// Returns the number of the first packet in a kept buffer.
fn seq_of(buffer: &Buffer) -> Seq {
    Header::parse(buffer.head()).map_or(Seq(0), |header| header.seq)
}

/// Delivers kept packets that are next in the stream. Frees all kept buffers if the engine no
/// longer keeps any packet.
#[cold]
#[inline(never)]
pub(super) fn hand_over(esp: &mut LockedEsp<'_>, outcome: &mut esp::Outcome, now: u64) {
    let sock = esp.sock();
    while let Some(first) = esp.out_of_order_queue().first().map(seq_of) {
        let keeps = |connection: &Connection| connection.engine.keeps();
        if !esp.state.connection().is_some_and(|c| keeps(c)) {
            return discard(esp);
        }
        if !(esp.state.connection()).is_some_and(|c| c.engine.reaches(first)) {
            return;
        }
        let Some(skb) = take(esp) else { return };
        let header = Header::parse(skb.head()).map(|header| header.with_checksum(false));
        let packets = header.and_then(|header| Some((header, Packets::of(&skb, &header)?)));
        let (Some((header, packets)), Some((_, connection))) = (packets, parts(esp)) else {
            return skb.purge();
        };
        let room = connection.room(sock, skb.truesize());
        let mut more = (connection.engine).on_kept(&header, packets.count, room, now);
        if more.deliver {
            deliver(esp, skb, &header, packets, &mut more);
        } else if let Some(reason) = more.drop {
            drop_packet(sock, skb, reason.into());
        } else {
            skb.consume();
        }
        outcome.fin |= more.fin;
        outcome.closed |= more.closed;
        outcome.failed = outcome.failed.or(more.failed);
    }
}

/// Removes and returns the first kept buffer, if there is one.
fn take(esp: &mut LockedEsp<'_>) -> Option<Skb> {
    let skb = esp.out_of_order_queue().pop()?;
    charge(
        esp,
        esp.sock()
            .shared()
            .unread
            .out_of_order_memory()
            .saturating_sub(skb.truesize()),
    );
    Some(skb)
}

/// Drops all kept packets, here and in the engine.
pub(super) fn drop_all(esp: &mut LockedEsp<'_>) {
    if let Some((_, connection)) = parts(esp) {
        connection.engine.drop_kept();
    }
    discard(esp);
}

/// Frees all kept buffers.
fn discard(esp: &mut LockedEsp<'_>) {
    esp.out_of_order_queue().purge();
    charge(esp, 0);
}

/// Sets the memory of kept packets, in bytes.
fn charge(esp: &mut LockedEsp<'_>, bytes: u32) {
    esp.sock().shared().unread.set_out_of_order_memory(bytes);
    if let Some((_, connection)) = parts(esp) {
        connection.engine.set_kept(bytes);
    }
}
