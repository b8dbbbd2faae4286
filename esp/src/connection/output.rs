// SPDX-License-Identifier: GPL-2.0

//! Chooses the packets that a connection sends.

use super::super::outcome::{Transmit, WriteQueue};
use super::super::receiver::AckKind;
use super::super::sender::{Kind, Outgoing};
use super::super::seq::Seq;
use super::super::state::State;
use super::super::timers::Nanos;
use super::super::wire::{flags, Header, NAMING, SKIP, SKIPPED};
use super::{Connection, Handshake, PendingReset};

impl Connection {
    /// Returns the next packets to send. Call this function until it returns `None`, also after the
    /// connection has closed. `queue` gives the flags of retransmitted data, and the number of
    /// packets that form one run.
    #[inline]
    pub fn poll_transmit(&mut self, now: Nanos, queue: &mut impl WriteQueue) -> Option<Transmit> {
        if self.has_nothing_to_send() {
            return None;
        }
        if self.state == State::Closed {
            return self.poll_last(now);
        }
        if self.receiver.has_turn() {
            self.receiver
                .request_unscheduled(&self.config, &self.rtt, now);
            if self.receiver.narrows(&self.config) {
                return Some(self.narrow(now));
            }
        }
        if self.sender.is_open() && self.receiver.has_request_to_send() {
            if let Some((from, to)) = self.receiver.take_skipped() {
                self.stats.pkt_tx = self.stats.pkt_tx.wrapping_add(1);
                let header = Header {
                    ack: from,
                    ..self.header(to, SKIPPED)
                };
                return Some(Transmit::Control {
                    header,
                    resend: false,
                });
            }
            self.stats.arq_tx = self.stats.arq_tx.wrapping_add(1);
            if let Some(lost) = self.receiver.name_lost(&self.config, &self.rtt, now) {
                self.stats.seq_lost = self.stats.seq_lost.wrapping_add(lost);
                if !self.receiver.goes_back() {
                    return Some(self.naming(now));
                }
            }
            return Some(self.empty(AckKind::Request, now));
        }
        let waiting = self.sender.awaits_peer();
        if let Some(outgoing) = self.sender.poll(&self.config, &self.rtt, now, queue) {
            if !waiting && !self.receiver.is_receiving() {
                self.liveness.restart(now);
            }
            return Some(self.numbered(outgoing, now));
        }
        if !self.sender.is_open() {
            return self.poll_challenged();
        }
        self.poll_ack(now)
    }

    /// Returns true in the usual case that nothing is to be sent. Then
    /// [`poll_transmit`](Self::poll_transmit) need not be called.
    #[inline]
    pub fn has_nothing_to_send(&self) -> bool {
        self.state != State::Closed
            && self.sender.has_nothing_to_send()
            && self.receiver.has_nothing_to_send()
            && !self.liveness.has_probe()
    }

    /// Returns the RST for a connection that our side has forgotten, if one is due.
    fn poll_challenged(&mut self) -> Option<Transmit> {
        let PendingReset::Challenged(header) = self.reset else {
            return None;
        };
        self.reset = PendingReset::None;
        self.stats.pkt_tx = self.stats.pkt_tx.wrapping_add(1);
        Some(Transmit::Control {
            header,
            resend: false,
        })
    }

    /// Returns the next of the last packets that a closed connection sends, if there is one.
    fn poll_last(&mut self, now: Nanos) -> Option<Transmit> {
        if self.reset == PendingReset::Unread {
            self.reset = PendingReset::None;
            return Some(self.control(self.reset_header(), false, now));
        }
        self.poll_ack(now)
    }

    /// Returns the empty packet that is due, if there is one: an acknowledgement, a skip or a
    /// probe.
    #[inline]
    fn poll_ack(&mut self, now: Nanos) -> Option<Transmit> {
        if let Some(kind) = self.receiver.ack_to_send() {
            return Some(self.empty(kind, now));
        }
        if self.sender.take_skip() {
            let header = Header {
                len: self.sender.una().0,
                ..self.header(self.sender.high(), SKIP)
            };
            return Some(self.control(header, false, now));
        }
        let probe =
            self.sender.take_probe() | self.receiver.take_probe() | self.liveness.take_probe();
        (self.state != State::Closed && probe).then(|| self.probe(now))
    }

    /// Returns a packet that asks the peer for an answer.
    #[cold]
    fn probe(&mut self, now: Nanos) -> Transmit {
        self.sender.note_repeat();
        self.receiver.on_probe_sent(now);
        // A probe repeats the number before `una`. The peer has received that number, so it takes
        // the probe for a duplicate and answers it.
        let header = self.header(self.sender.una().sub(1), flags::ACK);
        self.on_ack_sent(AckKind::Carried, now);
        Transmit::Probe(header)
    }

    #[inline]
    fn numbered(&mut self, outgoing: Outgoing, now: Nanos) -> Transmit {
        if outgoing.kind == Kind::Syn {
            self.advertise();
        }
        let first_answer = outgoing.kind == Kind::Syn && self.handshake == Handshake::Crossing;
        if first_answer {
            self.handshake = Handshake::Crossed;
        }
        let resend = outgoing.resend && !first_answer;
        if resend {
            self.stats.pkt_rtx = self.stats.pkt_rtx.wrapping_add(outgoing.count.into());
        }
        match outgoing.kind {
            Kind::Data => {
                let header = self.header(outgoing.seq, outgoing.flags | flags::ACK);
                self.receiver.on_data_sent(now);
                self.on_ack_sent(AckKind::Carried, now);
                let others = outgoing.count.saturating_sub(1);
                self.stats.pkt_tx = self.stats.pkt_tx.wrapping_add(others.into());
                Transmit::Data {
                    header,
                    count: outgoing.count,
                    resend,
                }
            }
            Kind::Fin => {
                let header = self.header(outgoing.seq, flags::FIN | flags::ACK);
                self.control(header, resend, now)
            }
            Kind::Syn if self.state == State::SynSent => {
                let mut header = self.header(outgoing.seq, flags::SYN);
                header.ack = Seq(0);
                self.stats.pkt_tx = self.stats.pkt_tx.wrapping_add(1);
                Transmit::Control { header, resend }
            }
            Kind::Syn => {
                let header = self.header(outgoing.seq, flags::SYN | flags::ACK);
                self.control(header, resend, now)
            }
        }
    }

    /// Returns a control packet, which also carries an acknowledgement.
    #[cold]
    fn control(&mut self, header: Header, resend: bool, now: Nanos) -> Transmit {
        self.on_ack_sent(AckKind::Carried, now);
        Transmit::Control { header, resend }
    }

    /// Returns an empty packet of the given kind.
    #[inline]
    fn empty(&mut self, kind: AckKind, now: Nanos) -> Transmit {
        let mut header = self.header(self.sender.high(), kind.flags());
        header.ack = self.receiver.ack_number(kind);
        if let Some(grant) = self.receiver.grant(kind, &self.config) {
            header = header.granting(grant);
        }
        self.on_ack_sent(kind, now);
        Transmit::Control {
            header,
            resend: false,
        }
    }

    /// Returns an acknowledgement that narrows the sender's window, and leaves the turn to the
    /// request that is due, if there is one.
    #[cold]
    #[inline(never)]
    fn narrow(&mut self, now: Nanos) -> Transmit {
        let ack = self.empty(AckKind::Ack, now);
        self.receiver.keep_turn();
        ack
    }

    /// Returns a retransmission request whose payload lists the requested packets.
    #[cold]
    fn naming(&mut self, now: Nanos) -> Transmit {
        let header = Header {
            len: self.receiver.named().1,
            ack: self.receiver.ack_number(AckKind::Request),
            ..self.header(self.sender.high(), NAMING)
        };
        self.on_ack_sent(AckKind::Request, now);
        Transmit::Request(header)
    }

    /// Notes that a packet with an acknowledgement was sent.
    #[inline]
    fn on_ack_sent(&mut self, kind: AckKind, now: Nanos) {
        self.stats.pkt_tx = self.stats.pkt_tx.wrapping_add(1);
        self.receiver.on_ack_sent(kind, &self.config, now);
    }

    #[inline]
    pub(super) fn header(&self, seq: Seq, flags: u8) -> Header {
        Header {
            src: self.local_port,
            dst: self.remote_port,
            len: 0,
            seq,
            ack: self.receiver.ack_number(AckKind::Carried),
            flags,
        }
    }
}
