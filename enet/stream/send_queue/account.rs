// SPDX-License-Identifier: GPL-2.0

//! The account of the send buffer: the memory in the write queue, and the unacknowledged and the
//! unsent bytes.

use super::{unacknowledged_in, Sending};
use crate::{
    esp::{Connection, Seq},
    net::{skb::Skb, sock::RawSock},
    skb_cb::TxCb,
};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The limit of unsent bytes counts those of at most this many buffers. With more of them, a stream
/// is at its limit, so that small writes do not make the handling of a packet long.
const MOST_COUNTED: usize = 64;

/// Payload bytes that the peer has not acknowledged. Written by the lock holder, read in any
/// context.
#[derive(Default)]
pub(crate) struct Unacknowledged(AtomicU32);

impl Unacknowledged {
    /// Returns the number of unacknowledged bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Forgets the bytes of an earlier connection.
    pub(in crate::stream) fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    #[inline]
    pub(super) fn add(&self, bytes: usize) {
        let sum = self.bytes().saturating_add(bytes as u32);
        self.0.store(sum, Relaxed);
    }

    #[inline]
    pub(super) fn sub(&self, bytes: usize) {
        let rest = self.bytes().saturating_sub(bytes as u32);
        self.0.store(rest, Relaxed);
    }
}

/// `TCP_NOTSENT_LOWAT` of a mapped socket: with as many unsent bytes, the stream takes no further
/// ones.
pub(crate) struct UnsentLimit(AtomicU32);

impl Default for UnsentLimit {
    fn default() -> Self {
        UnsentLimit(AtomicU32::new(u32::MAX))
    }
}

impl UnsentLimit {
    /// Sets the limit in bytes. `u32::MAX` is no limit.
    pub(in crate::stream) fn set(&self, bytes: u32) {
        self.0.store(bytes, Relaxed);
    }

    /// Returns the limit in bytes. `u32::MAX` is no limit.
    pub(in crate::stream) fn bytes(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Returns whether there is a limit.
    #[inline]
    pub(in crate::stream) fn is_set(&self) -> bool {
        self.0.load(Relaxed) != u32::MAX
    }

    /// Returns whether a stream with `unsent` bytes takes further ones.
    pub(in crate::stream) fn admits(&self, unsent: u32) -> bool {
        unsent < self.0.load(Relaxed)
    }

    /// Returns whether a stream with `unsent` bytes is writable. As in TCP, writers wait until half
    /// of the limit is free, so that they are not woken for each packet.
    pub(in crate::stream) fn is_writable(&self, unsent: u32) -> bool {
        self.admits(unsent.saturating_mul(2))
    }
}

impl Sending {
    /// Returns the payload bytes that were never sent.
    pub(crate) fn unsent(&mut self, engine: &Connection) -> u32 {
        self.count_unsent(engine, u32::MAX, usize::MAX)
    }

    /// Returns the payload bytes that were never sent, or `limit` if they are as many or are in
    /// more than [`MOST_COUNTED`] buffers. Unlike [`unsent`](Self::unsent), this takes bounded
    /// time.
    pub(crate) fn unsent_up_to(&mut self, engine: &Connection, limit: u32) -> u32 {
        self.count_unsent(engine, limit, MOST_COUNTED)
    }

    /// Returns the payload bytes that were never sent, or `limit` if they are as many or are in
    /// more than `buffers` buffers.
    fn count_unsent(&mut self, engine: &Connection, limit: u32, buffers: usize) -> u32 {
        let unsent = engine.unsent();
        if unsent == 0 {
            return 0;
        }
        let sent = engine.unacked().saturating_sub(unsent);
        let first = engine.first_unacked().add(sent);
        let mut cursor = self.queue.cursor(first.0);
        let mut sum: u32 = 0;
        for _ in 0..buffers {
            let Some(buffer) = cursor.current() else {
                return sum;
            };
            let note: TxCb = buffer.note();
            let start = Seq(note.seq);
            let bytes = if first.after(start) {
                let sent = note.offset(start.distance(first));
                buffer.len().saturating_sub(sent)
            } else {
                unacknowledged_in(buffer)
            };
            sum = sum.saturating_add(bytes as u32);
            if sum >= limit {
                return limit;
            }
            cursor.advance();
        }
        limit
    }
}

/// Returns whether poll reports the socket writable. As with the kernel's other stream sockets, the
/// socket is writable if a third of the send buffer is free.
#[inline]
pub(in crate::stream) fn writable(sock: &RawSock) -> bool {
    let queued = sock.write_queued().load(Relaxed);
    sock.send_limit().saturating_sub(queued) >= queued / 2
}

/// Returns whether the send buffer has room for another packet.
#[inline]
pub(in crate::stream) fn has_room(sock: &RawSock) -> bool {
    sock.write_queued().load(Relaxed) < sock.send_limit()
}

/// Charges the send buffer for memory that joins the write queue.
#[inline]
pub(super) fn charge(sock: &RawSock, bytes: u32) {
    let queued = sock.write_queued();
    queued.store(queued.load(Relaxed).saturating_add(bytes), Relaxed);
}

/// Uncharges memory that has left the write queue.
#[inline]
pub(super) fn discharge(sock: &RawSock, bytes: u32) {
    let queued = sock.write_queued();
    queued.store(queued.load(Relaxed).saturating_sub(bytes), Relaxed);
}

/// Uncharges a buffer that has left the write queue.
#[inline]
pub(super) fn uncharge(sock: &RawSock, unacknowledged: &Unacknowledged, skb: &Skb) {
    discharge(sock, skb.truesize());
    unacknowledged.sub(unacknowledged_in(skb));
}
