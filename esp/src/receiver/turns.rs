// SPDX-License-Identifier: GPL-2.0

//! A receiver's interface to the ACK queue: its demands, its turns, and the samples that it
//! reports.

use super::super::ack_queue::{on_wire, Arrivals, Demand, Port, Samples, PARTS};
use super::super::config::Config;
use super::super::rtt::Rtt;
use super::super::seq::Seq;
use super::super::timers::Nanos;
use super::super::wire::MOST_NARROW;
use super::{Due, Receiver, Request, Turn, LONG};

impl Receiver {
    /// Returns whether a transmission is announced and the receiver is not congested.
    #[inline]
    pub(in super::super) fn is_scheduled(&self) -> bool {
        self.is_receiving() && !self.congested
    }

    /// See [`Connection::demand`](super::super::Connection::demand).
    #[inline]
    pub(in super::super) fn demand(&self) -> Demand {
        if !self.is_scheduled() {
            Demand::Nothing
        } else if !self.wants_turn() {
            Demand::Count
        } else if self.announced.is_some() {
            Demand::First
        } else {
            Demand::Turn
        }
    }

    /// Returns whether an acknowledgement or a request needs a turn that was not yet requested.
    #[inline]
    pub(super) fn wants_turn(&self) -> bool {
        self.is_scheduled()
            && self.turn == Turn::Not
            && (self.due == Due::Now || self.request == Request::Hole)
    }

    /// See [`Connection::wait_turn`](super::super::Connection::wait_turn).
    #[inline]
    pub(in super::super) fn wait_turn(&mut self) {
        if self.is_scheduled() {
            self.turn = Turn::Waiting;
        }
    }

    /// See [`Connection::waits_turn`](super::super::Connection::waits_turn).
    #[inline]
    pub(in super::super) fn waits_turn(&self) -> bool {
        self.turn == Turn::Waiting
    }

    /// See [`Connection::take_turn`](super::super::Connection::take_turn). The reason for the turn
    /// may no longer exist, for instance if the hole was filled. The turn is used anyway.
    #[inline]
    pub(in super::super) fn take_turn(&mut self, alone: bool) {
        if self.is_scheduled() {
            self.turn = Turn::Granted;
            self.immediate_turn = alone;
            self.due = Due::Now;
        }
    }

    /// Returns whether the connection has a turn that it has not used.
    #[inline]
    pub(in super::super) fn has_turn(&self) -> bool {
        self.turn == Turn::Granted
    }

    /// See [`Connection::set_port`](super::super::Connection::set_port).
    #[inline]
    pub(in super::super) fn set_port(&mut self, senders: u32, alone: bool, port: Port) {
        self.senders = u16::try_from(senders).unwrap_or(u16::MAX);
        self.alone = alone;
        self.grants.set_port(port);
    }

    /// Requests the packets that were to follow an announcement directly and have not arrived, if
    /// the announcement gets its turn after a silence. A packet that has not arrived by the end of
    /// the silence is lost, or was never sent. If the sender has no unacknowledged packets, it
    /// treats the request as an acknowledgement.
    #[inline]
    pub(in super::super) fn request_unscheduled(&mut self, config: &Config, rtt: &Rtt, now: Nanos) {
        if !self.has_turn() || self.request != Request::Not || self.keeps() {
            return;
        }
        let Some(start) = self.announced else { return };
        let end = self.unscheduled_end(start, self.peer.unscheduled(config));
        if self.expected.before(end)
            && now
                >= self
                    .last_progress
                    .saturating_add(self.patience(config, rtt))
        {
            self.request = Request::Hole;
            self.requested_at = Some(self.expected);
        }
    }

    /// Returns the number after the last packet that may directly follow the announcement `start`,
    /// if the sender may have been allowed `packets`.
    #[inline]
    pub(super) fn unscheduled_end(&self, start: Seq, packets: u16) -> Seq {
        let packets = if self.short_announcement { 0 } else { packets };
        start.add(packets).add(1)
    }

    /// Returns whether the sender gets grants.
    #[inline]
    pub(in super::super) fn grants(&self, config: &Config) -> bool {
        self.grants.is_on(config)
    }

    /// Returns whether the transmission that is arriving is long.
    #[inline]
    pub(in super::super) fn is_long(&self) -> bool {
        self.before_ack.saturating_add(self.since_ack) > LONG
    }

    /// Returns the part of the last window, in [`PARTS`], that has not arrived.
    #[inline]
    pub(in super::super) fn unused(&self, config: &Config) -> u8 {
        let window = u32::from(self.peer.window(config).max(1));
        let used = u32::from(self.since_ack).saturating_mul(PARTS.into());
        let used = used.checked_div(window).unwrap_or(0);
        PARTS.saturating_sub(u8::try_from(used).unwrap_or(PARTS))
    }

    /// Sets the number of packets that the sender may send directly after its next announcement.
    #[inline]
    pub(in super::super) fn set_start(&mut self, packets: u16) {
        self.grants.set_start(packets);
    }

    /// See [`Connection::take_samples`](super::super::Connection::take_samples).
    #[inline]
    pub(in super::super) fn take_samples(&mut self) -> Samples {
        Samples {
            rate: self.grants.take_rate_sample(),
            ..core::mem::take(&mut self.samples)
        }
    }

    /// See [`Connection::in_flight`](super::super::Connection::in_flight).
    #[inline]
    pub(in super::super) fn in_flight(&self, config: &Config) -> Option<u16> {
        if self.turn == Turn::Granted {
            return None;
        }
        if self.announced.is_some() {
            // The packets directly after an announcement do not count here: they have a separate
            // share of the port's buffer.
            return Some(0);
        }
        let mut end = self.last_advertised.add(self.peer.window(config));
        if self.expects_wide() && end.before(self.allowed) {
            end = self.allowed;
        }
        Some(if self.expected.before(end) {
            self.expected
                .distance(end)
                .saturating_sub(self.kept_packets())
        } else {
            0
        })
    }

    /// Returns whether packets of a wide window may still be on their way: the sender was allowed
    /// more than [`MOST_NARROW`] of the packets that are expected.
    #[inline]
    pub(super) fn expects_wide(&self) -> bool {
        self.expected.before(self.allowed) && self.expected.distance(self.allowed) > MOST_NARROW
    }

    /// See [`Connection::next_window`](super::super::Connection::next_window).
    #[inline]
    pub(in super::super) fn next_window(&self, config: &Config) -> u16 {
        self.peer.window(config)
    }

    /// Gives up the turn if the connection is no longer scheduled.
    #[inline]
    pub(super) fn leave_ack_queue(&mut self) {
        if !self.is_scheduled() {
            self.turn = Turn::Not;
        }
    }

    /// See [`Connection::note_arrived`](super::super::Connection::note_arrived).
    #[cold]
    #[inline(never)]
    pub(in super::super) fn note_arrived(&mut self, count: u16, payload: u16, now: Nanos) {
        let arrived = &mut self.samples.arrived;
        if arrived.at != now {
            // The ACK queue did not take the older sample in time, so drop that sample.
            *arrived = Arrivals {
                at: now,
                ..Arrivals::default()
            };
        }
        arrived.packets = arrived.packets.saturating_add(count);
        arrived.bytes = (arrived.bytes).saturating_add(on_wire(count, payload.into()));
    }

    /// Discards the samples of earlier transmissions when a longer one begins, because the earlier
    /// ones were short and do not show the port's rate. If `measured`, keeps `samples.round_trip`,
    /// which the first packets of the new transmission have just set.
    #[cold]
    pub(super) fn forget_samples(&mut self, measured: bool) {
        self.samples = Samples {
            round_trip: self.samples.round_trip.filter(|_| measured),
            ..Samples::default()
        };
    }
}
