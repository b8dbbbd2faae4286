// SPDX-License-Identifier: GPL-2.0

//! The sending part of an ESP connection: the write queue, which keeps every packet until it is
//! acknowledged, and what new packets are made of.

use crate::net::errno::prelude::*;
use crate::{
    esp::{self, Connection, Header, Seq, HEADER_LEN},
    net::{
        device::Device,
        message::Message,
        numbered::NumberedQueue,
        skb::{Context, Processor, Skb},
        sock::RawSock,
        spares::Spares,
        uapi,
    },
    notes::Kept,
};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The longest time that `MSG_MORE` holds the last packet back, nanoseconds, as with TCP.
const CORK_NANOS: u64 = 200_000_000;

/// The most acknowledged packets that are kept to be filled again: more than one acknowledgement frees.
const MOST_SPARES: u16 = 32;

/// The most packets in a write queue, as the engine's `can_enqueue` has it.
const MOST_QUEUED: u16 = 0x7ffd;

/// Payload bytes that the peer has not acknowledged: written by the lock holder, read by anyone.
#[derive(Default)]
pub(crate) struct Unacknowledged(AtomicU32);

impl Unacknowledged {
    /// The number.
    #[inline]
    pub(crate) fn bytes(&self) -> u32 {
        self.0.load(Relaxed)
    }

    #[inline]
    fn add(&self, bytes: usize) {
        let sum = self.bytes().saturating_add(bytes as u32);
        self.0.store(sum, Relaxed);
    }

    #[inline]
    fn sub(&self, bytes: usize) {
        let rest = self.bytes().saturating_sub(bytes as u32);
        self.0.store(rest, Relaxed);
    }
}

/// Whether poll reports the socket writable: a third of the send buffer is free, as the core's
/// streams have it.
#[inline]
pub(crate) fn writable(sock: &RawSock) -> bool {
    let queued = sock.write_queued().load(Relaxed);
    sock.send_limit().saturating_sub(queued) >= queued / 2
}

/// Whether the send buffer takes another packet.
#[inline]
pub(crate) fn has_room(sock: &RawSock) -> bool {
    sock.write_queued().load(Relaxed) < sock.send_limit()
}

/// Charges a packet that joins the write queue to the send buffer.
#[inline]
fn charge(sock: &RawSock, skb: &Skb) {
    let queued = sock.write_queued();
    queued.store(queued.load(Relaxed).saturating_add(skb.truesize()), Relaxed);
}

/// Ends the charge of a packet that has left the write queue.
#[inline]
fn uncharge(sock: &RawSock, unacknowledged: &Unacknowledged, skb: &Skb) {
    let queued = sock.write_queued();
    queued.store(queued.load(Relaxed).saturating_sub(skb.truesize()), Relaxed);
    unacknowledged.sub(skb.len());
}

/// Whether nothing may join the last packet of a send call, as with TCP.
#[inline]
fn ends_record(msg: &Message<'_>) -> bool {
    msg.flags() & uapi::MSG_EOR != 0
}

/// The sending part.
pub(crate) struct Sending {
    /// The write queue: packets that are not acknowledged, the one numbered
    /// [`first_unacked`](Connection::first_unacked) at its head.
    queue: NumberedQueue<Kept>,
    /// Acknowledged packets that the next ones are made of.
    spares: Spares,
    /// When the packet that `MSG_MORE` holds back leaves anyway; `u64::MAX` if none is held back.
    corked_until: u64,
    /// Payload bytes of a full packet.
    mss: u32,
    /// Bytes that the device needs in front of a packet, as it was when one last left.
    headroom: usize,
    /// The processor that packets name as the sender's. It changes only while none is unacknowledged:
    /// transmit queues overtake each other.
    processor: Processor,
}

impl Sending {
    /// For packets that leave by `device`.
    pub(crate) fn new(device: &Device) -> Self {
        Sending {
            queue: NumberedQueue::new(),
            spares: Spares::new(),
            corked_until: u64::MAX,
            mss: packet_payload(device.mtu()),
            headroom: device.headroom(),
            processor: Processor::current(),
        }
    }

    /// The processor that packets name as the sender's.
    #[inline]
    pub(crate) fn processor(&self) -> Processor {
        self.processor
    }

    /// Remembers what room `device` needs in front of a packet.
    #[inline]
    pub(crate) fn note_headroom(&mut self, device: &Device) {
        self.headroom = device.headroom();
    }

    /// Payload bytes of a full packet.
    #[inline]
    pub(crate) fn mss(&self) -> u32 {
        self.mss
    }

    /// Whether `MSG_MORE` holds a packet back.
    pub(crate) fn is_corked(&self) -> bool {
        self.corked_until != u64::MAX
    }

    /// When a packet that is held back leaves anyway; `u64::MAX` if none is held back.
    #[inline]
    pub(crate) fn corked_until(&self) -> u64 {
        self.corked_until
    }

    /// Lets the packet go that `MSG_MORE` held back, at the next transmission.
    #[inline]
    pub(crate) fn uncork(&mut self, engine: &mut Connection) {
        self.corked_until = u64::MAX;
        engine.hold_last(false);
    }

    /// At the end of a send call: holds the last packet back if `more` was announced, or lets it go. A
    /// full packet leaves: it would gain nothing.
    #[inline]
    pub(crate) fn cork(&mut self, engine: &mut Connection, more: bool, now: impl FnOnce() -> u64) {
        let mss = self.mss as usize;
        if !more || self.queue.last().is_none_or(|skb| skb.len() >= mss) {
            return self.uncork(engine);
        }
        engine.hold_last(true);
        if !self.is_corked() {
            self.corked_until = now().saturating_add(CORK_NANOS);
        }
    }

    /// Takes at most `rest` bytes of the message into the last packet (S5) or a new one, and returns
    /// how many.
    ///
    /// # Errors
    ///
    /// `EFAULT`; `ENOBUFS` without memory.
    #[inline]
    pub(crate) fn take(
        &mut self,
        sock: &RawSock,
        unacknowledged: &Unacknowledged,
        engine: &mut Connection,
        msg: &mut Message<'_>,
        rest: usize,
    ) -> Result<usize> {
        let taken = match self.extend_last(engine, msg, rest)? {
            0 => self.append(sock, engine, msg, rest)?,
            taken => taken,
        };
        unacknowledged.add(taken);
        if taken == rest && ends_record(msg) {
            engine.seal_last();
        }
        Ok(taken)
    }

    /// Appends to the last packet while that has never left and has room (S5). Returns the bytes
    /// taken.
    #[inline]
    fn extend_last(
        &mut self,
        engine: &Connection,
        msg: &mut Message<'_>,
        rest: usize,
    ) -> Result<usize> {
        if !engine.last_takes_more() {
            return Ok(0);
        }
        let mss = self.mss as usize;
        let Some(skb) = self.queue.last_mut() else {
            return Ok(0);
        };
        // A packet that was cut may share its bytes with one that left before.
        if skb.is_cloned() {
            return Ok(0);
        }
        let room = skb.tailroom().min(mss.saturating_sub(skb.len()));
        let take = rest.min(room);
        if take > 0 {
            skb.put_from(msg, take)?;
        }
        Ok(take)
    }

    /// Queues a new packet. Returns the bytes taken.
    #[inline]
    fn append(
        &mut self,
        sock: &RawSock,
        engine: &mut Connection,
        msg: &mut Message<'_>,
        rest: usize,
    ) -> Result<usize> {
        let take = rest.min(self.mss as usize);
        // A packet that cannot leave at once gets room for what may still join it.
        let size = if engine.last_is_unsent() && !ends_record(msg) {
            self.mss as usize
        } else {
            take
        };
        let headroom = self.headroom.saturating_add(HEADER_LEN);
        let mut skb = self
            .spares
            .take(headroom, size)
            .or_else(|| Skb::alloc(headroom, size, Context::Task))
            .ok_or(ENOBUFS)?;
        skb.put_from(msg, take)?;
        skb.release_header();
        skb.set_note(Kept {
            seq: engine.next_number().0,
            flags: 0,
        });
        if engine.unacked() == 0 {
            self.processor = Processor::current();
        }
        charge(sock, &skb);
        self.queue.push(skb);
        engine.enqueue();
        Ok(take)
    }

    /// The flags that the packet `seq` left with.
    #[inline]
    pub(crate) fn flags_of(&mut self, seq: Seq) -> u8 {
        let note = self.queue.seek(seq.0).map(|skb| skb.note::<Kept>());
        note.map_or(0, |note| note.flags)
    }

    /// The packet that `header` names, to be transmitted. The write queue keeps its payload, and the
    /// flags it leaves with.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is no such packet, `ENOBUFS` without memory.
    #[inline]
    pub(crate) fn packet(&mut self, mut header: Header) -> Result<Skb> {
        let kept = self.queue.seek(header.seq.0).ok_or(ENOENT)?;
        header.len = kept.len() as u16;
        kept.set_note(Kept {
            seq: header.seq.0,
            flags: header.flags,
        });
        // While an earlier transmission is still with a device, or a receiver on this host, this is a copy.
        kept.with_header(&header.emit(), Context::Softirq)
            .ok_or(ENOBUFS)
    }

    /// Frees `count` acknowledged packets at the head of the write queue.
    #[inline]
    pub(crate) fn free_acknowledged(
        &mut self,
        sock: &RawSock,
        unacknowledged: &Unacknowledged,
        engine: &Connection,
        count: u16,
    ) {
        // As many as there are packets left, or one: an idle sender keeps no memory.
        let most = engine.unacked().clamp(1, MOST_SPARES);
        self.spares.limit(most);
        for _ in 0..count {
            let Some(skb) = self.queue.pop() else {
                break;
            };
            uncharge(sock, unacknowledged, &skb);
            self.spares.put(skb, most);
        }
    }

    /// Empties the write queue.
    pub(crate) fn discard(&mut self, sock: &RawSock, unacknowledged: &Unacknowledged) {
        while let Some(skb) = self.queue.pop() {
            uncharge(sock, unacknowledged, &skb);
            skb.purge();
        }
        self.free_spares();
    }

    /// Gives back the memory that the next packets would be made of.
    pub(crate) fn free_spares(&mut self) {
        self.spares.limit(0);
    }

    /// Payload bytes that have never left.
    pub(crate) fn unsent(&self, engine: &Connection) -> u32 {
        let sent = engine.unacked().saturating_sub(engine.unsent());
        self.queue
            .iter()
            .skip(sent.into())
            .fold(0, |bytes: u32, skb| bytes.saturating_add(skb.len() as u32))
    }

    /// Fits the packets to come to a device MTU of `mtu` bytes. Returns the first queued packet that
    /// is too large, if any.
    pub(crate) fn resize(&mut self, mtu: u32) -> Option<Seq> {
        self.mss = packet_payload(mtu);
        let mss = self.mss as usize;
        let oversized = self.queue.iter().find(|skb| skb.len() > mss)?;
        Some(Seq(oversized.note::<Kept>().seq))
    }

    /// Cuts the packets from the number `from` on so that none is too large for the device, and tells
    /// the engine.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` without memory for all of it: some packets are as large as they were. `EMSGSIZE` if
    /// there would be more packets than numbers can tell apart; the engine knows of no change then.
    pub(crate) fn cut(&mut self, sock: &RawSock, engine: &mut Connection, from: Seq) -> Result {
        let flags = self.flags_of(from);
        let divided = self.divide(sock, engine.first_unacked().distance(from), from);
        if divided == Err(EMSGSIZE) {
            return divided;
        }
        let packets = self.renumber(from);
        engine.recut(from, packets, |_| flags);
        divided
    }

    /// Divides every packet from `from` on that is too large, each from its end on: the queue holds the
    /// stream at every moment. `before` packets are in front of these. The new packets have no numbers
    /// yet.
    ///
    /// # Errors
    ///
    /// As [`Self::cut`].
    fn divide(&mut self, sock: &RawSock, before: u16, from: Seq) -> Result {
        let mss = self.mss as usize;
        let headroom = self.headroom.saturating_add(HEADER_LEN);
        let mut room = MOST_QUEUED.saturating_sub(before);
        let mut cursor = self.queue.cursor(from.0);
        while let Some(len) = cursor.current().map(|packet| packet.len()) {
            room = room.checked_sub(1).ok_or(EMSGSIZE)?;
            let mut left = len;
            let mut parts = 0_usize;
            while left > mss {
                room = room.checked_sub(1).ok_or(EMSGSIZE)?;
                // The rest that full packets leave over, or the last of these.
                let rest = left.checked_rem(mss).filter(|&rest| rest > 0);
                let part = rest.unwrap_or(mss);
                left = left.saturating_sub(part);
                let mut skb = Skb::alloc(headroom, part, Context::Softirq).ok_or(ENOBUFS)?;
                let packet = cursor.current().ok_or(ENOENT)?;
                // The bytes stay where they are, for a clone that may still be on its way.
                if !skb.put_copy(packet, left, part) || !packet.trim(left) {
                    return Err(ENOBUFS);
                }
                skb.release_header();
                charge(sock, &skb);
                cursor.insert_behind(skb);
                parts = parts.saturating_add(1);
            }
            for _ in 0..=parts {
                cursor.advance();
            }
        }
        Ok(())
    }

    /// Numbers the packets from `from` on anew, as if none of them had left. Returns how many there are.
    fn renumber(&mut self, from: Seq) -> u16 {
        let mut seq = from;
        let mut cursor = self.queue.cursor(from.0);
        while let Some(packet) = cursor.current() {
            packet.set_note(Kept {
                seq: seq.0,
                flags: 0,
            });
            seq = seq.add(1);
            cursor.advance();
        }
        from.distance(seq)
    }
}

/// Payload bytes of a full packet on a device with an MTU of `mtu` bytes. Some devices let theirs be 0.
fn packet_payload(mtu: u32) -> u32 {
    esp::mss(mtu).max(1)
}
