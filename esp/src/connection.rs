// SPDX-License-Identifier: GPL-2.0

//! One connection: handshake, end, resets, and its two halves together.
//!
//! The engine is pulled. The caller hands in packets, reads and expired timers.
//! After each of these it
//!
//! 1. does what the [`Outcome`] says, if there is one;
//! 2. has the connection [scheduled](super::AckQueue::schedule);
//! 3. calls [`Connection::poll_transmit`] until there is nothing to send;
//! 4. arms one timer for [`Connection::deadline`].
//!
//! Choices beyond the theses:
//!
//! * Both sides may open the same connection at once, as in TCP. A SYN|ACK with
//!   another number than the SYN before it replaces that number: its sender has
//!   seen our SYN.
//! * There is no TIME-WAIT. The side that acknowledges the other's FIN last forgets the connection.
//!   If that acknowledgement is lost, a retransmission finds no socket and is answered with RST. So
//!   a RST is a clean end once the peer's FIN has arrived and ours was sent, if only our FIN is
//!   unacknowledged. It also is if it comes from a host that does not know the connection
//!   ([`reset_for`](super::reset_for)), not from a peer that gives up, and if that host may have
//!   had everything: since our FIN left we have sent something again or probed, or the RST answers
//!   the FIN, which may have arrived twice, and no packet before it. A host that never had the data
//!   would have answered that.
//! * A packet with an acknowledgement out of bounds is dropped whole, with its
//!   data. As in TCP (RFC 9293, 3.10.7.3), one that arrives instead of the answer
//!   to our SYN belongs to a connection that our side has forgotten, and is
//!   answered with RST.
//! * A SYN with another number than the connection's may come from a host that
//!   was restarted. It is answered with an acknowledgement (a challenge ACK, RFC
//!   5961). A host that knows the connection takes nothing from it. Another one
//!   resets us, and its next SYN finds the port free. This cannot loop: the
//!   peer's reply never has an older number than we expect, since a host that
//!   answers an empty packet expects a number beyond the packet's, and has sent
//!   all that this one acknowledges.
//! * A connection whose socket is closed is an *orphan*. Nobody will read, so data that arrives for
//!   it ends it with a RST, and it waits for the peer's FIN for some seconds only. It does not last
//!   for ever if the peer answers, has room, and acknowledges nothing: two orphans that a forged
//!   packet has set apart would keep each other alive. Nor does it, beyond some minutes, if the
//!   peer has no room: a peer that never reads would hold it for ever. If the user has ended both
//!   halves, data ends the connection in the same way, as with TCP.

use super::config::{Config, Stats, LARGEST_WINDOW};
use super::cookie::MOST_WINDOW;
use super::masks::Masks;
use super::options::Options;
use super::outcome::{Outcome, Room};
use super::receiver::Receiver;
use super::records::Records;
use super::rtt::Rtt;
use super::sender::Sender;
use super::seq::Seq;
use super::state::{Failure, State};
use super::timers::{
    earlier, is_due, Liveness, Nanos, Timer, ORPHAN_HELD, ORPHAN_STUCK, ORPHAN_WAIT, SYN_ACK_TRIES,
    SYN_TRIES,
};
use super::wire::{flags, Header};

mod input;
mod masks;
mod output;
mod turns;

/// Whether both sides have sent a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Handshake {
    /// One has.
    Usual,
    /// Both have, and our SYN|ACK has not left.
    Crossing,
    /// Both have.
    Crossed,
}

/// The user's end of the receiving direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reader {
    /// The user may read.
    Open,
    /// The user has shut the direction down.
    Shutdown,
    /// The socket is closed: the connection is an orphan.
    Closed {
        /// When it stops waiting, for a FIN or for progress.
        until: Nanos,
        /// When it ends although its peer holds all that it is sent.
        held: Nanos,
    },
}

/// A RST that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PendingReset {
    None,
    /// A packet that arrived instead of the answer to our SYN, a challenge ACK for
    /// one, is answered with this.
    Challenged(Header),
    /// Data has arrived that nobody will read, or what does not belong to such a connection.
    Unread,
}

/// The engine of one connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    /// The counters; `tx_err` is the caller's to count.
    pub stats: Stats,
    local_port: u16,
    remote_port: u16,
    state: State,
    failure: Option<Failure>,
    config: Config,
    /// The window that a SYN or SYN|ACK told: a larger one would surprise the peer.
    advertised_window: u16,
    /// Whether it told that requests may name packets.
    advertised_selective: bool,
    /// Whether the peer's did.
    peer_selective: bool,
    /// The user's value in place of [`Config::user_timeout`], 0 for none.
    user_timeout: u32,
    /// How often a SYN leaves.
    syn_tries: u8,
    pub(super) sender: Sender,
    receiver: Receiver,
    rtt: Rtt,
    liveness: Liveness,
    handshake: Handshake,
    reader: Reader,
    reset: PendingReset,
    /// When a challenge ACK was last sent.
    last_challenge: Option<Nanos>,
    /// The peer has told its version: all data that it sends acknowledges.
    peer_has_version: bool,
    masks: Masks,
    /// Of a connection with records.
    pub(super) records: Option<Records>,
}

impl Connection {
    /// A connection that is yet to be opened.
    pub fn new(local_port: u16, remote_port: u16, config: Config) -> Self {
        Self {
            stats: Stats::default(),
            local_port,
            remote_port,
            state: State::Closed,
            failure: None,
            config,
            advertised_window: LARGEST_WINDOW,
            advertised_selective: false,
            peer_selective: false,
            user_timeout: 0,
            syn_tries: SYN_TRIES,
            sender: Sender::new(Seq(0)),
            receiver: Receiver::new(Seq(0), 0),
            rtt: Rtt::default(),
            liveness: Liveness::default(),
            handshake: Handshake::Usual,
            reader: Reader::Open,
            reset: PendingReset::None,
            last_challenge: None,
            peer_has_version: false,
            masks: Masks::default(),
            records: None,
        }
    }

    /// The caller has another way to the peer: a SYN leaves `tries` times at most.
    pub fn set_syn_tries(&mut self, tries: u8) {
        self.syn_tries = tries;
    }

    /// Opens the connection: a SYN with the random number `isn` is due.
    pub fn connect(&mut self, isn: Seq, now: Nanos) {
        self.sender = Sender::new(isn);
        if self.records.is_some() {
            self.sender.keep_records();
        }
        self.receiver = Receiver::new(Seq(0), now);
        self.failure = None;
        self.reset = PendingReset::None;
        self.last_challenge = None;
        self.peer_has_version = false;
        self.peer_selective = false;
        self.handshake = Handshake::Usual;
        self.state = State::SynSent;
    }

    /// A listener's connection with the sender of a SYN: a SYN|ACK with the random
    /// number `isn` is due.
    pub fn accept(local_port: u16, syn: &Header, isn: Seq, config: Config, now: Nanos) -> Self {
        let mut connection = Self::new(local_port, syn.src, config);
        connection.sender = Sender::new(isn);
        connection.receiver = Receiver::new(syn.seq, now);
        connection.state = State::SynReceived;
        connection.stats.pkt_rx = 1;
        connection
    }

    /// The peer's SYN had these options: to be called after [`accept`](Self::accept).
    pub fn take_options(&mut self, options: &Options) {
        self.receiver.take_options(options);
        self.peer_has_version |= options.version.is_some();
        if options.takes_skips {
            self.sender.may_skip();
        }
        self.peer_selective = options.selective;
        self.negotiate_selective();
        if options.crowded {
            self.sender.set_crowded();
        }
        self.masks.take(options.nonce);
        if let (Some(records), Some(largest)) = (&mut self.records, options.records) {
            records.set_peer_largest(largest);
        }
    }

    /// Both sides have told whether requests may name packets, or one has.
    fn negotiate_selective(&mut self) {
        if self.advertised_selective && self.peer_selective {
            self.receiver.enable_selective();
        }
    }

    /// The peer's SYN or SYN|ACK had these options: to be called where [`Outcome::answered`] says
    /// so. Refuses a peer with records if this end has none, and one without if it has.
    pub fn take_answer(&mut self, options: &Options, outcome: &mut Outcome) {
        self.take_options(options);
        if options.records.is_some() != self.records.is_some() {
            self.break_off(Failure::Refused, outcome);
        }
    }

    /// Ends the connection, with a RST that tells the peer.
    #[cold]
    pub(super) fn break_off(&mut self, failure: Failure, outcome: &mut Outcome) {
        self.fail(failure, outcome);
        self.reset = PendingReset::Unread;
        outcome.established = false;
        outcome.deliver = false;
    }

    /// The connection that a listener makes of the packet that answers its SYN|ACK,
    /// if it has kept nothing of the SYN: see [`cookie`](super::cookie). The packet
    /// comes next.
    pub fn accept_forgotten(
        local_port: u16,
        syn: &Header,
        isn: Seq,
        config: Config,
        now: Nanos,
    ) -> Self {
        let mut connection = Self::accept(local_port, syn, isn, config, now);
        connection.sender.assume_syn_sent(now);
        // The SYN told this, or it would not have been answered by a cookie.
        connection.peer_has_version = true;
        connection.sender.may_skip();
        connection.receiver.widen_span(MOST_WINDOW);
        connection.advertised_window = connection.config.window();
        connection.stats.pkt_tx = 1;
        connection
    }

    /// The state.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Why the connection ended, `None` while it lasts and after a clean end.
    #[inline]
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// The parameters, as the connection follows them.
    #[inline]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes the parameters from now on. The window does not get larger than the peer was told.
    pub fn set_config(&mut self, config: Config) {
        self.config = config.with_window_up_to(self.advertised_window);
        if self.user_timeout != 0 {
            self.config.user_timeout = self.user_timeout;
        }
    }

    /// Sets a [`user_timeout`](Config::user_timeout) of `millis` in place of the
    /// configured one, also of later configurations; 0 ends that. `config` has the
    /// configured one.
    pub fn set_user_timeout(&mut self, millis: u32, config: Config) {
        self.user_timeout = millis;
        self.set_config(config);
    }

    /// The smoothed round trip time, 0 before one was measured, and the retransmission timeout.
    pub fn times(&self) -> (Nanos, Nanos) {
        let timeout = self.rtt.timeout(self.config.least_timeout(), 0);
        (self.rtt.smoothed(), timeout)
    }

    /// Whether the write queue may grow: the stream is not ended and the
    /// numbers suffice, some 32,000 packets.
    #[inline]
    pub fn can_enqueue(&self) -> bool {
        matches!(
            self.state,
            State::SynSent | State::SynReceived | State::Established | State::CloseWait
        ) && self.sender.can_enqueue()
    }

    /// The number that the packet queued next will take.
    #[inline]
    pub fn next_number(&self) -> Seq {
        self.sender.tail()
    }

    /// How many packets the write queue may grow by.
    #[inline]
    pub fn free_numbers(&self) -> u16 {
        if self.can_enqueue() {
            self.sender.free_numbers()
        } else {
            0
        }
    }

    /// So many data packets were appended to the write queue, at most
    /// [`free_numbers`](Self::free_numbers); they take the next numbers.
    #[inline]
    pub fn enqueue(&mut self, packets: u16) {
        self.sender.enqueue(packets.min(self.free_numbers()));
    }

    /// Whether the packets with the number `seq` and behind it were never sent: then they may be
    /// cut anew at once, see [`recut`](Self::recut).
    pub fn is_unsent(&self, seq: Seq) -> bool {
        self.sender.is_unsent(seq)
    }

    /// Packets that were sent are too large to retransmit. No packet of the queue leaves
    /// until it is known which of them the peer has. Then [`Outcome::cut`] has the rest of the
    /// queue cut anew, or the connection ends with [`Failure::TooLarge`]. Without such packets the
    /// queue is cut anew a while later.
    pub fn pause(&mut self, now: Nanos) {
        if self.sender.is_open() {
            self.sender.pause(&self.config, &self.rtt, now);
        }
    }

    /// Whether all that the peer has not acknowledged can be retransmitted in smaller packets.
    /// Otherwise a [`pause`](Self::pause) may end the connection.
    pub fn may_shrink(&self) -> bool {
        self.sender.may_shrink()
    }

    /// Whether a [`pause`](Self::pause) lasts.
    pub fn is_paused(&self) -> bool {
        self.sender.is_paused()
    }

    /// The number that the packet `from` has when the queue was [cut anew](Self::recut) from there
    /// on: none that was sent is used again.
    pub fn number_behind(&self, from: Seq) -> Seq {
        self.sender.number_behind(from)
    }

    /// The write queue was cut anew from the number `from` on, and holds `packets` packets from
    /// there, the first of which has the number [`number_behind`](Self::number_behind). To be
    /// called after [`Outcome::cut`] with [`first_unacked`](Self::first_unacked), or without one
    /// with a number that [`is_unsent`](Self::is_unsent). `kept` tells with which flags the packet
    /// `from` left before.
    pub fn recut(&mut self, from: Seq, packets: u16, kept: impl FnOnce(Seq) -> u8) {
        self.sender.recut(from, packets, kept);
    }

    /// While `hold`, the last queued packet does not leave: a send call that still
    /// copies, or an announced one, queues more behind it, so that the packet need
    /// not carry TXF. To be released before a call sleeps, and within a time that
    /// the peer can wait for the data.
    #[inline]
    pub fn hold_last(&mut self, hold: bool) {
        self.sender.hold_last(hold);
    }

    /// Whether the last queued packet was never sent.
    #[inline]
    pub fn last_is_unsent(&self) -> bool {
        self.sender.last_is_unsent()
    }

    /// A record ends with the packet queued last: the next bytes begin a packet of
    /// their own.
    #[inline]
    pub fn seal_last(&mut self) {
        self.sender.seal_last();
    }

    /// Whether all that is to be sent waits for the window to open. Bytes that are appended
    /// meanwhile need no [`poll_transmit`](Self::poll_transmit), which would find nothing and
    /// change nothing.
    #[inline]
    pub fn awaits_window(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait)
            && self.sender.awaits_window(&self.config)
            && self.receiver.has_nothing_to_send()
            && !self.liveness.has_probe()
    }

    /// Whether a transmission that begins now is to be announced by a packet of
    /// [`SHORT`](super::ack_queue::SHORT) bytes, and [sealed](Self::seal_last), if it has more than
    /// one packet: many others announce theirs at the same receiver.
    #[inline]
    pub fn announces_short(&self) -> bool {
        self.sender.announces_short(&self.config)
    }

    /// Whether bytes may be appended to the last queued packet (S5): it was never sent, and no
    /// record ends with it.
    #[inline]
    pub fn last_takes_more(&self) -> bool {
        self.sender.last_takes_more()
    }

    /// Queued data packets that were never sent.
    #[inline]
    pub fn unsent(&self) -> u16 {
        self.sender.unsent()
    }

    /// The number of the packet that
    /// [`poll_transmit`](Self::poll_transmit) gives out next, window permitting.
    #[inline]
    pub fn cursor(&self) -> Seq {
        self.sender.cursor()
    }

    /// The number of the first packet that is not acknowledged: the write queue's
    /// head, if there is one.
    #[inline]
    pub fn first_unacked(&self) -> Seq {
        self.sender.una()
    }

    /// Queued data packets not yet acknowledged, sent or not.
    #[inline]
    pub fn unacked(&self) -> u16 {
        self.sender.queued()
    }

    /// Ends the sending direction: a FIN follows all queued data. Without
    /// effect when it is ended already; a connection whose SYN is unanswered is
    /// simply over.
    pub fn close_send(&mut self) {
        self.state = match self.state {
            State::SynReceived | State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            State::SynSent => State::Closed,
            _ => return,
        };
        self.sender.finish();
    }

    /// The user has shut the receiving direction down: once the sending direction
    /// is ended too, data is answered with a RST.
    pub fn receive_shutdown(&mut self) {
        if self.reader == Reader::Open {
            self.reader = Reader::Shutdown;
        }
    }

    /// The socket is closed, and nobody will read again. The sending direction ends as by
    /// [`close_send`](Self::close_send). From now on data fails the connection with
    /// [`Failure::Reset`], and the next packet to send is a RST that tells the peer.
    pub fn orphan(&mut self, now: Nanos) {
        self.close_send();
        self.limit_orphan(now, now.saturating_add(ORPHAN_HELD));
    }

    /// Limits an orphan's life, beyond `held` whatever its peer acknowledges.
    fn limit_orphan(&mut self, now: Nanos, held: Nanos) {
        let wait = if self.state == State::FinWait2 {
            ORPHAN_WAIT
        } else {
            ORPHAN_STUCK
        };
        let until = now.saturating_add(wait).min(held.max(now));
        self.reader = Reader::Closed { until, held };
    }

    /// Ends the connection at once. Returns the RST to send if the peer knows of the connection;
    /// the caller counts it.
    pub fn abort(&mut self) -> Option<Header> {
        let known = !matches!(self.state, State::Closed | State::SynSent);
        let owed = known || self.reset == PendingReset::Unread;
        let reset = owed.then(|| self.reset_header());
        self.state = State::Closed;
        self.reset = PendingReset::None;
        self.receiver.cancel();
        self.receiver.end();
        reset
    }

    fn reset_header(&self) -> Header {
        self.header(self.sender.high(), flags::RST | flags::ACK)
    }

    /// The connection ends as both sides wanted. An answer that is due still
    /// leaves.
    fn close(&mut self, outcome: &mut Outcome) {
        self.state = State::Closed;
        self.receiver.end();
        outcome.closed = true;
    }

    fn fail(&mut self, failure: Failure, outcome: &mut Outcome) {
        self.failure = Some(failure);
        self.receiver.cancel();
        self.close(outcome);
        outcome.failed = Some(failure);
    }

    /// Whether an acknowledgement or a request is withheld until the reader
    /// makes room: only then [`on_read`](Self::on_read) changes anything.
    #[inline]
    pub fn waits_for_room(&self) -> bool {
        self.receiver.waits_for_room()
    }

    /// The receive buffer's limit, bytes, with which the receiver would grant as large a window as
    /// the rate asks for that packets arrive at. `None` if it does.
    #[inline]
    pub fn wanted_room(&self) -> Option<u32> {
        self.receiver.wanted_room()
    }

    /// The most packets that the peer may have sent behind the last advertised number.
    #[inline]
    pub fn granted(&self) -> u16 {
        self.receiver.granted(&self.config)
    }

    /// The sender's window, packets.
    #[inline]
    pub fn window(&self) -> u16 {
        self.sender.window(&self.config)
    }

    /// Whether an acknowledgement waits for data to carry it: only then
    /// [`flush_ack`](Self::flush_ack) changes anything.
    #[inline]
    pub fn waits_for_data(&self) -> bool {
        self.receiver.waits_for_data()
    }

    /// The reader took data and left `room`: a withheld acknowledgement may
    /// leave.
    #[inline]
    pub fn on_read(&mut self, room: Room, now: Nanos) {
        self.receiver.on_read(room, &self.config, now);
    }

    /// The reader is about to sleep: a delayed acknowledgement need not wait
    /// for data any longer.
    #[inline]
    pub fn flush_ack(&mut self) {
        self.receiver.flush();
    }

    /// What the [request](super::Transmit::Request) names that has just been given out: its
    /// payload.
    pub fn named(&self) -> [u8; super::wire::MISSING_MOST] {
        self.receiver.named().0
    }

    /// Whether the peer owes a sign of life soon.
    #[inline]
    fn is_active(&self) -> bool {
        self.sender.awaits_peer() || self.receiver.is_receiving()
    }

    /// When a timer expires. The handshake has the first one only.
    #[inline(always)]
    fn expiry(&self, timer: Timer) -> Option<Nanos> {
        match timer {
            Timer::Retransmission => self.sender.deadline(),
            Timer::Request => self.receiver.request_timer(&self.config, &self.rtt),
            Timer::DelayedAck => self.receiver.ack_timer(),
            Timer::Liveness => {
                let patience = self.config.patience();
                Some(self.liveness.deadline(self.is_active(), patience))
            }
            Timer::Orphan => match self.reader {
                Reader::Closed { until, .. } => Some(until),
                Reader::Open | Reader::Shutdown => None,
            },
        }
    }

    /// When [`on_deadline`](Self::on_deadline) is next to be called, `None` for
    /// never. To be asked after any other call. The caller may keep an earlier timer
    /// running: early expiry is a no-op.
    #[inline]
    pub fn deadline(&self) -> Option<Nanos> {
        if self.state == State::Closed {
            return None;
        }
        let first = self.expiry(Timer::Retransmission);
        if !self.sender.is_open() {
            return first;
        }
        // A loop over the table costs twice the instructions.
        let halves = earlier(
            first,
            earlier(self.expiry(Timer::Request), self.expiry(Timer::DelayedAck)),
        );
        earlier(
            earlier(halves, self.expiry(Timer::Liveness)),
            self.expiry(Timer::Orphan),
        )
    }

    /// A time before which no timer expires that began to run after the last call of
    /// [`deadline`](Self::deadline); `now` if that takes more to find out than asking for the
    /// deadline. A caller whose timer runs no longer than that need not ask.
    #[inline]
    pub fn earliest_new_deadline(&self, now: Nanos) -> Nanos {
        let quiet = self.state == State::Established
            && !self.receiver.is_receiving()
            && !self.receiver.has_hole()
            && !self.receiver.waits_for_room();
        if quiet {
            now.saturating_add(self.config.shortest_timer())
        } else {
            now
        }
    }

    /// Runs the timers that are due. `last_device_rx`: when a packet of any connection last
    /// arrived at the device. Our own packets may be queued behind those of others
    /// in the switch port, so a probe for them waits from then on, within limits.
    pub fn on_deadline(&mut self, last_device_rx: Nanos, now: Nanos) -> Outcome {
        let mut outcome = Outcome::default();
        self.receiver.note_arrival(last_device_rx);
        for timer in Timer::ALL {
            let runs = timer == Timer::Retransmission || self.sender.is_open();
            if self.state == State::Closed || !runs {
                break;
            }
            if is_due(self.expiry(timer), now) {
                self.expire(timer, now, &mut outcome);
            }
        }
        outcome
    }

    fn expire(&mut self, timer: Timer, now: Nanos, outcome: &mut Outcome) {
        let gone = match timer {
            Timer::Retransmission if self.sender.is_silent() => {
                if self.sender.is_outstanding() {
                    return self.break_off(Failure::TooLarge, outcome);
                }
                outcome.cut = true;
                self.sender.end_silence();
                false
            }
            Timer::Retransmission => {
                let tries = if self.state == State::SynSent {
                    self.syn_tries
                } else {
                    SYN_ACK_TRIES
                };
                self.sender.expire(&self.config, &self.rtt, tries, now)
            }
            Timer::Request => {
                self.receiver.on_request_timer(&self.config, &self.rtt, now);
                false
            }
            Timer::DelayedAck => {
                self.receiver.on_ack_timer();
                false
            }
            Timer::Liveness => {
                let (active, patience) = (self.is_active(), self.config.patience());
                self.liveness.expire(active, patience, now)
            }
            Timer::Orphan if self.state == State::FinWait2 => {
                self.close(outcome);
                false
            }
            Timer::Orphan => true,
        };
        if gone {
            self.fail(Failure::TimedOut, outcome);
        }
    }
}
