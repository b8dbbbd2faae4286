// SPDX-License-Identifier: GPL-2.0

//! The acknowledgements of data (R2). This file decides when they are due, in which packets they
//! are sent, and which grants they carry.

use super::super::ack_queue::SHORT;
use super::super::config::Config;
use super::super::seq::Seq;
use super::super::timers::{Nanos, ACK_DELAY};
use super::super::wire::{flags, Grant, Header};
use super::{AckKind, Due, Incoming, Receiver, Request, Turn};

/// The bits of [`Receiver::answered`] that make a dialogue: after four transmissions in a row that
/// data has answered in time, the receiver expects that data will answer the next one, too.
const DIALOGUE: u8 = 0b1111;

impl Receiver {
    /// Schedules the acknowledgement of data just taken (R2).
    #[inline]
    pub(super) fn schedule_ack(
        &mut self,
        header: &Header,
        count: u16,
        flags: u8,
        measured: bool,
        config: &Config,
        now: Nanos,
    ) {
        let starts = flags & flags::TXS != 0;
        let ends = flags & flags::TXF != 0;
        let until = now.saturating_add(ACK_DELAY);
        if ends {
            if self.answer_until != 0 {
                // The last transmission was no whole request: perhaps the peer waits for room.
                self.answered = 0;
            }
            self.answer_until = until;
            self.incoming = Incoming::Idle;
            // The round trip is not measured on the next packet, because the sending program may
            // not have written it yet.
            self.timed = None;
            if starts && count > 1 {
                self.forget_samples(measured);
            }
        } else if starts {
            self.forget_samples(measured);
            self.begin(header, config);
        }
        self.unreported |= starts || ends;
        // If packets after the end of this transmission are missing (`out_of_order`), the
        // acknowledgement is due now, because it makes the sender continue at once.
        let out_of_order = ends && self.expected.before(self.seen);
        let filled = self.take_hole_filled();
        if (starts && !ends)
            || out_of_order
            || filled
            || self.since_ack >= self.packets_to_ack(config)
        {
            self.due = Due::Now;
        } else if ends && self.due == Due::Not {
            self.due = Due::At(until);
        }
    }

    /// Handles the first packet of a transmission that has more packets.
    #[inline(never)]
    fn begin(&mut self, header: &Header, config: &Config) {
        self.before_ack = 0;
        self.incoming = Incoming::Transmission;
        self.announced = Some(header.seq);
        self.short_announcement = self.grants.are_short() && usize::from(header.len) <= SHORT;
        // The next grant may change the number of packets that follow announcements. It comes too
        // late for this one.
        let packets = self.peer.take_most_unscheduled(config);
        self.allowed = self.unscheduled_end(header.seq, packets);
    }

    /// Returns the number of packets that make an acknowledgement due.
    #[inline]
    fn packets_to_ack(&self, config: &Config) -> u16 {
        let near = || self.immediate_turn && self.senders <= 1 && self.grants.is_near();
        let least = self.peer.packets_to_ack(near, config);
        if !self.is_long() {
            return least;
        }
        self.grants.packets_to_ack(self.peer.window(config), least)
    }

    /// Returns whether an acknowledgement waits until data can carry it or the reader sleeps. In a
    /// dialogue, the reader's sleep does not end the wait.
    #[inline]
    pub(in super::super) fn waits_for_sleep(&self) -> bool {
        self.due != Due::Not && self.answered & DIALOGUE != DIALOGUE
    }

    /// Makes an acknowledgement that [waits for the reader's sleep](Self::waits_for_sleep) due at
    /// once.
    #[inline]
    pub(in super::super) fn flush(&mut self) {
        if self.waits_for_sleep() {
            self.due = Due::Now;
        }
    }

    /// Makes a delayed acknowledgement due at once.
    pub(super) fn end_delay(&mut self) {
        if self.due != Due::Not {
            self.due = Due::Now;
        }
    }

    /// Returns the acknowledgement number that a packet of this kind carries if it is sent now.
    #[inline]
    pub(in super::super) fn ack_number(&self, kind: AckKind) -> Seq {
        if kind == AckKind::Carried && !self.is_open() {
            self.last_advertised
        } else {
            self.expected
        }
    }

    /// Returns whether a request, or the answer to a skip, is due.
    #[inline]
    pub(in super::super) fn has_request_to_send(&self) -> bool {
        match self.request {
            Request::Not => false,
            Request::Probed => self.is_open(),
            Request::Skipped => true,
            Request::Hole => self.is_open() && !self.wants_turn(),
        }
    }

    /// Returns the kind of the acknowledgement that is due. If no data packet carries it, it is
    /// sent in an empty packet.
    #[inline]
    pub(in super::super) fn ack_to_send(&self) -> Option<AckKind> {
        let due = self.due == Due::Now;
        if self.is_open() {
            let leaves = self.answer || (due && !self.wants_turn());
            leaves.then_some(AckKind::Ack)
        } else {
            (self.answer || (due && self.unreported)).then_some(AckKind::Hold)
        }
    }

    /// Returns the grant that an acknowledgement of this kind carries if it is sent now.
    #[inline]
    pub(in super::super) fn grant(&mut self, kind: AckKind, config: &Config) -> Option<Grant> {
        if kind != AckKind::Ack || !self.is_open() {
            return None;
        }
        if self.turn == Turn::Granted {
            self.grants.adapt(
                self.since_ack,
                self.announced.is_some(),
                self.immediate_turn,
                self.alone,
                self.senders,
                config,
            );
        }
        let (grant, window) = self.grants.grant(config)?;
        if config.is_adaptive() {
            self.peer.grant(window);
        } else {
            self.peer.end_grants(window);
        }
        Some(grant)
    }

    /// Returns whether the turn has to narrow the sender's window, because the sender is no longer
    /// alone, or because the parameters became fixed. Only an empty acknowledgement can do that. It
    /// must be sent before a data packet or a request, either of which would use the turn for the
    /// wide window. It may be lost, so each turn repeats it until all packets of the wide window
    /// have arrived.
    #[inline]
    pub(in super::super) fn narrows(&self, config: &Config) -> bool {
        if !self.has_turn() || !self.is_open() {
            return false;
        }
        let alone = self.immediate_turn && self.alone && config.is_adaptive();
        if self.grants.is_wide(config) {
            !alone
        } else {
            self.last_advertised != self.expected && self.grants.is_narrow() && self.expects_wide()
        }
    }

    /// Takes the turn back for a request, after an acknowledgement that [narrowed](Self::narrows)
    /// the window. The request is part of the same turn.
    pub(in super::super) fn keep_turn(&mut self) {
        if self.request == Request::Hole {
            self.turn = Turn::Granted;
        }
    }

    /// Notes that data is sent.
    #[inline]
    pub(in super::super) fn on_data_sent(&mut self, now: Nanos) {
        if self.answer_until != 0 {
            let in_time = now < self.answer_until;
            self.answered = (self.answered << 1) | u8::from(in_time);
            self.answer_until = 0;
        }
    }

    /// Notes that a packet with [`ack_number`](Self::ack_number) was sent.
    #[inline(always)]
    pub(in super::super) fn on_ack_sent(&mut self, kind: AckKind, config: &Config, now: Nanos) {
        if kind == AckKind::Request {
            self.request = Request::Not;
        }
        if kind == AckKind::Hold {
            self.answer = false;
            self.unreported = false;
            return;
        }
        if !self.is_open() {
            return;
        }
        self.answer = false;
        self.unreported = false;
        self.last_progress = now;
        self.time(kind, now);
        self.last_advertised = self.expected;
        self.announced = None;
        if self.is_receiving() {
            let allowed = self.last_advertised.add(self.peer.window(config));
            if self.allowed.before(allowed) {
                self.allowed = allowed;
            }
        }
        if !self.is_receiving() || self.turn == Turn::Granted || kind == AckKind::Request {
            self.before_ack = self.before_ack.saturating_add(self.since_ack);
            self.since_ack = 0;
            self.due = Due::Not;
            self.turn = Turn::Not;
        }
    }

    /// Returns the time at which the delayed acknowledgement is due, if there is one.
    #[inline]
    pub(in super::super) fn ack_timer(&self) -> Option<Nanos> {
        match self.due {
            Due::At(at) if !self.congested || self.unreported => Some(at),
            _ => None,
        }
    }

    /// Handles the expired timer of the delayed acknowledgement. No data has carried it, so this is
    /// no dialogue.
    pub(in super::super) fn on_ack_timer(&mut self) {
        self.answered = 0;
        self.due = Due::Now;
    }
}
