// SPDX-License-Identifier: GPL-2.0

//! The connection's interface to the ACK queue.

use super::super::ack_queue::{Demand, Port, Samples};
use super::super::timers::Nanos;
use super::super::wire::Header;
use super::Connection;

impl Connection {
    /// Returns the connection's demand to the [ACK queue](super::super::AckQueue). The connection
    /// wants to be counted while a transmission is announced and the receiver is not congested. The
    /// connection wants a turn while an acknowledgement, or the request for a hole, is due and
    /// opens the window. The acknowledgement or request stays due until
    /// [`take_turn`](Self::take_turn).
    #[inline]
    pub fn demand(&self) -> Demand {
        self.receiver.demand()
    }

    /// Returns whether the receiver grants windows to the peer. Then the ACK queue also decides how
    /// many packets may be sent [unscheduled](Self::set_start).
    #[inline]
    pub(in super::super) fn grants(&self) -> bool {
        self.receiver.grants(&self.config)
    }

    /// Returns whether the transmission that is arriving is long.
    #[inline]
    pub(in super::super) fn is_long(&self) -> bool {
        self.receiver.is_long()
    }

    /// Returns the unused part of the ended transmission's last window, in
    /// [`PARTS`](super::super::ack_queue::PARTS).
    #[inline]
    pub(in super::super) fn unused(&self) -> u8 {
        self.receiver.unused(&self.config)
    }

    /// Sets the number of packets that may follow an unacknowledged announcement.
    #[inline]
    pub(in super::super) fn set_start(&mut self, packets: u16) {
        self.receiver.set_start(packets);
    }

    /// Makes the connection wait for its turn.
    #[inline]
    pub fn wait_turn(&mut self) {
        self.receiver.wait_turn();
    }

    /// Returns whether the connection waits for a turn.
    #[inline]
    pub(in super::super) fn waits_turn(&self) -> bool {
        self.receiver.waits_turn()
    }

    /// Gives the connection its turn, so that [`poll_transmit`](Self::poll_transmit) returns the
    /// acknowledgement.
    #[inline]
    pub fn take_turn(&mut self) {
        self.receiver.take_turn(false);
    }

    /// Gives the connection a turn at once, because no other connection of the device waited for
    /// one.
    #[inline]
    pub(in super::super) fn take_immediate_turn(&mut self) {
        self.receiver.take_turn(true);
    }

    /// Sets `senders`, `alone` and `port`. `senders` is the number of the device's connections with
    /// an announced transmission, this connection included. `alone` is set if all others of them
    /// are overdue. `port` has the bounds for the window.
    #[inline]
    pub(in super::super) fn set_port(&mut self, senders: u32, alone: bool, port: Port) {
        self.receiver.set_port(senders, alone, port);
    }

    /// Returns whether windows adapt to arriving packets.
    #[inline]
    pub(in super::super) fn is_adaptive(&self) -> bool {
        self.config.is_adaptive()
    }

    /// Notes that `count` packets with this header arrived while any connection waited for its turn
    /// in the ACK queue. Call this after the packets were processed, and before the connection is
    /// scheduled.
    pub fn note_arrived(&mut self, header: &Header, count: u16, now: Nanos) {
        if header.payload() > 0 {
            self.receiver.note_arrived(count, header.len, now);
        }
    }

    /// Takes the samples of the peer's packets since the last call.
    #[inline]
    pub(in super::super) fn take_samples(&mut self) -> Samples {
        self.receiver.take_samples()
    }

    /// Returns the maximum number of packets that may be in flight from the peer. Returns `None`
    /// while an acknowledgement that opens a window is due.
    #[inline]
    pub(in super::super) fn in_flight(&self) -> Option<u16> {
        self.receiver.in_flight(&self.config)
    }

    /// Returns the window that the next turn opens, in packets.
    #[inline]
    pub(in super::super) fn next_window(&self) -> u16 {
        self.receiver.next_window(&self.config)
    }
}
