// SPDX-License-Identifier: GPL-2.0

//! Chooses the next packets to send, and their flags.

use super::super::config::Config;
use super::super::outcome::WriteQueue;
use super::super::rtt::{handshake_timeout, Rtt};
use super::super::seq::Seq;
use super::super::timers::Nanos;
use super::super::wire::flags;
use super::{Kind, Outgoing, Sender, Timed};

impl Sender {
    /// Returns the next packets to send.
    #[inline]
    pub(in super::super) fn poll(
        &mut self,
        config: &Config,
        rtt: &Rtt,
        now: Nanos,
        queue: &mut impl WriteQueue,
    ) -> Option<Outgoing> {
        if self.is_paused() {
            return None;
        }
        if self.resend_first {
            self.resend_first = false;
            if !self.syn_acked {
                return Some(self.syn(now));
            }
            if self.una.before(self.next) {
                self.una_sent_at = Some((self.una, now));
                return Some(self.retransmit(self.una, 1, queue));
            }
        }
        if !self.syn_acked {
            return None;
        }
        if let Some(first) = self.missing.first() {
            return Some(self.resend_missing(first, now, queue));
        }
        let room = self
            .window(config)
            .saturating_sub(self.window_start.distance(self.next));
        if room == 0 {
            if self.timer.is_none() && self.is_blocked() {
                self.timer = Some(now.saturating_add(self.timeout(config, rtt)));
            }
            return None;
        }
        let seq = self.next;
        if seq.before(self.high) {
            let outgoing = self.retransmit(seq, room, queue);
            self.on_transmit(&outgoing, now);
            return Some(outgoing);
        }
        let outgoing = if seq.before(self.tail) {
            if self.records {
                self.first_of_record(seq, room, config, queue)?
            } else {
                self.first_data(seq, room, config, queue)?
            }
        } else if seq == self.tail && self.fin {
            Outgoing::fin(seq, false)
        } else {
            return None;
        };
        self.on_transmit(&outgoing, now);
        self.high = self.next;
        self.on_first_transmit(&outgoing, config, rtt, now);
        Some(outgoing)
    }

    /// Advances `next` past packets that are sent in order.
    #[inline]
    fn on_transmit(&mut self, outgoing: &Outgoing, now: Nanos) {
        if outgoing.seq == self.una {
            self.una_sent_at = Some((outgoing.seq, now));
        }
        self.next = outgoing.seq.add(outgoing.count);
    }

    /// Chooses at most `room` new data packets to send, and their flags (S1, S2, S4, S6).
    #[inline]
    fn first_data(
        &mut self,
        seq: Seq,
        room: u16,
        config: &Config,
        queue: &mut impl WriteQueue,
    ) -> Option<Outgoing> {
        let most = self.most_first(seq, room, config, queue)?;
        let (starts, ends) = (!self.in_transmission, seq.add(most) == self.tail);
        Some(self.first(seq, most, starts, ends))
    }

    /// Returns the number of new packets that may be sent, at most `room`; `None` if none may.
    #[inline(always)]
    pub(in super::super) fn most_first(
        &self,
        seq: Seq,
        room: u16,
        config: &Config,
        queue: &mut impl WriteQueue,
    ) -> Option<u16> {
        // The number of packets from the announcement to the later packet `seq`. The announcement
        // is the packet that starts a transmission (TXS). If no transmission is open, packet `seq`
        // itself will be the announcement.
        let behind = if self.in_transmission {
            self.announced.map(|announced| announced.distance(seq))
        } else {
            Some(0)
        };
        let there = seq.distance(self.tail).saturating_sub(u16::from(self.hold));
        let mut most = room.min(there);
        // The packet that announces the transmission may always be sent. So it is added to the
        // number of packets that may follow it.
        if let Some(behind) = behind.filter(|behind| *behind > 0 || most > 1) {
            let announced = self.grants.unscheduled(config).saturating_add(1);
            most = most.min(announced.saturating_sub(behind));
        }
        if most > 1 {
            most = most.min(queue.run(seq));
        }
        (most > 0).then_some(most)
    }

    /// Sends new packets. If `starts` is set, the first packet begins a transmission. If `ends` is
    /// set, the last packet ends a transmission.
    #[inline(always)]
    pub(in super::super) fn first(
        &mut self,
        seq: Seq,
        count: u16,
        starts: bool,
        ends: bool,
    ) -> Outgoing {
        let mut bits = 0;
        if starts {
            bits |= flags::TXS;
            self.announced = Some(seq);
        }
        if ends {
            bits |= flags::TXF;
            self.last_txf = Some(seq.add(count).sub(1));
        }
        self.in_transmission = !ends;
        Outgoing {
            seq,
            count,
            kind: Kind::Data,
            flags: bits,
            resend: false,
        }
    }

    /// Starts the timer for new packets that the peer cannot request (S3). The peer answers such
    /// packets soon, so the round trip is measured on one of them.
    #[inline]
    fn on_first_transmit(&mut self, outgoing: &Outgoing, config: &Config, rtt: &Rtt, now: Nanos) {
        if outgoing.kind == Kind::Data && outgoing.flags == 0 {
            return;
        }
        if self.timer.is_none() {
            self.timer = Some(now.saturating_add(rtt.timeout(config.least_timeout(), self.tries)));
        }
        if self.timed.is_none() {
            let ends = outgoing.flags & flags::TXF != 0;
            let last = outgoing.count.saturating_sub(1);
            let index = if outgoing.flags == flags::TXF {
                last
            } else {
                0
            };
            self.timed = Some(Timed {
                seq: outgoing.seq.add(index),
                sent_at: now,
                delayable: ends && index == last,
            });
        }
    }

    /// Retransmits at most `room` packets. The acknowledgement of a later packet may have waited
    /// for these packets, so the current measurement of the round trip ends (Karn's rule).
    #[cold]
    pub(super) fn retransmit(
        &mut self,
        seq: Seq,
        room: u16,
        queue: &mut impl WriteQueue,
    ) -> Outgoing {
        self.timed = None;
        self.note_repeat();
        if self.fin && seq == self.tail {
            return Outgoing::fin(seq, true);
        }
        let (count, flags) = self.retransmit_run(seq, room, queue);
        Outgoing {
            seq,
            count,
            kind: Kind::Data,
            flags,
            resend: true,
        }
    }

    /// Returns the number of packets that can be retransmitted as one run, and their flags. In a
    /// run only the first packet has TXS, and only the last one TXF.
    fn retransmit_run(&self, seq: Seq, room: u16, queue: &mut impl WriteQueue) -> (u16, u8) {
        let end = if self.high.after(self.tail) {
            self.tail
        } else {
            self.high
        };
        let most = room.min(seq.distance(end));
        let most = if most > 1 {
            most.min(queue.run(seq))
        } else {
            most
        };
        let mut flags = queue.flags(seq) & (flags::TXS | flags::TXF);
        let mut count = 1;
        while count < most && flags & flags::TXF == 0 {
            let next = queue.flags(seq.add(count));
            if next & flags::TXS != 0 {
                break;
            }
            flags |= next & flags::TXF;
            count = count.saturating_add(1);
        }
        (count, flags)
    }

    fn syn(&mut self, now: Nanos) -> Outgoing {
        let seq = self.una;
        let resend = self.high != seq;
        self.high = seq.add(1);
        if self.timer.is_none() {
            self.timer = Some(now.saturating_add(handshake_timeout(self.tries)));
        }
        self.timed = (!resend).then_some(Timed {
            seq,
            sent_at: now,
            delayable: false,
        });
        Outgoing {
            seq,
            count: 1,
            kind: Kind::Syn,
            flags: 0,
            resend,
        }
    }

    /// Marks the SYN as sent, at an unknown time.
    pub(in super::super) fn assume_syn_sent(&mut self, now: Nanos) {
        self.resend_first = false;
        let _ = self.syn(now);
        self.timed = None;
    }
}
