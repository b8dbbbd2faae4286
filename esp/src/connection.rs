// SPDX-License-Identifier: GPL-2.0

//! One connection: handshake, end, resets, and its two halves together.
//!
//! The engine does nothing on its own. The caller passes in packets, reads and expired timers.
//! After each of these it
//!
//! 1. acts on the [`Outcome`], if there is one;
//! 2. has the connection [scheduled](super::AckQueue::schedule);
//! 3. calls [`Connection::poll_transmit`] until there is nothing to send;
//! 4. arms one timer for [`Connection::deadline`].
//!
//! Choices beyond Reinhardt 2006 and Treydte 2007:
//!
//! * Both sides may open the same connection simultaneously, as in TCP. If the peer's SYN and
//!   SYN|ACK have different numbers, the number of the SYN|ACK counts, because the peer has seen
//!   our SYN when it sends the SYN|ACK.
//! * There is no TIME-WAIT. The side that is last to acknowledge the other's FIN forgets the
//!   connection. If that acknowledgement is lost, the FIN is retransmitted, finds no socket and is
//!   answered with RST. So once the peer's FIN has arrived and ours was sent, a RST is a clean end
//!   in two cases. In the first case, only our FIN is unacknowledged. In the second case, the
//!   sender of the RST no longer knows the connection ([`reset_for`](super::reset_for)), but may
//!   have received everything before it forgot the connection. This is possible if we have
//!   retransmitted or probed since our FIN was first sent. It is also possible if the RST answers
//!   the FIN, or a duplicate of it, and no earlier packet: a host without our data would have
//!   answered the data instead.
//! * A packet whose acknowledgement number is out of bounds is dropped with its data. If such a
//!   packet arrives instead of the answer to our SYN, it belongs to a connection that our side has
//!   forgotten. As in TCP (RFC 9293, 3.10.7.3), it is then answered with RST.
//! * A SYN whose number differs from the connection's may come from a restarted host. It is
//!   answered with a challenge ACK (RFC 5961). A host that knows the connection ignores the
//!   challenge. A host that does not know the connection answers with RST. The RST ends our
//!   connection, so the host's next SYN finds the port free. Challenges and answers cannot loop. A
//!   host answers an empty packet only if it expects a number beyond the packet's, and has sent
//!   everything that the packet acknowledges. So the number of its answer is never older than the
//!   number that we expect.
//! * A connection whose socket is closed is an *orphan*. No process will read, so arriving data
//!   ends the connection with a RST. The orphan waits only some seconds for the peer's FIN. Two
//!   limits end it even if the peer answers. If the peer has room but acknowledges nothing, the
//!   orphan ends: a forged packet may have desynchronised two orphans, which would keep each other
//!   alive. If the peer has no room, the orphan ends after some minutes: a peer that never reads
//!   would hold it for ever. If the user has ended both halves, arriving data also ends the
//!   connection with a RST, as in TCP.

use super::config::{Config, Selective, Stats, LARGEST_WINDOW};
use super::cookie::MOST_WINDOW;
use super::masks::Masks;
use super::options::{Advertised, Options};
use super::outcome::{Outcome, Room};
use super::receiver::Receiver;
use super::records::{Kind, Records};
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
    /// Only one side has sent a SYN.
    Usual,
    /// Both sides have sent a SYN, and our SYN|ACK was not sent yet.
    Crossing,
    /// Both sides have sent a SYN, and our SYN|ACK was sent.
    Crossed,
}

/// The state of the receiving direction as the user controls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reader {
    /// The user may read.
    Open,
    /// The user has shut the direction down.
    Shutdown,
    /// The socket is closed: the connection is an orphan.
    Closed {
        /// The time when the orphan stops waiting for a FIN or for progress.
        until: Nanos,
        /// The time at which the orphan ends even if the peer still answers with a closed window.
        held: Nanos,
    },
}

/// A RST that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PendingReset {
    None,
    /// The RST answers a packet, such as a challenge ACK, that arrived instead of the answer to our
    /// SYN.
    Challenged(Header),
    /// The RST ends the connection, because no process will read the data that arrived, or because
    /// the peer broke the rules.
    Unread,
}

/// The engine of one connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    /// The counters. The engine counts all of them except `tx_err`, which the caller counts.
    pub stats: Stats,
    local_port: u16,
    remote_port: u16,
    state: State,
    failure: Option<Failure>,
    config: Config,
    /// The parameters that our first SYN or SYN|ACK advertised; `None` before it is sent.
    advertised: Option<Advertised>,
    /// Whether the peer's SYN or SYN|ACK allowed requests that name packets.
    peer_selective: bool,
    /// Whether such requests need masks: see [`Selective::WithMasks`].
    selective_needs_masks: bool,
    /// The user's value that overrides [`Config::user_timeout`], in milliseconds; 0 for none.
    user_timeout: u32,
    /// The maximum number of times that a SYN is sent.
    syn_tries: u8,
    pub(super) sender: Sender,
    receiver: Receiver,
    rtt: Rtt,
    liveness: Liveness,
    handshake: Handshake,
    reader: Reader,
    reset: PendingReset,
    /// The time when a challenge ACK was last sent.
    last_challenge: Option<Nanos>,
    /// Whether the peer's SYN had the version option. All data of such a peer carries an
    /// acknowledgement.
    peer_has_version: bool,
    masks: Masks,
    /// Whether this end sends checksums, and drops packets without.
    has_checksums: bool,
    /// The record state; `None` in a connection without records.
    pub(super) records: Option<Records>,
}

impl Connection {
    /// Creates a connection that is not yet open.
    pub fn new(local_port: u16, remote_port: u16, config: Config) -> Self {
        Self {
            stats: Stats::default(),
            local_port,
            remote_port,
            state: State::Closed,
            failure: None,
            config,
            advertised: None,
            peer_selective: false,
            selective_needs_masks: false,
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
            has_checksums: false,
            records: None,
        }
    }

    /// Returns the peer's SYN, as far as it concerns [cookies](super::cookie), and the number of
    /// our SYN|ACK.
    pub fn accepted(&self) -> (Header, Seq) {
        let syn = Header {
            src: self.remote_port,
            dst: self.local_port,
            len: 0,
            seq: self.receiver.irs(),
            ack: Seq(0),
            flags: flags::SYN,
        };
        (syn, self.sender.isn())
    }

    /// Limits how often a SYN is sent, for a caller with an alternative path to the peer.
    pub fn set_syn_tries(&mut self, tries: u8) {
        self.syn_tries = tries;
    }

    /// Opens the connection. A SYN with the random number `isn` is then due.
    pub fn connect(&mut self, isn: Seq, now: Nanos) {
        self.sender = Sender::new(isn);
        self.advertised = None;
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

    /// Creates a listener's connection with the sender of `syn`. A SYN|ACK with the random number
    /// `isn` is then due.
    #[inline(never)]
    pub fn accept(local_port: u16, syn: &Header, isn: Seq, config: Config, now: Nanos) -> Self {
        let mut connection = Self::new(local_port, syn.src, config);
        connection.sender = Sender::new(isn);
        connection.receiver = Receiver::new(syn.seq, now);
        connection.state = State::SynReceived;
        connection.stats.pkt_rx = 1;
        connection
    }

    /// Takes the options of the peer's SYN. Call this after [`accept`](Self::accept).
    pub fn take_options(&mut self, options: &Options) {
        self.receiver.take_options(options);
        self.peer_has_version |= options.version.is_some();
        if options.takes_skips {
            self.sender.may_skip();
        }
        self.peer_selective = options.selective;
        if options.crowded {
            self.sender.set_crowded();
        }
        self.masks.take(options.nonce);
        self.note_masks();
        if let (Some(records), Some(kind)) = (&mut self.records, options.records) {
            records.set_peer_largest(kind.largest);
        }
    }

    /// Enables requests that name packets if both sides have advertised them, and if the connection
    /// has the masks that this side needs.
    fn negotiate_selective(&mut self) {
        let ours = self.advertised.is_some_and(|told| told.selective);
        let safe = !self.selective_needs_masks || self.is_masked();
        self.receiver
            .set_selective(ours && self.peer_selective && safe);
    }

    /// Takes the options of the peer's SYN or SYN|ACK. Call this if [`Outcome::answered`] is set.
    /// Ends the connection as refused if only one end uses records, or if only one is a channel.
    pub fn take_answer(&mut self, options: &Options, outcome: &mut Outcome) {
        self.take_options(options);
        if !Kind::agree(options.records, self.records()) {
            self.break_off(Failure::Refused, outcome);
        }
    }

    /// Ends the connection, and sends the peer a RST.
    #[cold]
    pub(super) fn break_off(&mut self, failure: Failure, outcome: &mut Outcome) {
        self.fail(failure, outcome);
        self.reset = PendingReset::Unread;
        outcome.established = false;
        outcome.deliver = false;
    }

    /// Creates the connection of a client whose packet has answered a listener's SYN|ACK, although
    /// the listener kept no state of the SYN (see [`cookie`](super::cookie)). `syn` stands for that
    /// SYN. After this call, pass in the packet.
    #[inline(never)]
    pub fn accept_forgotten(
        local_port: u16,
        syn: &Header,
        isn: Seq,
        config: Config,
        now: Nanos,
    ) -> Self {
        let mut connection = Self::accept(local_port, syn, isn, config, now);
        connection.sender.assume_syn_sent(now);
        // The peer's SYN had the version option and accepted skips. Otherwise it would not have
        // been answered with a cookie.
        connection.peer_has_version = true;
        connection.sender.may_skip();
        connection.receiver.widen_span(MOST_WINDOW);
        // The SYN|ACK did not offer requests that name packets.
        connection.advertised = Some(Advertised {
            selective: false,
            ..connection.advertised()
        });
        connection.stats.pkt_tx = 1;
        connection
    }

    /// Returns the state.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns why the connection ended; `None` while it lasts and after a clean end.
    #[inline]
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Returns the parameters in use.
    #[inline]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns what each SYN or SYN|ACK of this connection advertises.
    pub fn advertised(&self) -> Advertised {
        let told = self.advertised;
        told.unwrap_or_else(|| Advertised {
            selective: self.offers_selective(),
            ..Advertised::of(&self.config)
        })
    }

    /// Returns whether this side offers requests that name packets.
    fn offers_selective(&self) -> bool {
        match self.config.selective {
            Selective::Never => false,
            Selective::Always => true,
            Selective::WithMasks => self.has_checksums && self.nonce().is_some(),
        }
    }

    /// Notes that a SYN or SYN|ACK is sent. Later ones repeat what the first one advertises, since
    /// the peer takes only one of them, and neither side knows which.
    pub(super) fn advertise(&mut self) {
        let told = self.advertised();
        if self.advertised.is_none() {
            self.selective_needs_masks = self.config.selective == Selective::WithMasks;
        }
        self.advertised = Some(told);
        self.sender.advertise_grant(told.largest_grant);
        self.negotiate_selective();
    }

    /// Changes the parameters. Limits `burst_length` to the window that the handshake advertised.
    pub fn set_config(&mut self, config: Config) {
        let told = self.advertised.map(|told| told.window.burst_length);
        self.config = config.with_window_up_to(told.unwrap_or(LARGEST_WINDOW));
        if self.user_timeout != 0 {
            self.config.user_timeout = self.user_timeout;
        }
    }

    /// Replaces the configured [`user_timeout`](Config::user_timeout) by `millis`. Later calls of
    /// [`set_config`](Self::set_config) do not change this. If `millis` is 0, the value in `config`
    /// applies again.
    pub fn set_user_timeout(&mut self, millis: u32, config: Config) {
        self.user_timeout = millis;
        self.set_config(config);
    }

    /// Returns the smoothed round trip time (0 before the first measurement) and the retransmission
    /// timeout.
    pub fn times(&self) -> (Nanos, Nanos) {
        let timeout = self.rtt.timeout(self.config.least_timeout(), 0);
        (self.rtt.smoothed(), timeout)
    }

    /// Returns whether the write queue may grow, that is, the stream has not ended, and a number is
    /// free. Some 32,000 packets can be queued.
    #[inline]
    pub fn can_enqueue(&self) -> bool {
        matches!(
            self.state,
            State::SynSent | State::SynReceived | State::Established | State::CloseWait
        ) && self.sender.can_enqueue()
    }

    /// Returns the number that the next queued packet takes.
    #[inline]
    pub fn next_number(&self) -> Seq {
        self.sender.tail()
    }

    /// Returns whether the connection is open in both directions and has carried no data: nothing
    /// was queued, and nothing has arrived in order. The numbers count 2^32 packets; a connection
    /// that has carried exactly that many in a direction counts as unused in it.
    pub fn is_unused(&self) -> bool {
        self.state == State::Established && self.sender.is_unused() && self.receiver.is_unused()
    }

    /// Returns the number of packets by which the write queue may grow.
    #[inline]
    pub fn free_numbers(&self) -> u16 {
        if self.can_enqueue() {
            self.sender.free_numbers()
        } else {
            0
        }
    }

    /// Notes that `packets` data packets, at most [`free_numbers`](Self::free_numbers), were
    /// appended to the write queue. They take the next numbers.
    #[inline]
    pub fn enqueue(&mut self, packets: u16) {
        self.sender.enqueue(packets.min(self.free_numbers()));
    }

    /// Returns whether the packets from the number `seq` on were never sent. If so, the caller may
    /// split these packets again at once: see [`recut`](Self::recut).
    pub fn is_unsent(&self, seq: Seq) -> bool {
        self.sender.is_unsent(seq)
    }

    /// Pauses the sender, because packets that were sent are too large to retransmit. The sender
    /// sends nothing from the queue until it knows which of these packets the peer has. Then
    /// [`Outcome::cut`] asks the caller to split the rest of the queue again, or the connection
    /// ends with [`Failure::TooLarge`]. If nothing is outstanding, the queue is split again a while
    /// later.
    pub fn pause(&mut self, now: Nanos) {
        if self.sender.is_open() {
            self.sender.pause(&self.config, &self.rtt, now);
        }
    }

    /// Returns whether everything unacknowledged can be retransmitted in smaller packets. Otherwise
    /// a [`pause`](Self::pause) may end the connection.
    pub fn may_shrink(&self) -> bool {
        self.sender.may_shrink()
    }

    /// Returns whether the sender is in a [`pause`](Self::pause).
    pub fn is_paused(&self) -> bool {
        self.sender.is_paused()
    }

    /// Returns the number that the packet `from` will have after the queue is [split
    /// again](Self::recut) from there on. Numbers that were sent are not reused.
    pub fn number_behind(&self, from: Seq) -> Seq {
        self.sender.number_behind(from)
    }

    /// Notes that the caller split the write queue again from the number `from` on, into `packets`
    /// packets. The first of these has the number [`number_behind`](Self::number_behind). After
    /// [`Outcome::cut`], pass [`first_unacked`](Self::first_unacked) as `from`; otherwise pass a
    /// number that [`is_unsent`](Self::is_unsent). `kept` returns the flags with which the packet
    /// `from` was sent.
    pub fn recut(&mut self, from: Seq, packets: u16, kept: impl FnOnce(Seq) -> u8) {
        self.sender.recut(from, packets, kept);
    }

    /// Withholds the last queued packet while `hold` is set. A send call that still copies, or one
    /// with `MSG_MORE`, will queue more packets behind this packet. So this packet does not end the
    /// transmission, and need not carry TXF. Release the packet before the send call sleeps, and do
    /// not withhold it for long, because the peer waits for the data.
    #[inline]
    pub fn hold_last(&mut self, hold: bool) {
        self.sender.hold_last(hold);
    }

    /// Returns whether the last queued packet was never sent.
    #[inline]
    pub fn last_is_unsent(&self) -> bool {
        self.sender.last_is_unsent()
    }

    /// Ends a record with the last queued packet, so that the next bytes begin a new packet.
    #[inline]
    pub fn seal_last(&mut self) {
        self.sender.seal_last();
    }

    /// Returns whether everything to be sent waits for the window to open. While the caller only
    /// appends bytes, it need not call [`poll_transmit`](Self::poll_transmit), which would return
    /// nothing and change nothing.
    #[inline]
    pub fn awaits_window(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait)
            && self.sender.awaits_window(&self.config)
            && self.receiver.has_nothing_to_send()
            && !self.liveness.has_probe()
    }

    /// Returns whether a new transmission of several packets should start with a packet of
    /// [`SHORT`](super::ack_queue::SHORT) bytes, which the caller [seals](Self::seal_last). This is
    /// so if many senders announce transmissions to the same receiver.
    #[inline]
    pub fn announces_short(&self) -> bool {
        self.sender.announces_short(&self.config)
    }

    /// Returns whether bytes may be appended to the last queued packet (S5), that is, the packet
    /// was never sent, and no record ends with it.
    #[inline]
    pub fn last_takes_more(&self) -> bool {
        self.sender.last_takes_more()
    }

    /// Returns the number of queued data packets that were never sent.
    #[inline]
    pub fn unsent(&self) -> u16 {
        self.sender.unsent()
    }

    /// Returns the number of the packet that [`poll_transmit`](Self::poll_transmit) would return
    /// next. The window may not permit this packet yet.
    #[inline]
    pub fn cursor(&self) -> Seq {
        self.sender.cursor()
    }

    /// Returns the number of the first unacknowledged packet, the head of the write queue.
    #[inline]
    pub fn first_unacked(&self) -> Seq {
        self.sender.una()
    }

    /// Returns the number of unacknowledged data packets in the write queue, whether they were sent
    /// or not.
    #[inline]
    pub fn unacked(&self) -> u16 {
        self.sender.queued()
    }

    /// Ends the sending direction: a FIN follows all queued data. This has no effect if the
    /// direction has already ended. A connection whose SYN is unanswered closes at once.
    pub fn close_send(&mut self) {
        self.state = match self.state {
            State::SynReceived | State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            State::SynSent => State::Closed,
            _ => return,
        };
        self.sender.finish();
    }

    /// Shuts down the receiving direction. Once the sending direction has ended too, data is
    /// answered with a RST.
    pub fn receive_shutdown(&mut self) {
        if self.reader == Reader::Open {
            self.reader = Reader::Shutdown;
        }
    }

    /// Makes the connection an orphan, because its socket is closed and no process will read. Ends
    /// the sending direction, like [`close_send`](Self::close_send). From now on, arriving data
    /// fails the connection with [`Failure::Reset`]; the next packet to send is then a RST.
    pub fn orphan(&mut self, now: Nanos) {
        self.close_send();
        self.limit_orphan(now, now.saturating_add(ORPHAN_HELD));
    }

    /// Limits an orphan's life, so that it never lasts beyond `held`, whatever the peer
    /// acknowledges.
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
    /// the caller counts this packet.
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

    /// Closes the connection cleanly. An acknowledgement that is due is still sent.
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

    /// Returns whether an acknowledgement or a request is withheld until the reader makes room. If
    /// not, [`on_read`](Self::on_read) has no effect.
    #[inline]
    pub fn waits_for_room(&self) -> bool {
        self.receiver.waits_for_room()
    }

    /// Returns how large the receive buffer must be, in bytes, for the window that the path needs.
    /// Returns `None` if the buffer is large enough already.
    #[inline]
    pub fn wanted_room(&self) -> Option<u32> {
        self.receiver.wanted_room()
    }

    /// Returns the maximum number of packets that the peer may have sent after the last advertised
    /// number.
    #[inline]
    pub fn granted(&self) -> u16 {
        self.receiver.granted(&self.config)
    }

    /// Returns the sender's window, in packets.
    #[inline]
    pub fn window(&self) -> u16 {
        self.sender.window(&self.config)
    }

    /// Returns whether an acknowledgement waits until data can carry it or the reader sleeps. If
    /// not, [`flush_ack`](Self::flush_ack) has no effect.
    #[inline]
    pub fn waits_for_sleep(&self) -> bool {
        self.receiver.waits_for_sleep()
    }

    /// Handles a read. `room` describes the receive queue after the read. A withheld
    /// acknowledgement may become due.
    #[inline]
    pub fn on_read(&mut self, room: Room, now: Nanos) {
        self.receiver.on_read(room, &self.config, now);
    }

    /// Makes a delayed acknowledgement due, because the reader is about to sleep. In a dialogue,
    /// the acknowledgement still waits for data.
    #[inline]
    pub fn flush_ack(&mut self) {
        self.receiver.flush();
    }

    /// Returns the payload of the [request](super::Transmit::Request) from the last call of
    /// [`poll_transmit`](Self::poll_transmit). The payload names the requested packets.
    pub fn named(&self) -> [u8; super::wire::MISSING_MOST] {
        self.receiver.named().0
    }

    /// Returns whether the peer owes an answer.
    #[inline]
    fn is_active(&self) -> bool {
        self.sender.awaits_peer() || self.receiver.is_receiving()
    }

    /// Returns the time at which a timer expires. During the handshake, only
    /// [`Timer::Retransmission`] runs.
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

    /// Returns the time at which to call [`on_deadline`](Self::on_deadline) next; `None` for never.
    /// Ask again after any other call. The caller may keep an earlier timer running: early expiry
    /// is a no-op.
    #[inline]
    pub fn deadline(&self) -> Option<Nanos> {
        if self.state == State::Closed {
            return None;
        }
        let first = self.expiry(Timer::Retransmission);
        if !self.sender.is_open() {
            return first;
        }
        // A loop over [`Timer::ALL`] would take twice as many instructions as this code.
        let halves = earlier(
            first,
            earlier(self.expiry(Timer::Request), self.expiry(Timer::DelayedAck)),
        );
        earlier(
            earlier(halves, self.expiry(Timer::Liveness)),
            self.expiry(Timer::Orphan),
        )
    }

    /// Returns a lower bound for the expiry of each timer that was started since the last call of
    /// [`deadline`](Self::deadline). Returns `now` if computing this bound would cost more than
    /// `deadline`. If the caller's own timer expires no later than the returned time, the caller
    /// need not call `deadline`.
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

    /// Runs the timers that are due. `last_device_rx` is the time at which a packet of any
    /// connection last arrived at the device. Packets for this connection may be queued behind
    /// packets of others in the switch port. So the time to wait before a probe is counted from
    /// `last_device_rx`, within limits.
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
