// SPDX-License-Identifier: GPL-2.0-only

//! Simulates two hosts on a wire, with virtual time that the test steps.
//!
//! Every packet on the wire of a [`Pair`] passes the fault rules, and is logged. It arrives as
//! bytes, padded like an Ethernet frame.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::{Deref, DerefMut};

use esp::{flags, Config, DropReason, Header, Nanos, Outcome, Seq, Verdict, HEADER_LEN};

use crate::host::{Device, Host};
use crate::socket::{Packet, Socket};

/// A microsecond.
pub const US: Nanos = 1_000;
/// A millisecond.
pub const MS: Nanos = 1_000_000;
/// A second.
pub const S: Nanos = 1_000_000_000;

/// The side that usually opens the connection.
pub const A: usize = 0;
/// The side that usually listens.
pub const B: usize = 1;

/// The ports of both sides.
pub const PORTS: [u16; 2] = [40_000, 2_805];

/// The payload of packets on the wire.
pub type Bytes = VecDeque<u8>;

/// The fate of a packet on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet arrives.
    Pass,
    /// The packet is lost.
    Lose,
    /// The packet arrives twice.
    Twice,
    /// The packet arrives this many nanoseconds later. Packets that are sent in the meantime
    /// overtake it.
    Late(Nanos),
}

/// An entry of the log: a packet that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The side that sent the packet.
    pub from: usize,
    /// The time at which the packet was sent.
    pub at: Nanos,
    /// The packet's header.
    pub header: Header,
    /// The packet's fate on the wire.
    pub fate: Fate,
}

impl Sent {
    /// Returns whether the packet carries data.
    pub fn is_data(&self) -> bool {
        self.header.payload() > 0 && !self.header.has(flags::SYN)
    }

    /// Returns whether the packet carries nothing but an acknowledgement.
    pub fn is_pure_ack(&self) -> bool {
        self.header.len == 0 && self.header.flags == flags::ACK
    }
}

/// A host with one socket.
#[derive(Debug)]
pub struct Side {
    socket: Socket<Bytes>,
    /// The side's device, with its ACK queue. No other socket uses the queue, so the side's socket
    /// never waits for a turn, unless a test sets [`Device::held`].
    pub device: Device,
    /// Whether the side reads all data as soon as it arrives.
    pub reads: bool,
    /// The bytes that were read.
    pub received: Vec<u8>,
    /// The reasons for which arriving packets were dropped.
    pub drops: Vec<DropReason>,
    /// The bytes that the send calls have accepted so far.
    pub sent: Vec<u8>,
    /// The largest number of bytes ever in the receive queue.
    pub most_queued: u32,
    /// The time at which the timer expires. A later deadline does not postpone this time.
    armed: Nanos,
}

impl Side {
    fn new(isn: u16) -> Self {
        let mut socket = Socket::new(Config::default(), 100, 1 << 20);
        socket.isn = Seq(isn);
        socket.overhead = 100;
        Self {
            socket,
            device: Device::default(),
            reads: true,
            received: Vec::new(),
            drops: Vec::new(),
            sent: Vec::new(),
            most_queued: 0,
            armed: Nanos::MAX,
        }
    }
}

impl Deref for Side {
    type Target = Socket<Bytes>;

    fn deref(&self) -> &Self::Target {
        &self.socket
    }
}

impl DerefMut for Side {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.socket
    }
}

/// A frame in flight. Frames are ordered by arrival.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Frame {
    arrives: Nanos,
    serial: u64,
    to: usize,
    bytes: Vec<u8>,
}

/// A rule that decides the fate of a packet. Its arguments are the packet's sender, the number of
/// packets that the sender sent before, and the packet's header.
pub type Rule = Box<dyn FnMut(usize, usize, &Header) -> Fate>;

/// Two hosts on a wire.
pub struct Pair {
    /// The current virtual time.
    pub now: Nanos,
    /// The hosts.
    pub sides: [Side; 2],
    /// All packets that were sent since the log was last emptied.
    pub log: Vec<Sent>,
    /// The time that a packet takes to arrive if the wire is idle.
    pub latency: Nanos,
    /// The time for which a packet occupies its direction of the wire.
    pub spacing: Nanos,
    rules: Vec<Rule>,
    sent: [usize; 2],
    free_at: [Nanos; 2],
    flying: BinaryHeap<Reverse<Frame>>,
    serial: u64,
}

impl Default for Pair {
    fn default() -> Self {
        Self::new()
    }
}

impl Pair {
    /// Makes a pair whose sequence numbers soon wrap. B listens.
    pub fn new() -> Self {
        let mut sides = [Side::new(65_530), Side::new(65_500)];
        sides[B].listens = true;
        Self {
            now: 5 * S,
            sides,
            log: Vec::new(),
            latency: 20 * US,
            spacing: US,
            rules: Vec::new(),
            sent: [0; 2],
            free_at: [0; 2],
            flying: BinaryHeap::new(),
            serial: 0,
        }
    }

    /// Makes a pair with the parameters `config`.
    pub fn with_config(config: Config) -> Self {
        let mut pair = Self::new();
        for side in &mut pair.sides {
            side.config = config;
        }
        pair
    }

    /// Makes a pair with an open connection, an empty log and packet counters at zero.
    pub fn established() -> Self {
        Self::new().establish()
    }

    /// Opens the connection, then empties the log and resets the packet counters.
    pub fn establish(mut self) -> Self {
        self.connect();
        self.run_until(|p| p.sides[A].established && p.sides[B].established);
        self.settle();
        self.restart_log();
        self
    }

    /// Empties the log and resets the packet counters.
    pub fn restart_log(&mut self) {
        self.log.clear();
        self.sent = [0; 2];
    }

    /// Sets the fate of the `nth` packet (counted from 0) that `side` sends from here on.
    pub fn fate(&mut self, side: usize, nth: usize, fate: Fate) {
        let at = self.sent[side] + nth;
        self.rule(move |from, n, _| {
            if from == side && n == at {
                fate
            } else {
                Fate::Pass
            }
        });
    }

    /// Makes the wire lose the `nth` packet (counted from 0) that `side` sends from here on.
    pub fn lose(&mut self, side: usize, nth: usize) {
        self.fate(side, nth, Fate::Lose);
    }

    /// Makes the wire lose the first `count` packets of `side` that `matches` accepts.
    pub fn lose_matching(
        &mut self,
        side: usize,
        mut count: usize,
        matches: impl Fn(&Header) -> bool + 'static,
    ) {
        self.rule(move |from, _, header| {
            if from == side && count > 0 && matches(header) {
                count -= 1;
                Fate::Lose
            } else {
                Fate::Pass
            }
        });
    }

    /// Adds a rule that decides the fate of the packets sent from here on.
    pub fn rule(&mut self, rule: impl FnMut(usize, usize, &Header) -> Fate + 'static) {
        self.rules.push(Box::new(rule));
    }

    /// Makes the wire lose all packets that `side` sends from now on.
    pub fn cut(&mut self, side: usize) {
        self.rule(
            move |from, _, _| {
                if from == side {
                    Fate::Lose
                } else {
                    Fate::Pass
                }
            },
        );
    }

    /// Returns this pair without any rules, so that all packets arrive from here on.
    pub fn mended(mut self) -> Self {
        self.rules.clear();
        self
    }

    /// Opens the connection from A.
    pub fn connect(&mut self) {
        self.connect_from(A);
    }

    /// Opens the connection from the side `from`.
    pub fn connect_from(&mut self, from: usize) {
        let now = self.now;
        Host::connect(self, from, [PORTS[from], PORTS[1 - from]], now);
    }

    /// Does one send call: queues as much of the message as there are sequence numbers for, and
    /// returns how many bytes it queued.
    pub fn send(&mut self, from: usize, message: &[u8]) -> usize {
        let now = self.now;
        let sent = Host::send(self, from, message.to_vec().into(), now);
        self.sides[from].sent.extend_from_slice(&message[..sent]);
        sent
    }

    /// Limits the packets of `at` to `mss` bytes from now on.
    pub fn shrink(&mut self, at: usize, mss: usize) {
        let now = self.now;
        Host::shrink(self, at, mss, now);
    }

    /// Reads everything in the receive queue of side `at`.
    pub fn read(&mut self, at: usize) {
        self.read_packets(at, usize::MAX);
    }

    /// Reads up to `most` packets from the receive queue of side `at`.
    pub fn read_packets(&mut self, at: usize, most: usize) {
        let now = self.now;
        let read = Host::read(self, at, most, false, now);
        self.sides[at].received.extend(read.into_iter().flatten());
    }

    /// Makes the engine of `at` send a delayed acknowledgement, as if the reader went to sleep.
    pub fn sleep(&mut self, at: usize) {
        self.sides[at].conn().flush_ack();
        self.transmit(at);
    }

    /// Ends the stream that side `at` sends.
    pub fn close(&mut self, at: usize) {
        self.sides[at].conn().close_send();
        self.transmit(at);
    }

    /// Aborts the connection at `at`.
    pub fn abort(&mut self, at: usize) {
        if let Some(header) = self.sides[at].conn().abort() {
            self.put(at, header, &[]);
        }
    }

    /// Puts a packet on the wire as if `from` had sent it.
    pub fn put(&mut self, from: usize, header: Header, payload: &[u8]) {
        assert_eq!(usize::from(header.payload()), payload.len());
        let n = self.sent[from];
        self.sent[from] += 1;
        let fate = self
            .rules
            .iter_mut()
            .map(|rule| rule(from, n, &header))
            .fold(Fate::Pass, |a, b| if a == Fate::Pass { b } else { a });
        self.log.push(Sent {
            from,
            at: self.now,
            header,
            fate,
        });
        let leaves = self.free_at[from].max(self.now) + self.spacing;
        self.free_at[from] = leaves;
        let copies = match fate {
            Fate::Lose => 0,
            Fate::Pass | Fate::Late(_) => 1,
            Fate::Twice => 2,
        };
        let late = if let Fate::Late(by) = fate { by } else { 0 };
        let mut bytes = header.emit().to_vec();
        bytes.extend_from_slice(payload);
        // Pad the packet to Ethernet's minimum payload.
        bytes.resize(bytes.len().max(46), 0);
        for _ in 0..copies {
            self.serial += 1;
            self.flying.push(Reverse(Frame {
                arrives: leaves + self.latency + late,
                serial: self.serial,
                to: 1 - from,
                bytes: bytes.clone(),
            }));
        }
    }

    /// Sends all packets that the engine of side `from` has ready.
    pub fn transmit(&mut self, from: usize) {
        let now = self.now;
        Host::transmit(self, from, now);
    }

    fn arrive(&mut self, frame: Frame) {
        let header = Header::parse(&frame.bytes).expect("a whole header");
        let following = &frame.bytes[HEADER_LEN..];
        let len = header.payload_len(following.len()).expect("a whole packet");
        let _ = self.receive(frame.to, &header, &following[..len]);
    }

    /// Delivers a packet to `at` now, without the wire.
    pub fn receive(&mut self, at: usize, header: &Header, payload: &[u8]) -> Outcome {
        let packet = Packet::parse(header, payload);
        let now = self.now;
        let outcome = Host::receive(self, at, &packet, now);
        let side = &mut self.sides[at];
        side.drops.extend(outcome.drop);
        side.most_queued = side.most_queued.max(side.socket.room().queued);
        if side.reads && outcome.deliver {
            self.read(at);
        }
        outcome
    }

    fn next_deadline(&self) -> Option<(Nanos, usize)> {
        (0..2)
            .filter_map(|i| Some((self.sides[i].deadline()?, i)))
            .min()
    }

    /// Returns the time of the next event: an arrival or a deadline.
    pub fn next_event(&self) -> Option<Nanos> {
        let arrival = self.flying.peek().map(|f| f.0.arrives);
        let deadline = self.next_deadline().map(|d| d.0);
        arrival.into_iter().chain(deadline).min()
    }

    /// Executes the next event. Returns `false` if there is none.
    pub fn step(&mut self) -> bool {
        let arrival = self.flying.peek().map(|f| f.0.arrives);
        let deadline = self.next_deadline();
        match (arrival, deadline) {
            (None, None) => return false,
            (Some(at), d) if d.is_none_or(|d| at <= d.0) => {
                self.now = self.now.max(at);
                let frame = self.flying.pop().expect("a frame").0;
                self.arrive(frame);
            }
            (_, Some((at, side))) => {
                self.now = self.now.max(at);
                let now = self.now;
                self.sides[side].armed = Nanos::MAX;
                let _ = self.expire(side, now);
                let again = self.sides[side].deadline();
                assert!(
                    again.is_none_or(|again| again > now),
                    "a timer that was run is not due again at once"
                );
            }
            _ => unreachable!("an arrival was matched above"),
        }
        true
    }

    /// Steps until `done` returns true. Panics if that takes more than ten minutes of virtual time.
    pub fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        let limit = self.now + 600 * S;
        while !done(self) {
            assert!(self.now < limit, "not done in bounded time: {self:?}");
            assert!(self.step(), "nothing left to happen: {self:?}");
        }
    }

    /// Lets `time` pass.
    pub fn run_for(&mut self, time: Nanos) {
        let until = self.now + time;
        while self.next_event().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = until;
    }

    /// Steps until the wire is empty and no timer runs except the liveness timer of an idle
    /// connection.
    pub fn settle(&mut self) {
        let limit = self.now + 600 * S;
        while self
            .next_event()
            .is_some_and(|at| !self.flying.is_empty() || at < self.now + 25 * S)
        {
            assert!(self.now < limit, "does not settle: {self:?}");
            self.step();
        }
    }

    /// Returns the headers of the data packets in the log that side `from` sent.
    pub fn data_sent(&self, from: usize) -> Vec<Header> {
        self.sent_by(from, Sent::is_data)
    }

    /// Returns the headers of the packets in the log that side `from` sent and `which` accepts.
    pub fn sent_by(&self, from: usize, which: impl Fn(&Sent) -> bool) -> Vec<Header> {
        self.log
            .iter()
            .filter(|s| s.from == from && which(s))
            .map(|s| s.header)
            .collect()
    }

    /// Asserts that all bytes sent in either direction have arrived intact.
    #[track_caller]
    pub fn assert_intact(&self) {
        for (from, to) in [(A, B), (B, A)] {
            assert!(
                self.sides[from].sent == self.sides[to].received,
                "{} bytes sent, {} received, or others",
                self.sides[from].sent.len(),
                self.sides[to].received.len()
            );
        }
    }
}

impl Host for Pair {
    type Payload = Bytes;

    fn at(&mut self, id: usize) -> (&mut Device, &mut Socket<Bytes>) {
        let side = &mut self.sides[id];
        (&mut side.device, &mut side.socket)
    }

    /// Arms the timer. Also checks the time that `earliest_new_deadline` returns: if the timer is
    /// already armed for that time or an earlier one, the engine must have no deadline before the
    /// timer's expiry.
    fn arm(&mut self, id: usize) {
        let now = self.now;
        let side = &mut self.sides[id];
        let Some(conn) = &side.socket.conn else {
            return;
        };
        let deadline = conn.deadline().unwrap_or(Nanos::MAX);
        if side.armed <= conn.earliest_new_deadline(now) {
            // If the deadline has already passed, the timer runs now.
            let runs = deadline.max(now);
            assert!(side.armed <= runs, "a timer began to run unnoticed");
        }
        side.armed = side.armed.min(deadline);
    }

    fn scheduled(&mut self, _id: usize, verdict: Verdict) {
        assert!(
            matches!(verdict, Verdict::Unchanged | Verdict::Turn),
            "a host's only connection does not wait: {verdict:?}"
        );
    }

    fn emit(&mut self, id: usize, packet: Packet<Bytes>) {
        let header = packet.header;
        let payload = self.sides[id].bytes_of(packet);
        let len = if header.is_grant() || header.is_skip() || header.names_missing() {
            header.len
        } else {
            payload.len() as u16
        };
        self.put(id, Header { len, ..header }, &payload);
    }
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "at {}", self.now)?;
        for side in &self.sides {
            writeln!(f, "{:#?}", side.socket.conn)?;
        }
        let skip = self.log.len().saturating_sub(40);
        for sent in &self.log[skip..] {
            writeln!(f, "{sent:?}")?;
        }
        Ok(())
    }
}

/// Returns random bytes, so that no pattern hides a misplaced packet.
pub fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| rng.u8(..)).collect()
}
