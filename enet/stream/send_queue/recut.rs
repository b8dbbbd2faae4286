// SPDX-License-Identifier: GPL-2.0

//! Splits the write queue's packets again when they have become too large. The limit of the device
//! or the peer may have decreased, or each packet may now get a checksum.

use super::{
    charge, is_store, packet_payload, packets_in, records, unacknowledged_in, Sending, MOST_QUEUED,
};
use crate::net::errno::prelude::*;
use crate::{
    esp::{self, Connection, Seq, HEADER_LEN},
    net::{allocation::Context, skb::Skb, sock::RawSock},
    skb_cb::TxCb,
};

impl Sending {
    /// Adapts later packets to a device MTU of `mtu` bytes. Returns the first packet of a queued
    /// buffer with oversized packets, if there is one.
    pub(in crate::stream) fn resize(&mut self, mtu: u32) -> Option<Seq> {
        self.device_payload = packet_payload(mtu);
        self.fit()
    }

    /// Adapts later packets to a peer that accepts at most `payload` bytes per packet. Returns the
    /// same as [`Self::resize`].
    pub(in crate::stream) fn limit(&mut self, payload: u16) -> Option<Seq> {
        self.peer_payload = payload.into();
        self.fit()
    }

    /// Gives each later packet a checksum, which takes a part of the packet's room. Returns the
    /// same as [`Self::resize`].
    pub(in crate::stream) fn sum(&mut self) -> Option<Seq> {
        self.with_checksum = true;
        self.fit()
    }

    fn fit(&mut self) -> Option<Seq> {
        let payload = self.device_payload.min(self.peer_payload);
        self.mss = payload.saturating_sub(self.checksum_len() as u32).max(1);
        let mss = self.mss as usize;
        let oversized = self.queue.iter().find(|buffer| {
            let size: usize = buffer.note::<TxCb>().size.into();
            unacknowledged_in(buffer) > mss && (size > mss || !is_store(buffer))
        })?;
        Some(Seq(oversized.note::<TxCb>().seq))
    }

    /// Splits the packets from `from` on so that none exceeds `self.mss`, and reports the new
    /// packets to the engine.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if there is no memory for all new packets; some packets then keep their size.
    /// `EMSGSIZE` if there would be more packets than sequence numbers; nothing is then reported to
    /// the engine.
    pub(in crate::stream) fn cut(
        &mut self,
        sock: &RawSock,
        engine: &mut Connection,
        from: Seq,
    ) -> Result {
        let flags = esp::WriteQueue::flags(self, from);
        let divided = self.divide(sock, engine.first_unacked().distance(from), from);
        if divided == Err(EMSGSIZE) {
            return divided;
        }
        // Records keep their bounds (`TXS` and `TXF`).
        let kept = if engine.has_records() {
            records::BOUNDS
        } else {
            0
        };
        let packets = self.renumber(from, engine.number_behind(from), kept);
        engine.recut(from, packets, |_| flags);
        divided
    }

    /// Splits every oversized packet from `from` on. Parts are split off from the end of each
    /// packet, so the queue holds the whole stream at every moment. `before` packets precede
    /// `from`. The new packets have no sequence numbers yet.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::cut`].
    fn divide(&mut self, sock: &RawSock, before: u16, from: Seq) -> Result {
        let mss = self.mss as usize;
        let headroom = self.headroom.saturating_add(HEADER_LEN);
        let mut room = MOST_QUEUED.saturating_sub(before);
        let stamped = self.stamped;
        let mut cursor = self.queue.cursor(from.0);
        while let Some(packet) = cursor.current() {
            if is_store(packet) {
                let packets = packets_in(unacknowledged_in(packet), mss);
                room = room.checked_sub(packets).ok_or(EMSGSIZE)?;
                cursor.advance();
                continue;
            }
            let len = packet.len();
            room = room.checked_sub(1).ok_or(EMSGSIZE)?;
            let mut left = len;
            let mut parts = 0_usize;
            while left > mss {
                room = room.checked_sub(1).ok_or(EMSGSIZE)?;
                // The size of the part: the remainder after the full packets or, if there is none,
                // a full packet.
                let rest = left.checked_rem(mss).filter(|&rest| rest > 0);
                let part = rest.unwrap_or(mss);
                left = left.saturating_sub(part);
                let mut skb = Skb::alloc(headroom, part, Context::Softirq).ok_or(ENOBUFS)?;
                let packet = cursor.current().ok_or(ENOENT)?;
                // `trim` leaves the bytes in place for a clone that may still be in flight.
                if !skb.put_copy(packet, left, part) || !packet.trim(left) {
                    return Err(ENOBUFS);
                }
                records::hand_on_bounds(packet, &mut skb, parts == 0);
                if stamped && parts == 0 {
                    packet.move_stamp(&mut skb);
                }
                skb.release_header();
                charge(sock, skb.truesize());
                cursor.insert_behind(skb);
                parts = parts.saturating_add(1);
            }
            for _ in 0..=parts {
                cursor.advance();
            }
        }
        Ok(())
    }

    /// Sets the sizes and sequence numbers of the packets from `from` on, as if none had been sent.
    /// The numbers start at `first`. The flags in `kept` are not changed. Returns the number of
    /// packets.
    fn renumber(&mut self, from: Seq, first: Seq, kept: u8) -> u16 {
        let mss = self.mss as usize;
        let mut seq = first;
        let mut cursor = self.queue.cursor(from.0);
        while let Some(buffer) = cursor.current() {
            let note: TxCb = buffer.note();
            let (count, acked_bytes) = if is_store(buffer) {
                (packets_in(unacknowledged_in(buffer), mss), note.acked_bytes)
            } else {
                (1, 0)
            };
            buffer.set_note(TxCb {
                seq: seq.0,
                count,
                size: mss as u16,
                flags: note.flags & kept,
                acked_bytes,
            });
            seq = seq.add(count);
            cursor.advance();
        }
        first.distance(seq)
    }
}
