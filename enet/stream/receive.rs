// SPDX-License-Identifier: GPL-2.0

//! The receiving part of an ESP connection: the memory of packets in the receive queue, and the
//! conditions that readers and acknowledgements wait for. The receive queue itself belongs to the
//! kernel's `struct sock`.

use super::domain::Rest;
use crate::{
    esp::{self, records, Connection},
    net::{
        once::Once,
        ring::Ring,
        sock::{Protocol, RawSock, Sock, TcpState},
        uapi,
    },
};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU8, Ordering::Relaxed};

/// Bit of [`Unread`]: an acknowledgement waits until outgoing data can carry it or the reader
/// sleeps.
const FALL_ASLEEP: u8 = 1;
/// Bit of [`Unread`]: an acknowledgement that opens the peer's window is withheld until the reader
/// makes room.
const MAKE_ROOM: u8 = 2;

/// The least amount of memory that a frame takes besides its payload, in bytes: the `sk_buff` and
/// the shared info.
const BUFFER_OVERHEAD: u32 = 768;

/// Returns whether a reader must stop waiting: because of an error, because the receiving direction
/// is shut down, or because the connection is over.
pub(super) fn is_over(sock: &Sock<impl Protocol>) -> bool {
    sock.has_error()
        || sock.shutdown() & uapi::RCV_SHUTDOWN != 0
        || sock.tcp_state() == TcpState::Close as u8
}

/// Unread bytes or, for a listener, the length of the accept queue. Written by the lock holder,
/// read in any context.
#[derive(Default)]
pub(crate) struct Unread {
    count: AtomicU32,
    /// The reader's actions that acknowledgements wait for: [`FALL_ASLEEP`], [`MAKE_ROOM`].
    awaited: AtomicU8,
    /// Memory of the out-of-order packets that are kept, in bytes.
    out_of_order_memory: AtomicU32,
    /// The ring that receives the bytes while no others are queued, if the program has asked for
    /// one. Its bytes do not count in `count`, and take no receive memory.
    pub(super) ring: Once<Ring>,
}

impl Unread {
    /// Returns the number of unread bytes, or the length of the accept queue.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Sets the number of unread bytes, or the length of the accept queue.
    #[inline]
    pub(super) fn set(&self, count: u32) {
        self.count.store(count, Relaxed);
    }

    /// Returns the number of unread bytes, those in the ring included.
    #[inline]
    pub(crate) fn all(&self) -> u32 {
        let in_ring = self.ring.get().map_or(0, Ring::unread);
        self.count().saturating_add(in_ring as u32)
    }

    /// Adds received bytes.
    #[inline]
    pub(super) fn add(&self, bytes: usize) {
        self.set(self.count().wrapping_add(bytes as u32));
    }

    /// Subtracts bytes that were read.
    #[inline]
    pub(super) fn sub(&self, bytes: usize) {
        self.set(self.count().wrapping_sub(bytes as u32));
    }

    /// Returns the memory of the out-of-order packets that are kept, in bytes.
    #[inline]
    pub(super) fn out_of_order_memory(&self) -> u32 {
        self.out_of_order_memory.load(Relaxed)
    }

    /// Sets the memory of the out-of-order packets that are kept, in bytes.
    pub(super) fn set_out_of_order_memory(&self, bytes: u32) {
        self.out_of_order_memory.store(bytes, Relaxed);
    }

    /// Returns the receive memory of packets that calls can read, in bytes.
    #[inline]
    fn queued(&self, sock: &RawSock) -> u32 {
        sock.receive_queued()
            .saturating_sub(self.out_of_order_memory())
    }

    /// Returns whether an acknowledgement is held back until the reader reads or sleeps.
    #[inline]
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(Relaxed) != 0
    }

    /// Returns whether an acknowledgement waits until data can carry it or the reader sleeps.
    #[inline]
    pub(super) fn awaits_sleep(&self) -> bool {
        self.awaited.load(Relaxed) & FALL_ASLEEP != 0
    }

    /// Stores for which of the reader's actions the engine holds back acknowledgements. Returns
    /// `true` if an acknowledgement begins to wait until the reader makes room.
    #[inline]
    pub(super) fn note_awaited(&self, engine: &Connection) -> bool {
        let mut awaited = 0;
        if engine.waits_for_sleep() {
            awaited |= FALL_ASLEEP;
        }
        if engine.waits_for_room() {
            awaited |= MAKE_ROOM;
        }
        let new = awaited & !self.awaited.load(Relaxed);
        self.awaited.store(awaited, Relaxed);
        new & MAKE_ROOM != 0
    }

    /// Returns whether poll reports the socket readable. It is readable if at least `SO_RCVLOWAT`
    /// bytes are unread. It is also readable if some bytes are unread, and possibly no more arrive
    /// until the reader makes room. That is possible if the receive buffer is half full, or if the
    /// peer has no window.
    #[inline]
    pub(super) fn is_readable(&self, sock: &RawSock) -> bool {
        let enough = sock.low_water(false, usize::MAX).max(1);
        if self.count() as usize >= enough {
            return true;
        }
        let unread = self.all() as usize;
        if unread >= enough {
            return true;
        }
        let full = self.queued(sock) >= sock.receive_limit() / 2
            || self.awaited.load(Relaxed) & MAKE_ROOM != 0;
        unread > 0 && full
    }
}

/// How much this end has allowed the peer to have in flight. Written with the socket locked. The
/// packet handler also reads it while a task owns the socket.
#[derive(Default)]
pub(super) struct Promise {
    /// Number of packets that the peer may send after the last acknowledged sequence number.
    granted: AtomicU16,
    /// The largest amount of memory that a packet has taken so far, in bytes.
    packet: AtomicU32,
}

impl Promise {
    /// Sets the number of packets that the peer may send.
    #[inline]
    pub(super) fn set_granted(&self, packets: u16) {
        self.granted.store(packets, Relaxed);
    }

    /// Returns the memory in bytes that packets may always take while a task owns the socket. The
    /// result is a lower bound of [`backlog_limit`](Self::backlog_limit). The exact value takes
    /// longer to compute, and is rarely needed.
    #[inline]
    pub(super) fn least_backlog_limit(sock: &RawSock) -> u32 {
        let limit = sock.receive_limit();
        limit.saturating_mul(2).saturating_add(sock.send_limit())
    }

    /// Returns the memory in bytes that packets may take while a task owns the socket; an arriving
    /// packet takes `packet` bytes.
    ///
    /// The limit has room for a full receive queue and for all packets that the peer was granted.
    /// It has this room twice, because a packet counts in the backlog until the whole backlog is
    /// processed, even once the packet is in the receive queue. The limit also has room for
    /// acknowledgements of this end's data.
    #[cold]
    #[inline(never)]
    pub(super) fn backlog_limit(&self, sock: &RawSock, packet: u32) -> u32 {
        let limit = sock.receive_limit();
        let room = esp::Room {
            queued: 0,
            limit,
            arriving: 0,
            packet: packet.max(self.packet.load(Relaxed)),
        };
        let kept = u32::from(room.kept(self.granted.load(Relaxed))).saturating_mul(room.packet);
        let mut most = limit.saturating_add(kept);
        if sock.keeps_records() {
            // Besides the receive queue, an arriving record has room of its own.
            most = most.saturating_add(records::largest_record(limit));
        }
        most.saturating_mul(2).saturating_add(sock.send_limit())
    }
}

/// The receiving part of a connection.
pub(super) struct Receiving {
    /// Memory of a full packet in the receive queue, in bytes: an estimate, or the most seen so far
    /// if that is more.
    packet_cost: u32,
    /// The largest amount of memory that a received packet has taken so far, in bytes.
    largest_seen: u32,
    /// Whether the peer has shut down its sending direction. Calls then read the end of the stream,
    /// whatever happens to the connection later.
    peer_ended: bool,
    /// On a channel, the rest of a message, of which a part has arrived.
    pub(super) message: Option<Rest>,
}

impl Receiving {
    /// Creates the receiving part for packets of at most `mss` bytes of payload.
    pub(super) fn new(mss: u32) -> Self {
        Receiving {
            packet_cost: mss.saturating_add(BUFFER_OVERHEAD),
            largest_seen: 0,
            peer_ended: false,
            message: None,
        }
    }

    /// Changes the largest payload of a packet to `mss` bytes.
    pub(super) fn resize(&mut self, mss: u32) {
        self.packet_cost = self.packet_cost.max(mss.saturating_add(BUFFER_OVERHEAD));
    }

    /// Sets the largest payload like [`new`](Self::new), before any packet was received.
    pub(super) fn begin(&mut self, mss: u32) {
        self.packet_cost = mss.saturating_add(BUFFER_OVERHEAD);
    }

    /// Updates the estimates for a received packet that takes `truesize` bytes of memory.
    #[inline]
    pub(super) fn note_cost(&mut self, promise: &Promise, truesize: u32) {
        if truesize > self.largest_seen {
            self.largest_seen = truesize;
            self.packet_cost = self.packet_cost.max(truesize);
            promise.packet.store(truesize, Relaxed);
        }
    }

    /// Describes the receive queue to the engine, with `arriving` bytes of memory about to join it.
    #[inline]
    pub(super) fn room(&self, sock: &RawSock, unread: &Unread, arriving: u32) -> esp::Room {
        esp::Room {
            queued: unread.queued(sock),
            limit: sock.receive_limit(),
            arriving,
            packet: self.packet_cost,
        }
    }

    /// Describes a queue of records like [`room`](Self::room). If no complete record is queued, an
    /// arriving record has room of its own, since no reader could make room for it.
    #[cold]
    #[inline(never)]
    pub(super) fn room_of_records(
        &self,
        sock: &RawSock,
        unread: &Unread,
        arriving: u32,
    ) -> esp::Room {
        let room = self.room(sock, unread, arriving);
        if unread.count() > 0 {
            return room;
        }
        esp::Room {
            queued: 0,
            arriving: 0,
            ..room
        }
    }

    /// Stores that the peer has shut down its sending direction.
    pub(super) fn end(&mut self) {
        self.peer_ended = true;
    }

    /// Returns whether the peer has shut down its sending direction.
    pub(super) fn has_ended(&self) -> bool {
        self.peer_ended
    }
}
