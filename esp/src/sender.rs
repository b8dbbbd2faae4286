// SPDX-License-Identifier: GPL-2.0

//! The sending half: windows, announcements and retransmission. S1 to S8 in the comments are the
//! sender's rules in `docs/protocol.md`.
//!
//! The caller owns the write queue. The sender keeps only the numbers that divide the queue:
//!
//! ```text
//!      una          next         high         tail
//! acked | sent once, | sent once, | queued,    | the FIN's
//!       | sent again | to be sent | never sent | number
//!       | if need be | again      |            |
//! ```
//!
//! The window starts at `window_start`, the number of the last acknowledgement that opened a
//! window. A hold only acknowledges receipt: it moves `una` but not `window_start`.
//!
//! Choices beyond Reinhardt 2006 and Treydte 2007:
//!
//! * A packet gets its flags when it is first sent: TXS if no transmission is open, TXF if nothing
//!   is queued behind the packet. A retransmission repeats these flags, because the receiver
//!   derives the bounds of the transmission from them.
//! * After the last acknowledgement that opened a window, at most one window of packets is sent,
//!   however many announcements these contain.
//! * In a connection with records, the queue knows the packets that begin and end a record, even
//!   before they are sent. The first packet of a record carries TXS, and the last one TXF.
//! * The FIN is not part of the queue. It takes the number after the last packet and obeys the same
//!   window.
//! * The retransmission timer retransmits the first unacknowledged packet, not the last one with
//!   TXS or TXF. If the receiver has this packet, its answer carries the number that the receiver
//!   expects next. If the receiver lacks this packet, the retransmission is exactly what it needs.
//!   The timeout remains in effect until everything that was outstanding is acknowledged. Until
//!   then, a partial hold makes the sender retransmit the next packet at once. The first partial
//!   acknowledgement makes the sender go back, like a request, which ends the timeout. So a row of
//!   lost messages costs one timeout, not one each.
//! * Packets that were never sent may be split again at any time, and take new numbers. Packets
//!   that were sent may be split again only once the receiver has skipped their numbers. From then
//!   on the receiver rejects these numbers. The receiver's answer reports which of these packets
//!   had arrived. See [`Pause`].

use super::config::Config;
use super::masks::Wrapped;
use super::rtt::Rtt;
use super::seq::Seq;
use super::timers::{Nanos, ACK_DELAY};
use super::wire::Header;
use granted::Granted;
use missing::Missing;
use pausing::Pause;

mod granted;
mod missing;
mod pausing;
mod recovery;
mod transmit;

/// The kind of a packet that takes a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Syn,
    Data,
    Fin,
}

/// A packet, or a run of data packets, to send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outgoing {
    pub(super) seq: Seq,
    /// Number of packets; 1 for a SYN or a FIN.
    pub(super) count: u16,
    pub(super) kind: Kind,
    /// The flags TXS and TXF.
    pub(super) flags: u8,
    pub(super) resend: bool,
}

impl Outgoing {
    /// Returns the FIN with the number `seq`.
    #[inline]
    const fn fin(seq: Seq, resend: bool) -> Self {
        Self {
            seq,
            count: 1,
            kind: Kind::Fin,
            flags: 0,
            resend,
        }
    }
}

/// The packets that an acknowledgement newly acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acked {
    pub(super) data: u16,
    pub(super) syn: bool,
    pub(super) fin: bool,
}

/// Maximum number of unacknowledged packets. Of the 2^15 - 1 numbers that can be compared with the
/// first one, two are reserved for the SYN and the FIN.
const MOST_QUEUED: u16 = 0x7ffd;

/// The packet whose round trip is being measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Timed {
    seq: Seq,
    sent_at: Nanos,
    delayable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sender {
    /// The number of the SYN.
    isn: Seq,
    una: Seq,
    /// The number of times that numbers have wrapped at `una`.
    wrapped: Wrapped,
    /// The highest acknowledgement number that opened a window; at most `una`.
    window_start: Seq,
    next: Seq,
    high: Seq,
    tail: Seq,
    syn_acked: bool,
    fin: bool,
    hold: bool,
    /// Whether no bytes may be appended to the last queued packet.
    sealed: bool,
    /// Whether a transmission is open, because the newest packet that was sent had no TXF.
    in_transmission: bool,
    /// Whether each transmission is a record. The write queue knows the bounds of records.
    records: bool,
    /// The last packet with TXS, until an acknowledgement of it opens a window.
    announced: Option<Seq>,
    /// The last packet with TXF, until it is acknowledged.
    last_txf: Option<Seq>,
    /// Whether a probe is due, because the window is closed or the peer has to skip numbers.
    probe: bool,
    /// Whether the packet at `una` is to be sent next, wherever `next` is.
    resend_first: bool,
    /// The value of `high` at the most recent timeout, until `una` reaches this value.
    recover: Option<Seq>,
    /// The last packet that was sent while it was at `una`: its number, and the time at which it
    /// was sent. `una` may have advanced since.
    una_sent_at: Option<(Seq, Nanos)>,
    timed: Option<Timed>,
    pause: Option<Pause>,
    /// Whether the receiver accepts skips.
    skips: bool,
    missing: Missing,
    grants: Granted,
    /// Whether a retransmission or a probe was sent after the FIN was first sent. The peer may
    /// already have what such a packet repeats.
    repeated: bool,
    /// Number of timeouts since the last progress.
    tries: u8,
    timer: Option<Nanos>,
}

impl Sender {
    /// Returns the number of our SYN.
    pub(super) fn isn(&self) -> Seq {
        self.isn
    }

    /// Creates a sender whose SYN has the number `isn` and is due.
    pub(super) fn new(isn: Seq) -> Self {
        Self {
            isn,
            una: isn,
            wrapped: Wrapped::default(),
            window_start: isn,
            next: isn.add(1),
            high: isn,
            tail: isn.add(1),
            syn_acked: false,
            fin: false,
            hold: false,
            sealed: false,
            in_transmission: false,
            records: false,
            announced: None,
            last_txf: None,
            probe: false,
            resend_first: true,
            recover: None,
            una_sent_at: None,
            timed: None,
            pause: None,
            skips: false,
            missing: Missing::default(),
            grants: Granted::default(),
            repeated: false,
            tries: 0,
            timer: None,
        }
    }

    /// Makes each transmission a record, whose bounds the queue knows.
    pub(super) fn keep_records(&mut self) {
        self.records = true;
    }

    /// Notes that the receiver reported many senders.
    pub(super) fn set_crowded(&mut self) {
        self.grants.set_crowded();
    }

    /// See [`Connection::announces_short`](super::Connection::announces_short).
    #[inline]
    pub(super) fn announces_short(&self, config: &Config) -> bool {
        !self.in_transmission && !self.records && self.grants.is_short(config) && self.unsent() == 0
    }

    /// Notes the largest grant that our SYN or SYN|ACK advertises.
    pub(super) fn advertise_grant(&mut self, largest: u16) {
        self.grants.advertise(largest);
    }

    /// Sets whether forged packets cannot pass for the receiver's.
    pub(super) fn set_safe(&mut self, safe: bool) {
        self.grants.set_safe(safe);
    }

    /// Takes the windows that the receiver grants, if `header` carries a grant.
    #[inline]
    pub(super) fn take_grant(&mut self, header: &Header) {
        if header.is_grant() {
            self.grants.take(header);
        }
    }

    /// Returns the maximum number of packets that may follow the last acknowledgement that opened a
    /// window.
    #[inline]
    pub(super) fn window(&self, config: &Config) -> u16 {
        self.grants.window(config)
    }

    /// Returns the number of times that numbers have wrapped at `seq`.
    pub(super) fn wraps_at(&self, seq: Seq) -> u16 {
        self.wrapped.count_at(self.una, seq)
    }

    /// Returns the first number that is not acknowledged.
    #[inline]
    pub(super) fn una(&self) -> Seq {
        self.una
    }

    /// Returns the number after the highest one ever sent.
    #[inline]
    pub(super) fn high(&self) -> Seq {
        self.high
    }

    /// Returns whether the SYN is acknowledged.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.syn_acked
    }

    /// Returns whether anything sent is not acknowledged.
    #[inline]
    pub(super) fn is_outstanding(&self) -> bool {
        self.una != self.high
    }

    /// Returns whether the peer owes an acknowledgement, either for packets in flight or to open
    /// the window for waiting packets.
    #[inline]
    pub(super) fn awaits_peer(&self) -> bool {
        self.is_outstanding() || self.is_blocked()
    }

    /// Returns whether packets wait for the window to open, although everything that was sent is
    /// acknowledged. The acknowledgements were holds, which open no window. The acknowledgement
    /// that opens the window may be lost, and the peer would not notice the loss.
    #[inline]
    fn is_blocked(&self) -> bool {
        let end = self.tail.add(u16::from(self.fin));
        self.syn_acked && self.una == self.high && self.window_start != self.una && self.high != end
    }

    /// Returns whether the peer may have received everything before it forgot the connection. The
    /// peer's RST answers the packet whose number is one less than `behind`. `is_data` is false if
    /// the RST may also answer an empty packet that was sent later.
    pub(super) fn may_be_forgotten(&self, behind: Seq, is_data: bool) -> bool {
        self.repeated || (is_data && self.has_sent_fin() && behind == self.high)
    }

    /// Returns whether a RST that acknowledges `behind`, from a host that does not know the
    /// connection, may answer one of our packets: a probe, the last packet, or a packet between
    /// them.
    pub(super) fn may_be_answered(&self, behind: Seq) -> bool {
        let probe = self.una.sub(1);
        probe.distance(behind) <= probe.distance(self.high)
    }

    /// Notes a transmission of a packet that the peer may already have.
    #[inline]
    pub(super) fn note_repeat(&mut self) {
        self.repeated |= self.has_sent_fin();
    }

    /// Returns whether everything queued was sent, and no retransmission, probe or FIN is due.
    #[inline]
    pub(super) fn has_nothing_to_send(&self) -> bool {
        let all_sent = self.next == self.high && self.high == self.tail;
        let resends = self.resend_first | self.missing.is_due();
        all_sent && self.syn_acked && !(self.fin | self.probe | resends)
    }

    /// Returns whether packets wait for the window to open, and nothing else is due now.
    #[inline]
    pub(super) fn awaits_window(&self, config: &Config) -> bool {
        self.syn_acked
            && self.high != self.tail
            && !(self.resend_first | self.probe | self.missing.is_due())
            && self.window_start.distance(self.next) >= self.window(config)
            && (self.timer.is_some() || !self.is_blocked())
    }

    /// Clears the pending probe, and returns whether there was one.
    #[inline]
    pub(super) fn take_probe(&mut self) -> bool {
        core::mem::take(&mut self.probe)
    }

    /// Returns whether the SYN is acknowledged, and no packet was queued behind it.
    pub(super) fn is_unused(&self) -> bool {
        let (first, wrapped) = Wrapped::behind_syn(self.isn);
        self.una == first && self.tail == first && self.wrapped == wrapped
    }

    /// Returns whether the packet `seq` was never sent.
    pub(super) fn is_unsent(&self, seq: Seq) -> bool {
        !seq.before(self.high)
    }

    /// Returns whether all queued packets are acknowledged.
    #[inline]
    pub(super) fn is_drained(&self) -> bool {
        self.queued() == 0
    }

    /// Returns whether the FIN, and so everything before it, was sent at least once.
    #[inline]
    pub(super) fn has_sent_fin(&self) -> bool {
        self.fin && self.high.after(self.tail)
    }

    /// See [`Connection::unacked`](super::Connection::unacked).
    #[inline]
    pub(super) fn queued(&self) -> u16 {
        if self.una.after(self.tail) {
            return 0;
        }
        let numbers = self.una.distance(self.tail);
        numbers.saturating_sub(u16::from(!self.syn_acked))
    }

    /// See [`Connection::cursor`](super::Connection::cursor).
    #[inline]
    pub(super) fn cursor(&self) -> Seq {
        if self.resend_first {
            self.una
        } else {
            let missing = self.missing.first();
            missing.map_or(self.next, |first| self.una.add(first))
        }
    }

    /// Returns whether a number is free for one more packet.
    #[inline]
    pub(super) fn can_enqueue(&self) -> bool {
        self.free_numbers() > 0
    }

    /// Returns the number that the next queued packet takes.
    #[inline]
    pub(super) fn tail(&self) -> Seq {
        self.tail
    }

    /// Returns the number of packets that may still be queued.
    #[inline]
    pub(super) fn free_numbers(&self) -> u16 {
        if self.fin {
            return 0;
        }
        MOST_QUEUED.saturating_sub(self.una.distance(self.tail))
    }

    #[inline]
    pub(super) fn enqueue(&mut self, packets: u16) {
        self.tail = self.tail.add(packets);
        if packets > 0 {
            self.sealed = false;
        }
    }

    /// See [`Connection::seal_last`](super::Connection::seal_last).
    #[inline]
    pub(super) fn seal_last(&mut self) {
        self.sealed = true;
    }

    /// See [`Connection::last_takes_more`](super::Connection::last_takes_more).
    #[inline]
    pub(super) fn last_takes_more(&self) -> bool {
        !self.sealed && self.last_is_unsent()
    }

    #[inline]
    pub(super) fn hold_last(&mut self, hold: bool) {
        self.hold = hold;
    }

    /// See [`Connection::last_is_unsent`](super::Connection::last_is_unsent).
    #[inline]
    pub(super) fn last_is_unsent(&self) -> bool {
        !self.fin && self.unsent() > 0
    }

    /// See [`Connection::unsent`](super::Connection::unsent).
    #[inline]
    pub(super) fn unsent(&self) -> u16 {
        let sent = if self.syn_acked {
            self.high
        } else {
            self.una.add(1)
        };
        if sent.before(self.tail) {
            sent.distance(self.tail)
        } else {
            0
        }
    }

    /// Ends the stream after the queued packets.
    #[inline]
    pub(super) fn finish(&mut self) {
        self.fin = true;
        self.hold = false;
    }

    /// Sends the SYN again, now as a SYN|ACK, whose tries are counted from 0.
    pub(super) fn restart_syn(&mut self) {
        self.resend_first = true;
        self.tries = 0;
        self.timer = None;
    }

    /// Retransmits the SYN or SYN|ACK, because the peer has retransmitted its own.
    #[inline]
    pub(super) fn repeat_syn(&mut self) {
        self.resend_first = true;
    }

    /// Returns whether an acknowledgement number is within the packets that were sent. The number
    /// must not be before the last acknowledgement number that opened a window. While the receiver
    /// withholds a later number, its data packets repeat the number that last opened a window.
    #[inline]
    pub(super) fn is_acceptable(&self, ack: Seq) -> bool {
        let advance = self.window_start.distance(ack);
        advance <= self.window_start.distance(self.high) && (self.syn_acked || advance > 0)
    }

    /// Returns whether an acknowledgement number is at most a window older than an acceptable one.
    pub(super) fn is_recent(&self, ack: Seq, config: &Config) -> bool {
        self.syn_acked && ack.distance(self.window_start) <= self.window(config)
    }

    /// Processes an acceptable acknowledgement (S7). If `opens` is false, the acknowledgement is a
    /// hold, which opens no window.
    #[inline]
    pub(super) fn on_ack(
        &mut self,
        ack: Seq,
        opens: bool,
        config: &Config,
        rtt: &mut Rtt,
        now: Nanos,
    ) -> Acked {
        if opens && self.window_start.before(ack) {
            if self.una == self.high {
                // The window is open, so the sender need not probe the peer to open it.
                self.timer = None;
                self.tries = 0;
            }
            self.window_start = ack;
            self.announced = self.announced.filter(|s| !s.before(ack));
        }
        let mut acked = Acked {
            data: 0,
            syn: false,
            fin: false,
        };
        if !self.una.before(ack) {
            return acked;
        }
        acked.data = self.una.distance(ack);
        if !self.syn_acked {
            self.syn_acked = true;
            acked.syn = true;
            acked.data = acked.data.saturating_sub(1);
        }
        if self.fin && ack.after(self.tail) {
            acked.fin = true;
            acked.data = acked.data.saturating_sub(1);
        }
        self.wrapped = self.wrapped.advanced(self.una, ack);
        self.missing.shift(self.una.distance(ack));
        self.una = ack;
        if self.next.before(ack) {
            self.next = ack;
        }
        self.measure(ack, rtt, now);
        self.last_txf = self.last_txf.filter(|s| !s.before(ack));
        self.recover = self.recover.filter(|r| ack.before(*r));
        self.resend_first = self.recover.is_some();
        if opens && self.recover.is_some() {
            // The receiver dropped all packets that arrived after the missing one, so all are sent
            // again, once: acknowledgements of the packets that leave now show no further loss.
            self.go_back();
            self.recover = None;
        }
        self.tries = 0;
        if self.is_paused() {
            self.resend_first = false;
            return acked;
        }
        self.timer = self
            .needs_timer()
            .then(|| now.saturating_add(self.timeout(config, rtt)));
        acked
    }

    /// Ends the round-trip measurement if `ack` acknowledges its packet.
    #[inline(always)]
    fn measure(&mut self, ack: Seq, rtt: &mut Rtt, now: Nanos) {
        if let Some(timed) = self.timed.filter(|t| t.seq.before(ack)) {
            let elapsed = now.saturating_sub(timed.sent_at);
            // The peer may have delayed the acknowledgement to send it with data. Then only bounds
            // of the round trip are known.
            let delay = if timed.delayable { ACK_DELAY } else { 0 };
            rtt.sample_between(elapsed.saturating_sub(delay), elapsed);
            self.timed = None;
        }
    }
}
