// SPDX-License-Identifier: GPL-2.0

//! Processes the packets that arrive for a connection.

use super::super::outcome::{DropReason, Outcome, Room};
use super::super::receiver::{Receiver, Taken};
use super::super::sender::Acked;
use super::super::seq::Seq;
use super::super::state::{Failure, State};
use super::super::timers::{Nanos, CHALLENGE_INTERVAL, ORPHAN_HELD};
use super::super::wire::{flags, reset_for, Header};
use super::{Connection, Handshake, PendingReset, Reader};

impl Connection {
    /// Processes one packet like [`on_packets`](Self::on_packets).
    #[inline]
    pub fn on_packet(&mut self, header: &Header, room: Room, now: Nanos) -> Outcome {
        self.on_packets(header, 1, room, now)
    }

    /// Processes a run of `count` packets for this connection, with one header: see
    /// [`Header::of_run`]. Only a run of data may have more than one packet. `room` describes the
    /// receive queue without these packets.
    #[inline]
    pub fn on_packets(&mut self, header: &Header, count: u16, room: Room, now: Nanos) -> Outcome {
        self.stats.pkt_rx = self.stats.pkt_rx.wrapping_add(count.into());
        let mut outcome = Outcome::default();
        if let Err(reason) = self.take_in(header, count, room, now, &mut outcome) {
            outcome.drop = Some(reason);
            let counter = match reason {
                DropReason::Duplicate | DropReason::OutOfSequence => &mut self.stats.pkt_rx_oos,
                _ => &mut self.stats.pkt_rx_drop,
            };
            *counter = counter.wrapping_add(count.into());
        }
        outcome
    }

    /// Replaces the header of a request that [names packets](Header::names_missing), so that it can
    /// be passed to [`on_packets`](Self::on_packets). Returns a plain acknowledgement if requests
    /// that name packets were negotiated, and a request without names (ACK|RRQ) if not. Any other
    /// header is returned unchanged.
    #[cold]
    #[inline(never)]
    pub fn without_names(&self, header: &Header) -> Header {
        if !header.names_missing() || !self.peer_has_version {
            return *header;
        }
        let takes = self.receiver.is_selective();
        let bits = if takes { 0 } else { flags::RRQ };
        Header {
            len: 0,
            flags: flags::ACK | bits,
            ..*header
        }
    }

    /// Processes the payload `named` of a request that names packets, after
    /// [`on_packets`](Self::on_packets) returned `outcome`.
    #[cold]
    #[inline(never)]
    pub fn on_named(&mut self, header: &Header, named: &[u8], outcome: &Outcome, now: Nanos) {
        let takes = self.peer_has_version && self.receiver.is_selective();
        if takes && outcome.drop.is_none() && self.state != State::Closed {
            self.sender
                .on_named(header.ack, named, &self.config, &self.rtt, now);
        }
    }

    /// Sets the number of bytes that kept packets take in the receive buffer.
    pub fn set_kept(&mut self, bytes: u32) {
        self.receiver.set_kept(bytes);
    }

    /// Returns whether the caller keeps packets that arrive out of order.
    #[inline]
    pub fn keeps(&self) -> bool {
        self.receiver.keeps()
    }

    /// Notes that the caller freed the packets it kept.
    pub fn drop_kept(&mut self) {
        self.receiver.drop_kept();
    }

    /// Returns whether the caller should deliver the first kept packet, because no packet before it
    /// is missing. `seq` is the number of the kept packet.
    #[inline]
    pub fn reaches(&self, seq: Seq) -> bool {
        !seq.after(self.receiver.expected())
    }

    /// Processes the first run of kept packets like [`on_packets`](Self::on_packets), once the run
    /// is [reached](Self::reaches). Drops the run if packets with its numbers were already taken.
    #[cold]
    pub fn on_kept(&mut self, header: &Header, count: u16, room: Room, now: Nanos) -> Outcome {
        let mut outcome = Outcome::default();
        let last = header.seq.add(count.saturating_sub(1));
        let taken = if self.state == State::Closed || !self.reaches(header.seq) {
            Err(DropReason::BadState)
        } else if !self.receiver.is_new(last) {
            Err(DropReason::Duplicate)
        } else {
            self.receiver.set_delivering(true);
            let taken = self.on_payload(header, count, room, now, &mut outcome);
            self.receiver.set_delivering(false);
            taken
        };
        outcome.drop = taken.err();
        outcome
    }

    #[inline]
    fn take_in(
        &mut self,
        header: &Header,
        count: u16,
        room: Room,
        now: Nanos,
        outcome: &mut Outcome,
    ) -> Result<(), DropReason> {
        if header.is_malformed() {
            return Err(DropReason::Malformed);
        }
        match self.state {
            State::Closed => return Err(DropReason::BadState),
            State::SynSent => return self.on_answer(header, now, outcome),
            _ => {}
        }
        if header.has(flags::RST | flags::SYN | flags::RRQ) {
            if header.has(flags::RST) {
                return self.on_reset(header, now, outcome);
            }
            if header.has(flags::SYN) {
                return self.on_repeated_syn(header, now, outcome);
            }
            if header.is_skipped() {
                return self.on_skipped(header, now, outcome);
            }
            if header.names_missing() && self.peer_has_version {
                return Err(DropReason::Malformed);
            }
        }
        if !self.receiver.is_plausible(header.seq) {
            // The packet is stale or forged, so its acknowledgement number is not to be trusted
            // either.
            return Err(DropReason::BeyondWindow);
        }
        if header.has(flags::ACK) {
            self.on_ack(header, now, outcome)?;
        } else {
            self.on_unacknowledging(now)?;
        }
        if self.state == State::Closed {
            return Ok(());
        }
        self.on_payload(header, count, room, now, outcome)
    }

    /// Handles data without an acknowledgement. Only a peer without the version option may send
    /// such data. From any other peer, such data is forged.
    fn on_unacknowledging(&mut self, now: Nanos) -> Result<(), DropReason> {
        if !self.sender.is_open() || self.peer_has_version {
            // Nothing shows that the packet belongs to this connection.
            return Err(DropReason::BadState);
        }
        self.liveness.restart(now);
        Ok(())
    }

    /// Handles the answer to our SYN, or a simultaneous SYN of the peer.
    fn on_answer(
        &mut self,
        header: &Header,
        now: Nanos,
        outcome: &mut Outcome,
    ) -> Result<(), DropReason> {
        if header.opens() {
            self.cross(header.seq, now);
            outcome.answered = true;
            return Ok(());
        }
        if !header.has(flags::ACK) {
            return Err(DropReason::BadState);
        }
        if !self.sender.is_acceptable(header.ack) {
            if let Some(reset) = reset_for(header) {
                self.reset = PendingReset::Challenged(reset);
            }
            return Err(DropReason::BadAck);
        }
        if header.has(flags::RST) {
            self.fail(Failure::Refused, outcome);
            return Ok(());
        }
        if !header.has(flags::SYN) {
            return Err(DropReason::BadState);
        }
        let _ = self
            .sender
            .on_ack(header.ack, true, &self.config, &mut self.rtt, now);
        self.receiver = Receiver::new(header.seq, now);
        self.receiver.answer();
        self.liveness.restart(now);
        outcome.answered = true;
        self.establish(now, outcome);
        Ok(())
    }

    /// Handles crossed SYNs (RFC 9293, 3.5). Each side answers with a SYN|ACK, whose tries are
    /// counted from 0.
    fn cross(&mut self, irs: Seq, now: Nanos) {
        self.receiver = Receiver::new(irs, now);
        self.sender.restart_syn();
        self.handshake = Handshake::Crossing;
        self.state = State::SynReceived;
    }

    /// Completes the handshake of crossed SYNs, with a SYN|ACK that acknowledges our SYN. The
    /// peer's SYN may be an old one, but the SYN|ACK proves that its sender has seen our SYN. So if
    /// the peer's initial number differs between the two, the number of the SYN|ACK counts.
    fn on_crossed_answer(&mut self, header: &Header, now: Nanos, outcome: &mut Outcome) {
        if header.seq != self.receiver.irs() {
            self.receiver = Receiver::new(header.seq, now);
            self.receiver.answer();
        }
        outcome.answered = true;
        let _ = self
            .sender
            .on_ack(header.ack, true, &self.config, &mut self.rtt, now);
        self.liveness.restart(now);
        if self.state == State::SynReceived {
            self.establish(now, outcome);
        }
    }

    /// Completes the handshake, which has also measured a round trip.
    fn establish(&mut self, now: Nanos, outcome: &mut Outcome) {
        self.state = State::Established;
        outcome.established = true;
        if self.rtt.is_known() {
            self.receiver.note_round_trip(self.rtt.smoothed(), now);
        }
    }

    /// Handles a RST. Only a RST with exactly the expected number counts. A RST with any other
    /// plausible number is answered with a challenge ACK (RFC 5961). If the other host does not
    /// know the connection, it answers the challenge with a RST, which has the expected number.
    /// While the connection is ending, no challenge is needed, because the answer to our
    /// retransmitted FIN shows whether the other host knows the connection.
    fn on_reset(
        &mut self,
        header: &Header,
        now: Nanos,
        outcome: &mut Outcome,
    ) -> Result<(), DropReason> {
        let ending = matches!(self.state, State::LastAck | State::Closing);
        if header.seq != self.receiver.expected() || !self.names_ours(header) {
            if self.sender.is_open() && !ending && self.receiver.is_plausible(header.seq) {
                self.challenge(now);
            }
            return Err(DropReason::BadState);
        }
        // If a challenge ACK was sent, the RST may answer it. Such a RST cannot be told from one
        // that answers the FIN: both acknowledge everything that was sent.
        let answers_data = self.last_challenge.is_none();
        let forgotten =
            !header.has(flags::ACK) && self.sender.may_be_forgotten(header.ack, answers_data);
        if ending && (self.sender.is_drained() || forgotten) {
            self.receiver.cancel();
            self.close(outcome);
        } else if self.handshake != Handshake::Usual && self.state == State::SynReceived {
            self.fail(Failure::Refused, outcome);
        } else {
            self.fail(Failure::Reset, outcome);
        }
        Ok(())
    }

    /// Returns whether one of our packets may have caused a RST. The acknowledgement number of a
    /// RST with ACK must be acceptable. In a RST without ACK, the field of the acknowledgement
    /// number must match one of our packets: a probe, the last packet, or a packet between them.
    /// The RST of a peer without the version option may have any number.
    fn names_ours(&self, reset: &Header) -> bool {
        if !self.peer_has_version {
            true
        } else if reset.has(flags::ACK) {
            self.sender.is_acceptable(reset.ack)
        } else {
            self.sender.may_be_answered(reset.ack)
        }
    }

    /// Makes a challenge ACK due, unless one was sent recently.
    #[cold]
    fn challenge(&mut self, now: Nanos) {
        let recently = |at| now.saturating_sub(at) < CHALLENGE_INTERVAL;
        if !self.last_challenge.is_some_and(recently) {
            self.last_challenge = Some(now);
            self.receiver.answer();
        }
    }

    /// Handles a repeated SYN or SYN|ACK. If the packet has the same number as before, our answer
    /// was lost. If the packet has a different number, it does not belong to this connection, and
    /// its sender may not know the connection. An open connection only answers such a packet (RFC
    /// 5961, section 4).
    fn on_repeated_syn(
        &mut self,
        header: &Header,
        now: Nanos,
        outcome: &mut Outcome,
    ) -> Result<(), DropReason> {
        let answers = header.has(flags::ACK)
            && !self.sender.is_open()
            && self.sender.is_acceptable(header.ack);
        if answers && self.handshake != Handshake::Usual {
            self.on_crossed_answer(header, now, outcome);
            return Ok(());
        }
        let repeats = header.seq == self.receiver.irs();
        if self.sender.is_open() {
            if repeats && header.has(flags::ACK) && self.sender.is_acceptable(header.ack) {
                self.liveness.restart(now);
                self.receiver.answer();
                return Err(DropReason::Duplicate);
            }
            // Also a SYN with the right number: a forger may have guessed it.
            self.challenge(now);
            return Err(DropReason::BadState);
        }
        if !repeats {
            return Err(DropReason::BadState);
        }
        // A SYN|ACK is not answered with a SYN|ACK: two hosts would answer each other.
        if !header.has(flags::ACK) {
            self.sender.repeat_syn();
        }
        Err(DropReason::Duplicate)
    }

    #[inline]
    fn on_ack(
        &mut self,
        header: &Header,
        now: Nanos,
        outcome: &mut Outcome,
    ) -> Result<(), DropReason> {
        if !self.sender.is_acceptable(header.ack) {
            return self.on_older(header);
        }
        self.liveness.restart(now);
        if self.sender.ignores_acks() {
            return Ok(());
        }
        let opens = !header.is_hold();
        self.sender.take_grant(header);
        let acked = self
            .sender
            .on_ack(header.ack, opens, &self.config, &mut self.rtt, now);
        self.acknowledged(acked, opens, now, outcome);
        if header.is_request() {
            self.sender
                .on_request(header.ack, &self.config, &self.rtt, now);
        }
        if self.sender.is_paused() {
            outcome.cut = !self.sender.is_outstanding();
        }
        Ok(())
    }

    /// Handles an unacceptable acknowledgement number. If the packet has data, the number may
    /// merely be old: packets that were sent later have overtaken this packet, and acknowledged
    /// more than it does.
    #[cold]
    fn on_older(&self, header: &Header) -> Result<(), DropReason> {
        let overtaken = self.receiver.is_selective()
            && header.takes_number()
            && self.sender.is_recent(header.ack, &self.config);
        if overtaken {
            Ok(())
        } else {
            Err(DropReason::BadAck)
        }
    }

    /// Handles the answer to a skip. The peer has skipped the packets that are too large to
    /// retransmit, and reports which of these packets it had.
    #[cold]
    fn on_skipped(
        &mut self,
        header: &Header,
        now: Nanos,
        outcome: &mut Outcome,
    ) -> Result<(), DropReason> {
        if !self.sender.is_skipped_by(header) {
            return Err(DropReason::BadState);
        }
        self.liveness.restart(now);
        let acked = self
            .sender
            .on_ack(header.ack, false, &self.config, &mut self.rtt, now);
        self.acknowledged(acked, false, now, outcome);
        outcome.cut = self.state != State::Closed;
        Ok(())
    }

    /// Acts on newly acknowledged packets.
    #[inline]
    fn acknowledged(&mut self, acked: Acked, opens: bool, now: Nanos, outcome: &mut Outcome) {
        outcome.acked = acked.data;
        if let Reader::Closed { until, held } = self.reader {
            self.hold_orphan(&acked, opens, until, held, now);
        }
        if acked.syn | acked.fin {
            self.on_control_acked(&acked, now, outcome);
        }
    }

    /// Extends an orphan's life after an acknowledgement. An acknowledgement of new packets
    /// restarts the wait that ends at `until`. It also postpones `held`, the time at which the
    /// orphan ends at the latest. An acknowledgement that opens no window restarts the wait, but
    /// does not postpone `held`.
    #[cold]
    fn hold_orphan(
        &mut self,
        acked: &Acked,
        opens: bool,
        until: Nanos,
        mut held: Nanos,
        now: Nanos,
    ) {
        let takes = acked.data > 0 || acked.syn || acked.fin;
        if takes {
            held = now.saturating_add(ORPHAN_HELD);
            self.reader = Reader::Closed { until, held };
        }
        if (takes || !opens) && self.state != State::FinWait2 {
            self.limit_orphan(now, held);
        }
    }

    /// Advances the state, because the peer acknowledged our SYN or FIN.
    #[cold]
    fn on_control_acked(&mut self, acked: &Acked, now: Nanos, outcome: &mut Outcome) {
        if acked.syn && self.state == State::SynReceived {
            self.establish(now, outcome);
        }
        if acked.fin {
            match self.state {
                State::FinWait1 => {
                    self.state = State::FinWait2;
                    if let Reader::Closed { held, .. } = self.reader {
                        self.limit_orphan(now, held);
                    }
                }
                State::Closing | State::LastAck => self.close(outcome),
                _ => {}
            }
        }
    }

    #[inline]
    fn on_payload(
        &mut self,
        header: &Header,
        count: u16,
        room: Room,
        now: Nanos,
        outcome: &mut Outcome,
    ) -> Result<(), DropReason> {
        let last = header.seq.add(count.saturating_sub(1));
        if self.refuses_data() && header.payload() > 0 && self.receiver.is_new(last) {
            self.fail(Failure::Reset, outcome);
            self.reset = PendingReset::Unread;
            return Err(DropReason::BadState);
        }
        let mut lost = 0;
        let taken = self
            .receiver
            .on_packets(header, count, room, &self.config, now, &mut lost);
        self.stats.seq_lost = self.stats.seq_lost.wrapping_add(lost);
        match taken? {
            Taken::Empty => {}
            Taken::Kept => {
                outcome.keep = true;
                self.count_rest(count, 0);
            }
            Taken::Data { skip, taken } => {
                outcome.deliver = true;
                outcome.skip = skip;
                outcome.taken = taken;
                if taken != count {
                    self.count_rest(skip, count.saturating_sub(skip).saturating_sub(taken));
                }
            }
            Taken::Fin => {
                if self.records.is_some_and(|records| records.is_open()) {
                    self.break_off(Failure::Reset, outcome);
                    return Err(DropReason::BadState);
                }
                outcome.fin = true;
                match self.state {
                    State::Established => self.state = State::CloseWait,
                    State::FinWait1 => self.state = State::Closing,
                    State::FinWait2 => self.close(outcome),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Counts the packets of a run that were not taken: `old` packets had arrived before, and
    /// `dropped` packets found no room.
    #[cold]
    fn count_rest(&mut self, old: u16, dropped: u16) {
        let stats = &mut self.stats;
        stats.pkt_rx_oos = stats.pkt_rx_oos.wrapping_add(old.into());
        stats.pkt_rx_drop = stats.pkt_rx_drop.wrapping_add(dropped.into());
    }

    /// Returns whether no process will read arriving data.
    #[inline]
    fn refuses_data(&self) -> bool {
        match self.reader {
            Reader::Open => false,
            Reader::Shutdown => matches!(self.state, State::FinWait1 | State::FinWait2),
            Reader::Closed { .. } => true,
        }
    }
}
