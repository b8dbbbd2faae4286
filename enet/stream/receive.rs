// SPDX-License-Identifier: GPL-2.0

//! The receiving part of an ESP connection: what packets cost in the receive queue, and what
//! readers and acknowledgements wait for. The queue itself is the core's.

use crate::{
    esp::{self, records, Connection},
    net::sock::RawSock,
};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU8, Ordering::Relaxed};

/// An acknowledgement waits for data to carry it, or for the reader to fall asleep.
const FALL_ASLEEP: u8 = 1;
/// An acknowledgement that opens the peer's window is withheld until the reader makes room.
const MAKE_ROOM: u8 = 2;

/// A frame's memory beside its payload, at the least, bytes: descriptor and shared part.
const BUFFER_OVERHEAD: u32 = 768;

/// Received bytes that no call has read, or, of a listener, connections that wait for `accept`:
/// written by the lock holder, read by anyone.
#[derive(Default)]
pub(crate) struct Unread {
    count: AtomicU32,
    /// The acts of a reader that acknowledgements wait for: [`FALL_ASLEEP`], [`MAKE_ROOM`].
    awaited: AtomicU8,
    /// Memory of packets that are kept behind a hole, bytes.
    behind: AtomicU32,
}

impl Unread {
    /// The number.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Sets the number.
    #[inline]
    pub(super) fn set(&self, count: u32) {
        self.count.store(count, Relaxed);
    }

    /// Bytes were received.
    #[inline]
    pub(super) fn add(&self, bytes: usize) {
        self.set(self.count().wrapping_add(bytes as u32));
    }

    /// Bytes were read.
    #[inline]
    pub(super) fn sub(&self, bytes: usize) {
        self.set(self.count().wrapping_sub(bytes as u32));
    }

    /// Memory of packets that are kept behind a hole, bytes.
    #[inline]
    pub(super) fn behind(&self) -> u32 {
        self.behind.load(Relaxed)
    }

    /// Sets that memory.
    pub(super) fn set_behind(&self, bytes: u32) {
        self.behind.store(bytes, Relaxed);
    }

    /// Receive memory of packets that calls can read, bytes.
    #[inline]
    fn queued(&self, sock: &RawSock) -> u32 {
        sock.receive_queued().saturating_sub(self.behind())
    }

    /// Whether an acknowledgement waits for the reader.
    #[inline]
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(Relaxed) != 0
    }

    /// Whether an acknowledgement waits for data, or for the reader to fall asleep.
    #[inline]
    pub(super) fn awaits_sleep(&self) -> bool {
        self.awaited.load(Relaxed) & FALL_ASLEEP != 0
    }

    /// Takes in what the engine's acknowledgements wait for. `true` if one begins to wait for room.
    #[inline]
    pub(super) fn note_awaited(&self, engine: &Connection) -> bool {
        let mut awaited = 0;
        if engine.waits_for_data() {
            awaited |= FALL_ASLEEP;
        }
        if engine.waits_for_room() {
            awaited |= MAKE_ROOM;
        }
        let new = awaited & !self.awaited.load(Relaxed);
        self.awaited.store(awaited, Relaxed);
        new & MAKE_ROOM != 0
    }

    /// Whether poll reports the socket readable: as much has come as `SO_RCVLOWAT` wants, or as can
    /// come. No more can when the receive buffer is half full, or when the peer has no window until
    /// there is room.
    #[inline]
    pub(super) fn is_readable(&self, sock: &RawSock) -> bool {
        let unread = self.count() as usize;
        let enough = unread >= sock.low_water(false, usize::MAX);
        if enough {
            return unread > 0;
        }
        let full = self.queued(sock) >= sock.receive_limit() / 2
            || self.awaited.load(Relaxed) & MAKE_ROOM != 0;
        unread > 0 && full
    }
}

/// The packets that the peer may have on their way: the lock holder writes it, and the packet
/// handler reads it while a task owns the socket.
#[derive(Default)]
pub(super) struct Promise {
    /// Packets behind the number given last.
    granted: AtomicU16,
    /// The most memory that one has cost, bytes.
    packet: AtomicU32,
}

impl Promise {
    /// Takes in how many packets the peer may send.
    #[inline]
    pub(super) fn set_granted(&self, packets: u16) {
        self.granted.store(packets, Relaxed);
    }

    /// Memory that packets may take in any case while a task owns the socket, bytes: some of what
    /// [`backlog_limit`](Self::backlog_limit) says, which takes longer to compute and is needed for
    /// few packets.
    #[inline]
    pub(super) fn least_backlog_limit(sock: &RawSock) -> u32 {
        let limit = sock.receive_limit();
        limit.saturating_mul(2).saturating_add(sock.send_limit())
    }

    /// Memory that packets may take while a task owns the socket, bytes; one that arrives costs
    /// `packet` bytes.
    ///
    /// All that was granted fits. A packet counts until all of the backlog is processed, also when
    /// it is in the receive queue by then: twice. Meanwhile nothing is read, so the queue takes no
    /// more than it has room for and was promised. Acknowledgements of what this end has sent come
    /// beside that.
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
            // A record that arrives has room of its own.
            most = most.saturating_add(records::largest_record(limit));
        }
        most.saturating_mul(2).saturating_add(sock.send_limit())
    }
}

/// The receiving part.
pub(super) struct Receiving {
    /// Memory that a full packet costs in the receive queue, bytes: the most seen so far.
    packet_cost: u32,
    /// The same of those that have come.
    largest_seen: u32,
    /// The peer has ended its half: reading ends there, whatever happens later.
    peer_ended: bool,
}

impl Receiving {
    /// For packets of at most `mss` bytes of payload.
    pub(super) fn new(mss: u32) -> Self {
        Receiving {
            packet_cost: mss.saturating_add(BUFFER_OVERHEAD),
            largest_seen: 0,
            peer_ended: false,
        }
    }

    /// Takes in that packets have at most `mss` bytes of payload from now on.
    pub(super) fn resize(&mut self, mss: u32) {
        self.packet_cost = self.packet_cost.max(mss.saturating_add(BUFFER_OVERHEAD));
    }

    /// As [`new`](Self::new), before any packet has come.
    pub(super) fn begin(&mut self, mss: u32) {
        self.packet_cost = mss.saturating_add(BUFFER_OVERHEAD);
    }

    /// Takes in that a packet of the peer's costs `truesize` bytes of memory.
    #[inline]
    pub(super) fn note_cost(&mut self, promise: &Promise, truesize: u32) {
        if truesize > self.largest_seen {
            self.largest_seen = truesize;
            self.packet_cost = self.packet_cost.max(truesize);
            promise.packet.store(truesize, Relaxed);
        }
    }

    /// The receive queue, for the engine, with `arriving` bytes of memory about to join it.
    #[inline]
    pub(super) fn room(&self, sock: &RawSock, unread: &Unread, arriving: u32) -> esp::Room {
        esp::Room {
            queued: unread.queued(sock),
            limit: sock.receive_limit(),
            arriving,
            packet: self.packet_cost,
        }
    }

    /// As [`room`](Self::room), if the queue has records. One that arrives has room of its own if
    /// there is none to be read: nobody could make room for it.
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

    /// The peer has ended its half.
    pub(super) fn end(&mut self) {
        self.peer_ended = true;
    }

    /// Whether the peer has ended its half.
    pub(super) fn has_ended(&self) -> bool {
        self.peer_ended
    }
}
