// SPDX-License-Identifier: GPL-2.0

//! The sending part of an ESP connection: the write queue, which keeps every packet until it is
//! acknowledged, and the memory for new packets.
//!
//! A buffer of the queue is one of two kinds. A message of one packet has a buffer of its own; a
//! clone of it is sent with a header in front. A longer message goes to a *store*, a buffer that
//! has many packets in pages. If all packets of a store are sent at once, a clone of the store is
//! sent. Any other transmission (a packet, or a run of packets) is a view of the store's pages. All
//! packets of a store except the last have the same size. Nothing is appended to a store once its
//! last packet was sent. So only the first packet of a store can have `TXS`, and only the last can
//! have `TXF`.

use crate::net::errno::prelude::*;
use crate::{
    esp::{self, ack_queue::SHORT, flags, Connection, Header, Seq, CHECKSUM_LEN, HEADER_LEN},
    net::{
        allocation::Context,
        device::Device,
        message::Message,
        page_ring::PageRing,
        pages::most_fragments,
        seq_queue::SeqQueue,
        skb::{Buffer, Processor, Skb},
        skb_pool::SkbPool,
        sock::{Protocol, RawSock, Sock},
        stamps::Stamp,
        uapi,
    },
    skb_cb::TxCb,
};
use core::sync::atomic::Ordering::Relaxed;

mod account;
mod records;
mod recut;
use account::{charge, discharge, uncharge};
pub(super) use account::{has_room, writable};
pub(crate) use account::{Unacknowledged, UnsentLimit};
pub(super) use records::takes_record;

/// The longest time for which `MSG_MORE` holds the last packet back, in nanoseconds, as in TCP.
const CORK_NANOS: u64 = 200_000_000;

/// Maximum number of acknowledged packets kept for reuse. An acknowledgement after the default
/// number of packets (`packets_to_ack`) frees fewer than that.
const MOST_SPARES: u16 = 32;

/// Maximum number of packets in a write queue, the same as in the engine (see
/// `esp::Connection::can_enqueue`).
const MOST_QUEUED: u16 = 0x7ffd;

/// A device that needs this much headroom counts as a tunnel, since a tunnel adds at least Ethernet
/// and IP headers to ours. Packets for a tunnel are not sent as clones. If the tunnel's receiver is
/// on the same machine, the kernel passes clones to the receiver on a different path than other
/// buffers. Frames on one path overtake frames on the other.
const TUNNEL_HEADROOM: usize = 64;

/// Maximum number of payload bytes in one buffer, of all its packets together. With all headers,
/// including the headers of a tunnel with options and tags, the packets stay below 65,536 bytes.
/// This is the limit of devices (`gso_ipv4_max_size`) and of the length in an outer IP header. A
/// store (a buffer for many packets) has at most this many bytes, unless a single packet has more.
/// So a store can be sent whole.
const MOST_IN_RUN: usize = 65_536 - 128;

/// The payload bytes for which a packet that `MSG_MORE` holds back has room, unless its first bytes
/// are more. A whole packet of the usual MTU fits. With larger packets, one byte would take much of
/// a small send buffer.
const MOST_HELD_ROOM: usize = 1500;

/// Returns whether a buffer of the queue has its packets in pages.
#[inline]
fn is_store(buffer: &Buffer) -> bool {
    buffer.fragments() > 0
}

/// Returns the unacknowledged payload bytes of a buffer.
#[inline]
fn unacknowledged_in(buffer: &Buffer) -> usize {
    buffer
        .len()
        .saturating_sub(buffer.note::<TxCb>().acked_bytes as usize)
}

/// Returns the number of packets that `bytes` bytes of payload need, at `size` bytes a packet.
#[inline]
fn packets_in(bytes: usize, size: usize) -> u16 {
    u16::try_from(bytes.div_ceil(size.max(1))).unwrap_or(u16::MAX)
}

/// Returns whether a send call forbids that its last packet is extended later (`MSG_EOR`), as in
/// TCP.
#[inline]
fn ends_record(msg: &Message<'_>) -> bool {
    msg.flags() & uapi::MSG_EOR != 0
}

/// Returns whether a send call announces that more bytes follow (`MSG_MORE`).
#[inline]
fn announces_more(msg: &Message<'_>) -> bool {
    msg.flags() & uapi::MSG_MORE != 0
}

/// The sending part of a connection.
pub(crate) struct Sending {
    /// The write queue of unacknowledged packets. The packet with the number
    /// [`first_unacked`](Connection::first_unacked) is at its head.
    queue: SeqQueue<TxCb>,
    /// Acknowledged packets for reuse.
    skb_pool: SkbPool,
    /// Pages of stores, which are reused once no packet refers to them.
    pages: PageRing,
    /// `MSG_MORE` holds a packet back until this time at the latest; `u64::MAX` if no packet is
    /// held back.
    corked_until: u64,
    /// Payload bytes of a full packet: the smaller of `device_payload` and `peer_payload`, less the
    /// checksum.
    mss: u32,
    /// Maximum payload bytes of a packet that the device carries.
    device_payload: u32,
    /// Maximum payload bytes of a packet that the peer accepts; `u32::MAX` if the peer has not
    /// reported a maximum.
    peer_payload: u32,
    /// Whether each packet has a checksum.
    with_checksum: bool,
    /// Whether a timestamp was ever requested for a packet.
    stamped: bool,
    /// Headroom, in bytes, that the device needed when a packet was last sent.
    headroom: usize,
    /// The device's limit on packets per buffer, read when a packet was last sent.
    most_packets: u16,
    /// The processor that each buffer records as its sender (`sender_cpu`). It affects the choice
    /// of the transmit queue. So it changes only while nothing is unacknowledged: packets in a
    /// different queue could overtake the packets in flight.
    processor: Processor,
}

impl Sending {
    /// Creates the sending part for packets sent through `device`.
    pub(super) fn new(device: &Device) -> Self {
        Sending {
            queue: SeqQueue::new(),
            skb_pool: SkbPool::new(),
            pages: PageRing::new(),
            corked_until: u64::MAX,
            mss: packet_payload(device.mtu()),
            device_payload: packet_payload(device.mtu()),
            peer_payload: u32::MAX,
            with_checksum: false,
            stamped: false,
            headroom: device.headroom(),
            most_packets: device.most_packets(),
            processor: Processor::current(),
        }
    }

    /// Returns the processor that packets name as the sender's.
    #[inline]
    pub(super) fn processor(&self) -> Processor {
        self.processor
    }

    /// Stores how much headroom `device` needs, and how many packets it accepts in one buffer.
    #[inline]
    pub(super) fn note_device(&mut self, device: &Device) {
        self.headroom = device.headroom();
        self.most_packets = device.most_packets();
    }

    /// Returns the payload bytes of a full packet.
    #[inline]
    pub(crate) fn mss(&self) -> u32 {
        self.mss
    }

    /// Returns the payload bytes of a packet with a device MTU of `mtu` bytes, as `ESP_SO_MTU`
    /// reports.
    pub(super) fn payload_with(&self, mtu: u32) -> u32 {
        esp::mss(mtu)
            .min(self.peer_payload)
            .saturating_sub(self.checksum_len() as u32)
    }

    /// Returns whether each packet has a checksum.
    #[inline]
    pub(super) fn has_checksum(&self) -> bool {
        self.with_checksum
    }

    /// Returns the length of a packet's checksum in bytes, or 0 if the packets have no checksums.
    #[inline]
    fn checksum_len(&self) -> usize {
        if self.with_checksum {
            CHECKSUM_LEN
        } else {
            0
        }
    }

    /// Returns whether a timestamp was ever requested for a packet. If so, the socket owns all
    /// packets, so that packets without a request do not overtake packets with one.
    #[inline]
    pub(super) fn is_stamped(&self) -> bool {
        self.stamped
    }

    /// Requests a timestamp for the byte queued last. Nothing more is appended to the packet with
    /// that byte, so that each send call gets reports of its own.
    pub(super) fn stamp_last(&mut self, engine: &mut Connection, stamp: &Stamp) {
        if let Some(last) = self.queue.last_mut() {
            last.request_stamp(stamp);
            self.stamped = true;
            engine.seal_last();
        }
    }

    /// Returns whether `MSG_MORE` holds a packet back.
    pub(super) fn is_corked(&self) -> bool {
        self.corked_until != u64::MAX
    }

    /// Returns the time until which a packet is held back at the latest; `u64::MAX` if no packet is
    /// held back.
    #[inline]
    pub(super) fn corked_until(&self) -> u64 {
        self.corked_until
    }

    /// Releases the packet that `MSG_MORE` holds back, so that the next transmission sends it.
    #[inline]
    pub(super) fn uncork(&mut self, engine: &mut Connection) {
        self.corked_until = u64::MAX;
        engine.hold_last(false);
    }

    /// Ends a send call: holds the last packet back if `more` was announced, or releases it. A full
    /// packet is always released, since holding it back gains nothing.
    #[inline]
    pub(super) fn cork(&mut self, engine: &mut Connection, more: bool, now: impl FnOnce() -> u64) {
        if !more || self.queue.last().is_none_or(is_whole) {
            return self.uncork(engine);
        }
        engine.hold_last(true);
        if !self.is_corked() {
            self.corked_until = now().saturating_add(CORK_NANOS);
        }
    }

    /// Returns the last buffer, if it was not sent and may be appended to.
    #[inline]
    pub(super) fn last_unsent(&self, engine: &Connection) -> Option<&Buffer> {
        self.queue.last().filter(|_| engine.last_takes_more())
    }

    /// Takes at most `rest` bytes of the message into the last packet (rule S5 in
    /// `docs/protocol.md`) or a new one, and returns the number of bytes taken.
    ///
    /// # Errors
    ///
    /// `EFAULT`, or `ENOBUFS` if there is no memory.
    #[inline]
    pub(super) fn take(
        &mut self,
        sock: &Sock<impl Protocol>,
        unacknowledged: &Unacknowledged,
        engine: &mut Connection,
        msg: &mut Message<'_>,
        rest: usize,
    ) -> Result<usize> {
        let mut taken = self.extend_last(sock, engine, msg, rest)?;
        let mut most = rest;
        if taken == 0 && (rest > self.mss as usize || msg.is_in_place()) {
            if engine.announces_short() && !msg.is_in_place() {
                most = SHORT;
            } else {
                taken = self.append_store(sock, engine, msg, rest)?;
                if taken == 0 {
                    msg.note_copy();
                }
            }
        }
        if taken == 0 {
            let grows = most == rest && announces_more(msg);
            taken = self.append(sock, engine, msg, most, grows)?;
            if most < rest {
                engine.seal_last();
            }
        }
        unacknowledged.add(taken);
        if taken == rest && ends_record(msg) {
            engine.seal_last();
        }
        Ok(taken)
    }

    /// Appends to the last packet if that packet was never sent and has room (rule S5 in
    /// `docs/protocol.md`). Returns the number of bytes taken.
    #[inline]
    fn extend_last(
        &mut self,
        sock: &Sock<impl Protocol>,
        engine: &mut Connection,
        msg: &mut Message<'_>,
        rest: usize,
    ) -> Result<usize> {
        if !engine.last_takes_more() {
            return Ok(0);
        }
        self.extend_unsent(sock, engine, msg, rest)
    }

    /// Appends to the last packet, which was never sent, if it has room. Returns the number of
    /// bytes taken.
    #[inline(never)]
    fn extend_unsent(
        &mut self,
        sock: &Sock<impl Protocol>,
        engine: &mut Connection,
        msg: &mut Message<'_>,
        rest: usize,
    ) -> Result<usize> {
        let mss = self.mss as usize;
        // Short messages that wait for the window are faster in packets of their own, so they get a
        // store only if a send call said that more bytes follow.
        let joins = rest > mss || self.is_corked();
        let Some(last) = self.queue.last_mut() else {
            return Ok(0);
        };
        if is_store(last) {
            resize(last, mss);
            return fill(sock, &mut self.pages, last, engine, msg, rest);
        }
        // After a split, a packet may share its bytes with an earlier clone that was sent. A
        // message whose bytes stay in the program's pages goes to a new store, a buffer for many
        // packets.
        if last.is_cloned() || msg.is_in_place() {
            return Ok(0);
        }
        let room = mss.saturating_sub(last.len());
        if joins && rest > room && room > 0 && made_store(sock, &mut self.pages, last) {
            resize(last, mss);
            return fill(sock, &mut self.pages, last, engine, msg, rest);
        }
        let take = rest.min(room).min(last.tailroom());
        if take > 0 {
            last.put_from(msg, take)?;
        }
        Ok(take)
    }

    /// Appends the whole message to the last packet. The caller has checked
    /// [`Connection::last_takes_more`]. Returns `false` if the packet's buffer has no room, or if
    /// the message cannot be read.
    #[inline(always)]
    pub(super) fn join_last(
        &mut self,
        unacknowledged: &Unacknowledged,
        msg: &mut Message<'_>,
        len: usize,
    ) -> bool {
        let mss = self.mss as usize;
        let Some(last) = self.queue.last_mut() else {
            return false;
        };
        if is_store(last)
            || last.len().saturating_add(len) > mss
            || last.put_from(msg, len).is_err()
        {
            return false;
        }
        unacknowledged.add(len);
        true
    }

    /// Queues a new store, a buffer for many packets. Returns the number of bytes taken; 0 if the
    /// socket cannot have stores.
    #[inline(never)]
    fn append_store(
        &mut self,
        sock: &Sock<impl Protocol>,
        engine: &mut Connection,
        msg: &mut Message<'_>,
        rest: usize,
    ) -> Result<usize> {
        let headroom = self.headroom.saturating_add(HEADER_LEN);
        let mut store = Skb::store(headroom, sock.task_context()).ok_or(ENOBUFS)?;
        store.release_header();
        self.admit(sock, engine, &mut store, 0);
        let taken = fill(sock, &mut self.pages, &mut store, engine, msg, rest);
        if let Ok(1..) = taken {
            self.queue.push(store);
        } else {
            discharge(sock, store.truesize());
        }
        taken
    }

    /// Queues a new packet. Returns the number of bytes taken. If the packet will be held back for
    /// the bytes of later calls (`grows`), it gets room for some.
    #[inline]
    fn append(
        &mut self,
        sock: &Sock<impl Protocol>,
        engine: &mut Connection,
        msg: &mut Message<'_>,
        rest: usize,
        grows: bool,
    ) -> Result<usize> {
        let mss = self.mss as usize;
        let take = rest.min(mss);
        // If the packet cannot be sent at once, the packet gets room for the bytes of later calls.
        let kept_free = if engine.last_is_unsent() {
            mss
        } else if grows {
            mss.min(MOST_HELD_ROOM)
        } else {
            0
        };
        let size = if ends_record(msg) {
            take
        } else {
            take.max(kept_free)
        };
        let headroom = self.headroom.saturating_add(HEADER_LEN);
        let room = size.saturating_add(self.checksum_len());
        let mut skb = self
            .skb_pool
            .take(headroom, room)
            .or_else(|| Skb::alloc(headroom, room, sock.task_context()))
            .ok_or(ENOBUFS)?;
        skb.put_from(msg, take)?;
        skb.release_header();
        self.admit(sock, engine, &mut skb, 1);
        self.queue.push(skb);
        engine.enqueue(1);
        Ok(take)
    }

    /// Numbers and charges a new buffer with `count` packets, before it joins the queue.
    #[inline]
    fn admit(&mut self, sock: &RawSock, engine: &Connection, buffer: &mut Buffer, count: u16) {
        buffer.set_note(TxCb {
            seq: engine.next_number().0,
            count,
            size: self.mss as u16,
            flags: 0,
            acked_bytes: 0,
        });
        if engine.unacked() == 0 {
            self.processor = Processor::current();
        }
        charge(sock, buffer.truesize());
    }

    /// Returns, for transmission, `count` packets of a [run](esp::WriteQueue::run). The first of
    /// them has the sequence number of `header`. The write queue keeps the packets' payload and
    /// flags. `mask` is the mask of each packet's checksum, if packets have checksums.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there are no such packets, `ENOBUFS` if there is no memory.
    #[inline]
    pub(super) fn packets(&mut self, mut header: Header, count: u16, mask: u32) -> Result<Skb> {
        let kept = self.queue.seek(header.seq.0).ok_or(ENOENT)?;
        let note: TxCb = kept.note();
        let clones = self.headroom < TUNNEL_HEADROOM;
        if is_store(kept) {
            let whole = clones && count > 1 && note.is_all(header.seq, count);
            if !whole || !kept.set_packets(note.size, count) {
                return self.view(header, count, mask);
            }
            if self.with_checksum {
                kept.set_mask_of_run(mask);
            }
        }
        header.len = kept.len() as u16;
        kept.set_note(TxCb {
            flags: header.flags,
            ..note
        });
        // If a device, or a receiver on this host, still holds an earlier clone, `with_header`
        // returns a copy of the packet and not another clone.
        //
        // Most packets have neither checksum nor timestamp (`is_plain`). The bitwise operators test
        // this with a single branch.
        #[allow(clippy::needless_bitwise_bool)]
        let is_plain = clones & !self.with_checksum & !self.stamped;
        if is_plain {
            return kept
                .with_header(&header.with_checksum(false).emit(), Context::Softirq)
                .ok_or(ENOBUFS);
        }
        let single = self.with_checksum && count == 1;
        if single && clones {
            let header = header.with_checksum(true).emit();
            if let Some(mut skb) = kept.with_header_and_sum(&header, mask, Context::Softirq) {
                kept.copy_stamp(&mut skb);
                return Ok(skb);
            }
        }
        if single || !clones {
            return self.copy(header, mask);
        }
        let mut skb = kept
            .with_header(
                &header.with_checksum(self.with_checksum).emit(),
                Context::Softirq,
            )
            .ok_or(ENOBUFS)?;
        if self.stamped {
            kept.copy_stamp(&mut skb);
        }
        Ok(skb)
    }

    /// Like [`packets`](Self::packets), but copies the packet, which is the only one in its buffer.
    /// A copy is needed if a tunnel's headers do not fit in front of the queued packet. It is also
    /// needed if an earlier clone still has its checksum behind the packet.
    #[cold]
    #[inline(never)]
    fn copy(&mut self, header: Header, mask: u32) -> Result<Skb> {
        let kept = self.queue.seek(header.seq.0).ok_or(ENOENT)?;
        let size = kept.len().saturating_add(HEADER_LEN + CHECKSUM_LEN);
        let mut copy = Skb::alloc_single(self.headroom, size, Context::Softirq).ok_or(ENOBUFS)?;
        let whole = copy.put(&header.with_checksum(self.with_checksum).emit())
            && copy.put_copy(kept, 0, kept.len())
            && (!self.with_checksum || copy.append_sum(mask));
        kept.copy_stamp(&mut copy);
        whole.then_some(copy).ok_or(ENOBUFS)
    }

    /// Like [`packets`](Self::packets), but returns packets of stores as a view of the stores'
    /// pages.
    #[inline(never)]
    fn view(&mut self, mut header: Header, count: u16, mask: u32) -> Result<Skb> {
        // The flags are stored before anything can fail because packets that are not sent are
        // retransmitted with the same flags.
        self.keep(header.seq, flags::TXS, header.flags);
        let last = header.seq.add(count.saturating_sub(1));
        self.keep(last, flags::TXF, header.flags);
        let headroom = self.headroom.saturating_add(HEADER_LEN);
        let mut view = Skb::viewer(headroom, Context::Softirq).ok_or(ENOBUFS)?;
        let stamped = self.stamped;
        let mut cursor = self.queue.cursor(header.seq.0);
        let mut seq = header.seq;
        let mut left = count;
        let mut size = 0;
        while left > 0 {
            let store = cursor.current().ok_or(ENOENT)?;
            let note: TxCb = store.note();
            let index = Seq(note.seq).distance(seq);
            let here = note.count.saturating_sub(index).min(left);
            let end = index.saturating_add(here);
            let start = note.offset(index);
            let ends = end == note.count;
            let behind = if ends { store.len() } else { note.offset(end) };
            if here == 0 || !view.append_view(store, start, behind.saturating_sub(start)) {
                return Err(ENOBUFS);
            }
            if stamped && ends && here == left {
                store.copy_stamp(&mut view);
            }
            left = left.saturating_sub(here);
            seq = seq.add(here);
            size = note.size;
            cursor.advance();
        }
        header.len = view.len() as u16;
        // If there are several packets, their checksums are computed when the buffer is segmented.
        let told = count == 1 || view.set_packets(size, count);
        if self.with_checksum && count > 1 {
            view.set_mask_of_run(mask);
        }
        let whole = told
            && view.push(&header.with_checksum(self.with_checksum).emit())
            && (!self.with_checksum || count > 1 || view.append_sum(mask));
        whole.then_some(view).ok_or(ENOBUFS)
    }

    /// Stores whether the packet `seq` is sent with `flag`, that is, whether `flags` contains
    /// `flag`. `flag` is `TXS` or `TXF`. Does nothing if the buffer does not store `flag` for this
    /// packet (see [`flags_in`]).
    #[inline]
    fn keep(&mut self, seq: Seq, flag: u8, flags: u8) {
        let Some(buffer) = self.queue.seek(seq.0) else {
            return;
        };
        let note: TxCb = buffer.note();
        let all = TxCb {
            flags: flag,
            ..note
        };
        if flags_in(&all, seq) == flag {
            buffer.set_note(TxCb {
                flags: note.flags & !flag | flags & flag,
                ..note
            });
        }
    }

    /// Frees `count` acknowledged packets at the head of the write queue.
    #[inline]
    pub(super) fn free_acknowledged<P: Protocol>(
        &mut self,
        sock: &Sock<P>,
        unacknowledged: &Unacknowledged,
        engine: &Connection,
        count: u16,
    ) {
        // The pool keeps at most one packet for each unacknowledged packet, but may always keep
        // one. So an idle sender holds little memory.
        let most = engine.unacked().clamp(1, MOST_SPARES);
        self.skb_pool.limit(most);
        let mut count = count;
        while let Some(first) = self.queue.first_mut().filter(|_| count > 0) {
            let mut note: TxCb = first.note();
            if note.count > count {
                unacknowledged.sub(usize::from(count).saturating_mul(note.size.into()));
                note.acknowledge(count);
                return first.set_note(note);
            }
            count = count.saturating_sub(note.count);
            if let Some(skb) = self.queue.pop() {
                uncharge(sock, unacknowledged, &skb);
                if self.stamped && skb.is_stamped() {
                    skb.report_acknowledged(sock);
                    skb.consume();
                    continue;
                }
                self.skb_pool.put(skb, most);
            }
        }
    }

    /// Empties the write queue. Its bytes still count as unacknowledged, as in TCP.
    pub(super) fn discard(&mut self, sock: &RawSock) {
        while let Some(skb) = self.queue.pop() {
            discharge(sock, skb.truesize());
            skb.purge();
        }
        self.free_spares();
    }

    /// Frees the memory kept for the next packets.
    pub(super) fn free_spares(&mut self) {
        self.skb_pool.limit(0);
        self.pages.free();
    }
}

impl esp::WriteQueue for Sending {
    #[inline(never)]
    fn flags(&mut self, seq: Seq) -> u8 {
        self.queue
            .seek(seq.0)
            .map_or(0, |buffer| flags_in(&buffer.note(), seq))
    }

    #[inline(never)]
    fn run(&mut self, seq: Seq) -> u16 {
        let most_packets = self.most_packets;
        let mut cursor = self.queue.cursor(seq.0);
        let Some(first) = cursor.current().filter(|first| is_store(first)) else {
            return 1;
        };
        let note: TxCb = first.note();
        let most = MOST_IN_RUN.checked_div(note.size.into()).unwrap_or(1);
        let mut most = u16::try_from(most).unwrap_or(u16::MAX).min(most_packets);
        if self.with_checksum {
            // The packets of a run share a mask. The mask changes where the sequence numbers wrap,
            // so the run ends there.
            most = most.min(seq.before_wrap());
        }
        let index = Seq(note.seq).distance(seq);
        let mut run = note.count.saturating_sub(index);
        if run >= most {
            return most.max(1);
        }
        // Only the last packet of a run can have a timestamp.
        let stamped = self.stamped;
        let goes_on = |buffer: &Buffer| {
            is_whole(buffer)
                && buffer.note::<TxCb>().flags & flags::TXF == 0
                && !(stamped && buffer.is_stamped())
        };
        let mut fragments = first.fragments_in(note.offset(index), usize::MAX);
        let mut whole = goes_on(first);
        let notice = first.notice_id();
        // A run continues in the next store under three conditions: the packets of that store have
        // the same size, they belong to the same transmission, and the pages of that store have the
        // same completion notice.
        while run < most && whole {
            cursor.advance();
            let Some(next) = cursor.current().filter(|next| is_store(next)) else {
                break;
            };
            let more: TxCb = next.note();
            let bytes = usize::from(most.saturating_sub(run)).saturating_mul(more.size.into());
            fragments =
                fragments.saturating_add(next.fragments_in(more.acked_bytes as usize, bytes));
            let same_run = more.size == note.size && next.notice_id() == notice;
            if !same_run || fragments > most_fragments() {
                break;
            }
            run = run.saturating_add(more.count);
            whole = goes_on(next);
        }
        run.min(most).max(1)
    }
}

/// Makes the packets of an unsent store `mss` bytes large. The store was made for packets of
/// another size, if the limit has changed since and no packet exceeds the new one.
#[inline]
fn resize(store: &mut Buffer, mss: usize) {
    let note: TxCb = store.note();
    if note.count == 1 && unacknowledged_in(store) <= mss {
        store.set_note(TxCb {
            size: mss as u16,
            ..note
        });
    }
}

/// Makes a store of a packet in a buffer of its own, so that the bytes of a later call join it in
/// one buffer, as if a single call had passed all of them. Returns `false`, and leaves the packet
/// as it was, if it cannot be moved to a page.
#[cold]
#[inline(never)]
fn made_store(sock: &Sock<impl Protocol>, pages: &mut PageRing, packet: &mut Buffer) -> bool {
    let before = packet.truesize();
    let moved = packet.move_to_page(pages, sock);
    charge(sock, packet.truesize().saturating_sub(before));
    moved
}

/// Fills a store with at most `rest` bytes of the message, as far as the store, the send buffer and
/// the free sequence numbers permit. Reports the packets to the engine. Returns the number of bytes
/// taken.
#[inline(never)]
fn fill(
    sock: &Sock<impl Protocol>,
    pages: &mut PageRing,
    store: &mut Buffer,
    engine: &mut Connection,
    msg: &mut Message<'_>,
    rest: usize,
) -> Result<usize> {
    let mut note: TxCb = store.note();
    let size: usize = note.size.into();
    let packets = |n: usize| n.saturating_mul(size);
    let there = unacknowledged_in(store);
    // All packets but the message's last one are full, so that a run can continue in the next
    // store.
    let capacity = packets((MOST_IN_RUN / size.max(1)).max(1)).saturating_sub(store.len());
    let numbers = packets(usize::from(note.count).saturating_add(engine.free_numbers().into()));
    let room = sock
        .send_limit()
        .saturating_sub(sock.write_queued().load(Relaxed)) as usize;
    let buffer = packets(there.saturating_add(room.max(1)).div_ceil(size.max(1)));
    let most = capacity.min(numbers.min(buffer).saturating_sub(there));
    let before = store.truesize();
    let taken = store.append(pages, sock, msg, rest.min(most));
    charge(sock, store.truesize().saturating_sub(before));
    let taken = taken?;
    let count = packets_in(there.saturating_add(taken), size);
    engine.enqueue(count.saturating_sub(note.count));
    note.count = count;
    store.set_note(note);
    Ok(taken)
}

/// Returns `TXS` and `TXF` as they are stored in `note`, the note of a buffer, for the packet
/// `seq`.
#[inline]
fn flags_in(note: &TxCb, seq: Seq) -> u8 {
    let index = Seq(note.seq).distance(seq);
    let mut mask = 0;
    if index == 0 {
        mask |= flags::TXS;
    }
    if index.saturating_add(1) == note.count {
        mask |= flags::TXF;
    }
    note.flags & mask
}

/// Returns whether all packets of a buffer are full, so that a run can continue in the next buffer.
#[inline]
fn is_whole(buffer: &Buffer) -> bool {
    let note: TxCb = buffer.note();
    unacknowledged_in(buffer) == usize::from(note.count).saturating_mul(note.size.into())
}

/// Returns the payload bytes of a full packet on a device with an MTU of `mtu` bytes. The result is
/// at least 1, since some devices permit an MTU of 0.
fn packet_payload(mtu: u32) -> u32 {
    esp::mss(mtu).max(1)
}
