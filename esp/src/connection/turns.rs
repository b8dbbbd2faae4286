// SPDX-License-Identifier: GPL-2.0

//! A connection as the ACK queue sees it.

use super::super::ack_queue::{Demand, Samples};
use super::super::timers::Nanos;
use super::super::wire::Header;
use super::Connection;

impl Connection {
    /// The connection's demand to the [ACK queue](super::super::AckQueue): to be
    /// counted while a transmission is announced and the receiver is not congested,
    /// and a turn for an acknowledgement, or for a request of a hole, that is due and
    /// opens the window. It stays due until [`take_turn`](Self::take_turn).
    #[inline]
    pub fn demand(&self) -> Demand {
        self.receiver.demand()
    }

    /// Whether the peer's windows are granted: then the ACK queue says how many packets may come
    /// [unscheduled](Self::set_start).
    #[inline]
    pub(in super::super) fn grants(&self) -> bool {
        self.receiver.grants(&self.config)
    }

    /// Whether the transmission that arrives is a long one.
    #[inline]
    pub(in super::super) fn is_long(&self) -> bool {
        self.receiver.is_long()
    }

    /// The part of its window that the transmission did not use which has just ended, in
    /// [`PARTS`](super::super::ack_queue::PARTS).
    #[inline]
    pub(in super::super) fn unused(&self) -> u8 {
        self.receiver.unused(&self.config)
    }

    /// So many packets may come behind an announcement that is not acknowledged.
    #[inline]
    pub(in super::super) fn set_start(&mut self, packets: u16) {
        self.receiver.set_start(packets);
    }

    /// The turn is not now: the connection waits for it.
    #[inline]
    pub fn wait_turn(&mut self) {
        self.receiver.wait_turn();
    }

    /// Whether it waits.
    #[inline]
    pub(in super::super) fn waits_turn(&self) -> bool {
        self.receiver.waits_turn()
    }

    /// The turn has come: [`poll_transmit`](Self::poll_transmit) lets the
    /// acknowledgement go.
    #[inline]
    pub fn take_turn(&mut self) {
        self.receiver.take_turn(false);
    }

    /// As [`take_turn`](Self::take_turn), at once: no other connection of the device waited for
    /// one.
    #[inline]
    pub(in super::super) fn take_immediate_turn(&mut self) {
        self.receiver.take_turn(true);
    }

    /// So many connections of the device have announced a transmission, with this one; its link has
    /// this rate, bytes in 2^16 ns, or 0.
    #[inline]
    pub(in super::super) fn set_port(&mut self, senders: u32, link: u32) {
        self.receiver.set_port(senders, link);
    }

    /// Whether windows follow what arrives.
    #[inline]
    pub(in super::super) fn is_adaptive(&self) -> bool {
        self.config.is_adaptive()
    }

    /// So many packets with this header have arrived while a connection waited for its turn in the
    /// ACK queue: to be called after they were taken in, and before the queue is asked.
    pub fn note_arrived(&mut self, header: &Header, count: u16, now: Nanos) {
        if header.payload() > 0 {
            self.receiver.note_arrived(count, header.len, now);
        }
    }

    /// Takes the note of the peer's packets since the last call.
    #[inline]
    pub(in super::super) fn take_samples(&mut self) -> Samples {
        self.receiver.take_samples()
    }

    /// Packets that the peer may send and that have not arrived. `None` while an acknowledgement is
    /// to be sent that opens a window.
    #[inline]
    pub(in super::super) fn in_flight(&self) -> Option<u16> {
        self.receiver.in_flight(&self.config)
    }

    /// The window that the next turn opens, packets.
    #[inline]
    pub(in super::super) fn next_window(&self) -> u16 {
        self.receiver.next_window(&self.config)
    }
}
