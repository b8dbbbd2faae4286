// SPDX-License-Identifier: GPL-2.0

//! Records in the write queue. Each record begins with the start of a buffer and ends with the end
//! of a buffer. The buffers store these bounds before they are sent.

use super::{discharge, packets_in, Sending, MOST_IN_RUN, MOST_QUEUED};
use crate::net::errno::prelude::*;
use crate::{
    esp::{flags, Connection, HEADER_LEN},
    net::{
        message::Message,
        seq_queue::SeqQueue,
        skb::{Buffer, Skb},
        sock::{Protocol, RawSock, Sock},
    },
    skb_cb::TxCb,
    stream::{domain::place_at, send_queue::Unacknowledged},
};
use core::sync::atomic::Ordering::Relaxed;

/// The flags of a packet that mark the bounds of its record.
pub(super) const BOUNDS: u8 = flags::TXS | flags::TXF;

impl Sending {
    /// Returns the number of packets of a record of `len` bytes; `None` if there are not enough
    /// sequence numbers for the record.
    pub(in crate::stream) fn packets_of(&self, len: usize) -> Option<u16> {
        Some(packets_in(len, self.mss as usize)).filter(|&packets| packets <= MOST_QUEUED)
    }

    /// Queues a record of `len` bytes. On an error, queues nothing.
    ///
    /// # Errors
    ///
    /// `EFAULT`, `ENOBUFS` if there is no memory, `EINVAL` for a message with a header that the
    /// peer would not accept.
    pub(in crate::stream) fn take_record(
        &mut self,
        sock: &Sock<impl Protocol>,
        unacknowledged: &Unacknowledged,
        engine: &mut Connection,
        msg: &mut Message<'_>,
        len: usize,
    ) -> Result {
        let mut record = SeqQueue::new();
        let mut made = self.make_record(sock, engine, msg, len, &mut record);
        if made.is_ok() && engine.is_channel() && !begins_message(&mut record) {
            made = Err(EINVAL);
        }
        match made {
            Ok(packets) => {
                while let Some(buffer) = record.pop() {
                    self.queue.push(buffer);
                }
                engine.enqueue(packets);
                unacknowledged.add(len);
                Ok(())
            }
            Err(error) => {
                while let Some(buffer) = record.pop() {
                    discharge(sock, buffer.truesize());
                    buffer.purge();
                }
                Err(error)
            }
        }
    }

    /// Builds the buffers of a record. Returns the number of packets in them.
    fn make_record(
        &mut self,
        sock: &Sock<impl Protocol>,
        engine: &mut Connection,
        msg: &mut Message<'_>,
        len: usize,
        record: &mut SeqQueue<TxCb>,
    ) -> Result<u16> {
        let mss = self.mss as usize;
        let mut rest = len;
        let mut packets = 0_u16;
        let mut bounds = flags::TXS;
        while rest > 0 {
            let mut buffer = match self.store_of_record(sock, msg, rest)? {
                Some(store) => store,
                None => self.packet_of_record(sock, msg, rest.min(mss))?,
            };
            buffer.release_header();
            rest = rest.saturating_sub(buffer.len());
            if rest == 0 {
                bounds |= flags::TXF;
            }
            let count = packets_in(buffer.len(), mss);
            self.admit(sock, engine, &mut buffer, count);
            let note: TxCb = buffer.note();
            buffer.set_note(TxCb {
                seq: note.seq.wrapping_add(packets),
                flags: bounds,
                ..note
            });
            record.push(buffer);
            bounds = 0;
            packets = packets.saturating_add(count);
        }
        // The record may have more packets than expected. If a store cannot take all bytes of a
        // packet, the rest needs a packet of its own.
        if packets > engine.free_numbers() {
            return Err(ENOBUFS);
        }
        Ok(packets)
    }

    /// Builds a store, a buffer for many packets, with the first of the `rest` bytes. Builds none
    /// if these bytes fit into one packet, or if the socket cannot have stores.
    fn store_of_record(
        &mut self,
        sock: &Sock<impl Protocol>,
        msg: &mut Message<'_>,
        rest: usize,
    ) -> Result<Option<Skb>> {
        let mss = self.mss as usize;
        if rest <= mss {
            return Ok(None);
        }
        let headroom = self.headroom.saturating_add(HEADER_LEN);
        let mut store = Skb::store(headroom, sock.task_context()).ok_or(ENOBUFS)?;
        let most = (MOST_IN_RUN / mss.max(1)).max(1).saturating_mul(mss);
        let taken = store.append(&mut self.pages, sock, msg, rest.min(most))?;
        Ok((taken > 0).then_some(store))
    }

    /// Builds a packet with the next `size` bytes of the record.
    fn packet_of_record(
        &mut self,
        sock: &Sock<impl Protocol>,
        msg: &mut Message<'_>,
        size: usize,
    ) -> Result<Skb> {
        let headroom = self.headroom.saturating_add(HEADER_LEN);
        let mut packet = self
            .skb_pool
            .take(headroom, size)
            .or_else(|| Skb::alloc(headroom, size, sock.task_context()))
            .ok_or(ENOBUFS)?;
        packet.put_from(msg, size)?;
        Ok(packet)
    }
}

/// Returns whether a record begins with the header of a message.
fn begins_message(record: &mut SeqQueue<TxCb>) -> bool {
    let first = record.first_mut();
    first.is_some_and(|buffer| place_at(buffer, 0).is_some())
}

/// Moves the bounds of a record when `part` is split off from the end of `packet`. The first part
/// that is split off takes over the record's end.
pub(super) fn hand_on_bounds(packet: &mut Buffer, part: &mut Buffer, is_first: bool) {
    let note: TxCb = packet.note();
    let end = if is_first { flags::TXF } else { 0 };
    part.set_note(TxCb {
        flags: note.flags & end,
        ..note
    });
    packet.set_note(TxCb {
        flags: note.flags & !flags::TXF,
        ..note
    });
}

/// Returns whether the send buffer and the free sequence numbers permit a record of `packets`
/// packets. A send buffer with any room takes a whole record, as it would take a whole datagram.
pub(in crate::stream) fn takes_record(sock: &RawSock, engine: &Connection, packets: u16) -> bool {
    sock.write_queued().load(Relaxed) < sock.send_limit() && engine.free_numbers() >= packets
}
