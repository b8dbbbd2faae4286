// SPDX-License-Identifier: GPL-2.0

//! Two endpoints on a simulated wire that is stepped, with virtual time.
//!
//! A [`Side`] is what the kernel module is to the engine: it owns the queues,
//! splits messages into packets and sends what the engine gives out. [`Pair`]
//! owns the wire: every packet that is sent passes the fault rules, is logged,
//! and arrives as bytes, padded as Ethernet pads.

// Each test binary uses its own part of this.
#![allow(dead_code)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use esp::{
    flags, reset_for, AckQueue, Config, Connection, Demand, DropReason, Failure, Header, Nanos,
    Outcome, Room, Seq, Slot, State, Transmit, Verdict, HEADER_LEN,
};

pub const US: Nanos = 1_000;
pub const MS: Nanos = 1_000_000;
pub const S: Nanos = 1_000_000_000;

/// The active and the passive side.
pub const A: usize = 0;
pub const B: usize = 1;

pub const PORTS: [u16; 2] = [40_000, 2_805];

/// What becomes of a packet on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Pass,
    Lose,
    Twice,
    /// Arrives this much later; what is sent meanwhile overtakes it.
    Late(Nanos),
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub from: usize,
    pub at: Nanos,
    pub header: Header,
    pub fate: Fate,
}

impl Sent {
    pub fn is_data(&self) -> bool {
        self.header.len > 0
    }

    /// A packet that says nothing but its acknowledgement.
    pub fn is_pure_ack(&self) -> bool {
        self.header.len == 0 && self.header.flags == flags::ACK
    }
}

#[derive(Debug)]
struct Queued {
    payload: Vec<u8>,
    flags: u8,
}

#[derive(Debug)]
pub struct Side {
    pub conn: Option<Connection>,
    pub config: Config,
    /// Accepts a connection when it has none.
    pub listens: bool,
    pub isn: Seq,
    pub mss: usize,
    /// The receive buffer in bytes; a packet costs `mss + 100` in it.
    pub limit: u32,
    /// What a packet that comes costs, if not as much as a full one.
    pub arriving: Option<u32>,
    /// Reads whatever arrives at once.
    pub reads: bool,
    write: VecDeque<Queued>,
    receive: VecDeque<Vec<u8>>,
    pub received: Vec<u8>,
    pub eof: bool,
    pub established: bool,
    pub failed: Option<Failure>,
    pub closed: bool,
    pub drops: Vec<DropReason>,
    /// Bytes that the send calls took.
    pub sent: Vec<u8>,
    pub most_queued: u32,
    ack_queue: AckQueue,
    slot: Slot,
    /// Others have the turn.
    pub kept_waiting: bool,
    /// When a packet of another connection last arrived at the device.
    pub heard: Nanos,
    /// When its timer runs out: that is pushed forward only.
    armed: Nanos,
}

impl Side {
    fn new(isn: u16) -> Self {
        Self {
            conn: None,
            config: Config::default(),
            listens: false,
            isn: Seq(isn),
            mss: 100,
            limit: 1 << 20,
            arriving: None,
            reads: true,
            write: VecDeque::new(),
            receive: VecDeque::new(),
            received: Vec::new(),
            eof: false,
            established: false,
            failed: None,
            closed: false,
            drops: Vec::new(),
            sent: Vec::new(),
            most_queued: 0,
            ack_queue: AckQueue::default(),
            slot: Slot::default(),
            kept_waiting: false,
            heard: 0,
            armed: Nanos::MAX,
        }
    }

    pub fn packet_cost(&self) -> u32 {
        self.mss as u32 + 100
    }

    pub fn room(&self) -> Room {
        Room {
            queued: self.receive.len() as u32 * self.packet_cost(),
            limit: self.limit,
            arriving: self.arriving.unwrap_or(self.packet_cost()),
            packet: self.packet_cost(),
        }
    }

    pub fn state(&self) -> State {
        self.conn.as_ref().map_or(State::Closed, Connection::state)
    }

    pub fn conn(&mut self) -> &mut Connection {
        self.conn.as_mut().expect("a connection")
    }

    /// Each side is a host of its own, where nobody competes for the turn, unless
    /// a test takes it away.
    fn schedule(&mut self, now: Nanos) {
        let Some(conn) = &mut self.conn else { return };
        if self.kept_waiting && conn.demand() == Demand::Turn {
            conn.wait_turn();
        }
        let verdict = self.ack_queue.schedule(&mut self.slot, conn, now);
        assert!(matches!(verdict, Verdict::Unchanged | Verdict::Turn));
    }

    /// Arms the timer, and checks what a caller spares that asks for the deadline only when it must.
    fn arm(&mut self, now: Nanos) {
        let Some(conn) = &self.conn else { return };
        let deadline = conn.deadline().unwrap_or(Nanos::MAX);
        if self.armed <= conn.earliest_news(now) {
            assert!(self.armed <= deadline, "a timer began to run unnoticed");
        }
        self.armed = self.armed.min(deadline);
    }

    fn note(&mut self, outcome: &Outcome) {
        for _ in 0..outcome.acked {
            self.write
                .pop_front()
                .expect("only queued data is acknowledged");
        }
        self.established |= outcome.established;
        self.failed = self.failed.or(outcome.failed);
        self.closed |= outcome.closed;
        self.drops.extend(outcome.drop);
        if outcome.fin {
            assert!(!self.eof, "one end of stream");
            self.eof = true;
        }
    }
}

/// A frame on its way; ordered by arrival.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Frame {
    arrives: Nanos,
    serial: u64,
    to: usize,
    bytes: Vec<u8>,
}

/// Decides the fate of a packet, given the sender, how many packets that side
/// sent before, and the header.
pub type Rule = Box<dyn FnMut(usize, usize, &Header) -> Fate>;

pub struct Pair {
    pub now: Nanos,
    pub sides: [Side; 2],
    pub log: Vec<Sent>,
    /// One way, without queueing.
    pub latency: Nanos,
    /// Wire time per packet and direction.
    pub spacing: Nanos,
    rules: Vec<Rule>,
    sent: [usize; 2],
    free_at: [Nanos; 2],
    flying: BinaryHeap<Reverse<Frame>>,
    serial: u64,
}

impl Pair {
    /// Two sides with numbers soon to wrap, B listening.
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

    pub fn with_config(config: Config) -> Self {
        let mut pair = Self::new();
        for side in &mut pair.sides {
            side.config = config;
        }
        pair
    }

    /// A pair with an open connection, an empty log and packets counted anew.
    pub fn established() -> Self {
        Self::new().establish()
    }

    pub fn establish(mut self) -> Self {
        self.connect();
        self.run_until(|p| p.sides[A].established && p.sides[B].established);
        self.settle();
        self.restart_log();
        self
    }

    pub fn restart_log(&mut self) {
        self.log.clear();
        self.sent = [0; 2];
    }

    /// The `nth` packet (from 0) that `side` sends from here on meets `fate`.
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

    pub fn lose(&mut self, side: usize, nth: usize) {
        self.fate(side, nth, Fate::Lose);
    }

    /// The first `count` packets of `side` that `matches` are lost.
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

    pub fn rule(&mut self, rule: impl FnMut(usize, usize, &Header) -> Fate + 'static) {
        self.rules.push(Box::new(rule));
    }

    /// From now on nothing that `side` sends arrives.
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

    /// The same with a clean wire from here on.
    pub fn mended(mut self) -> Self {
        self.rules.clear();
        self
    }

    pub fn connect(&mut self) {
        self.connect_from(A);
    }

    pub fn connect_from(&mut self, from: usize) {
        let side = &mut self.sides[from];
        let mut conn = Connection::new(PORTS[from], PORTS[1 - from], side.config);
        conn.connect(side.isn, self.now);
        side.conn = Some(conn);
        self.transmit(from);
    }

    /// One send call: a message that is queued as far as the numbers suffice.
    /// Returns how many bytes that were.
    pub fn send(&mut self, from: usize, message: &[u8]) -> usize {
        let mss = self.sides[from].mss;
        let mut rest = message;
        self.sides[from].conn().hold_last(true);
        while !rest.is_empty() {
            let side = &mut self.sides[from];
            let conn = side.conn.as_mut().expect("a connection");
            if conn.last_takes_more() {
                let last = side.write.back_mut().expect("an unsent packet");
                let n = rest.len().min(mss.saturating_sub(last.payload.len()));
                last.payload.extend_from_slice(&rest[..n]);
                side.sent.extend_from_slice(&rest[..n]);
                rest = &rest[n..];
                if rest.is_empty() {
                    break;
                }
            }
            if !conn.can_enqueue() {
                break;
            }
            let n = rest.len().min(mss);
            side.write.push_back(Queued {
                payload: rest[..n].to_vec(),
                flags: 0,
            });
            side.sent.extend_from_slice(&rest[..n]);
            rest = &rest[n..];
            conn.enqueue(1);
            assert_eq!(usize::from(conn.unacked()), side.write.len());
            self.transmit(from);
        }
        self.sides[from].conn().hold_last(false);
        self.transmit(from);
        message.len() - rest.len()
    }

    /// From now on `at` sends packets of at most `mss` bytes.
    pub fn shrink(&mut self, at: usize, mss: usize) {
        let now = self.now;
        let side = &mut self.sides[at];
        side.mss = mss;
        let Some(oversized) = side.write.iter().position(|q| q.payload.len() > mss) else {
            return;
        };
        let conn = side.conn.as_mut().expect("a connection");
        let from = conn.first_unacked().add(oversized as u16);
        if conn.is_unsent(from) {
            self.recut(at, oversized);
        } else {
            conn.pause(now);
        }
        self.transmit(at);
    }

    /// Cuts what is queued behind the first `keep` packets.
    fn recut(&mut self, at: usize, keep: usize) {
        let side = &mut self.sides[at];
        let conn = side.conn.as_mut().expect("a connection");
        let from = conn.first_unacked().add(keep as u16);
        let old: Vec<Queued> = side.write.drain(keep..).collect();
        let flags = old.first().map_or(0, |queued| queued.flags);
        for queued in &old {
            for piece in queued.payload.chunks(side.mss) {
                side.write.push_back(Queued {
                    payload: piece.to_vec(),
                    flags: 0,
                });
            }
        }
        conn.recut(from, (side.write.len() - keep) as u16, |_| flags);
    }

    /// Takes everything out of the receive queue.
    pub fn read(&mut self, at: usize) {
        self.read_packets(at, usize::MAX);
    }

    pub fn read_packets(&mut self, at: usize, most: usize) {
        let side = &mut self.sides[at];
        let n = side.receive.len().min(most);
        for payload in side.receive.drain(..n) {
            side.received.extend(payload);
        }
        let room = side.room();
        let now = self.now;
        if let Some(conn) = &mut side.conn {
            conn.on_read(room, now);
        }
        self.transmit(at);
    }

    /// The reader of `at` goes to sleep.
    pub fn sleep(&mut self, at: usize) {
        self.sides[at].conn().flush_ack();
        self.transmit(at);
    }

    pub fn close(&mut self, at: usize) {
        self.sides[at].conn().close_send();
        self.transmit(at);
    }

    pub fn abort(&mut self, at: usize) {
        if let Some(header) = self.sides[at].conn().abort() {
            self.put(at, header, &[]);
        }
    }

    /// Puts a packet on the wire as if `from` had sent it.
    pub fn put(&mut self, from: usize, header: Header, payload: &[u8]) {
        assert_eq!(usize::from(header.len), payload.len());
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
        // Ethernet's least payload.
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

    /// Sends all that the engine gives out.
    pub fn transmit(&mut self, from: usize) {
        self.send_all(from);
        self.sides[from].arm(self.now);
    }

    fn send_all(&mut self, from: usize) {
        self.sides[from].schedule(self.now);
        loop {
            let side = &mut self.sides[from];
            let Some(conn) = &mut side.conn else { return };
            let first = conn.first_unacked();
            let write = &side.write;
            let mut kept = |seq: Seq| write[usize::from(first.distance(seq))].flags;
            match conn.poll_transmit(self.now, &mut kept) {
                None => return,
                Some(Transmit::Control { header, .. } | Transmit::Probe(header)) => {
                    self.put(from, header, &[]);
                }
                Some(Transmit::Data { mut header, .. }) => {
                    let queued = &mut side.write[usize::from(first.distance(header.seq))];
                    queued.flags = header.flags & (flags::TXS | flags::TXF);
                    header.len = queued.payload.len() as u16;
                    let payload = queued.payload.clone();
                    self.put(from, header, &payload);
                }
            }
        }
    }

    fn arrive(&mut self, frame: Frame) {
        let header = Header::parse(&frame.bytes).expect("a whole header");
        let following = &frame.bytes[HEADER_LEN..];
        let len = header.payload_len(following.len()).expect("a whole packet");
        let _ = self.receive(frame.to, &header, &following[..len]);
    }

    /// `at` receives a packet now.
    pub fn receive(&mut self, at: usize, header: &Header, payload: &[u8]) -> Outcome {
        let now = self.now;
        let side = &mut self.sides[at];
        let over = side.state() == State::Closed;
        if over && side.listens && side.conn.is_none() && header.opens() {
            side.conn = Some(Connection::accept(
                header.dst,
                header,
                side.isn,
                side.config,
                now,
            ));
            self.transmit(at);
            return Outcome::default();
        }
        if over {
            if let Some(reset) = reset_for(header) {
                self.put(at, reset, &[]);
            }
            return Outcome::default();
        }
        let room = side.room();
        let outcome = side.conn().on_packet(header, room, now);
        assert!(!(outcome.deliver && outcome.drop.is_some()));
        assert!(!(outcome.deliver && payload.is_empty()));
        side.note(&outcome);
        if outcome.deliver {
            assert!(!side.eof, "no data behind the end");
            side.receive.push_back(payload.to_vec());
            side.most_queued = side.most_queued.max(side.room().queued);
        }
        if outcome.cut {
            self.recut(at, 0);
        }
        self.transmit(at);
        if self.sides[at].reads && outcome.deliver {
            self.read(at);
        }
        outcome
    }

    fn next_deadline(&self) -> Option<(Nanos, usize)> {
        (0..2)
            .filter_map(|i| Some((self.sides[i].conn.as_ref()?.deadline()?, i)))
            .min()
    }

    /// When something happens next.
    pub fn next_event(&self) -> Option<Nanos> {
        let arrival = self.flying.peek().map(|f| f.0.arrives);
        let deadline = self.next_deadline().map(|d| d.0);
        arrival.into_iter().chain(deadline).min()
    }

    /// Lets the next thing happen; `false` when there is none.
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
                let heard = self.sides[side].heard;
                self.sides[side].armed = Nanos::MAX;
                let outcome = self.sides[side].conn().on_deadline(heard, now);
                self.sides[side].note(&outcome);
                self.transmit(side);
                let again = self.sides[side].conn().deadline();
                assert!(
                    again.is_none_or(|again| again > now),
                    "a timer that was run is not due again at once"
                );
            }
            _ => unreachable!("an arrival was matched above"),
        }
        true
    }

    /// Steps until `done`; fails when that takes more than ten minutes.
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

    /// Steps until nothing is on the wire and no timer runs but the watch over
    /// an idle peer.
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

    pub fn data_sent(&self, from: usize) -> Vec<Header> {
        self.sent_by(from, Sent::is_data)
    }

    pub fn sent_by(&self, from: usize, which: impl Fn(&Sent) -> bool) -> Vec<Header> {
        self.log
            .iter()
            .filter(|s| s.from == from && which(s))
            .map(|s| s.header)
            .collect()
    }

    /// Asserts that all that was sent in either direction has arrived intact.
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

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "at {}", self.now)?;
        for side in &self.sides {
            writeln!(f, "{:#?}", side.conn)?;
        }
        let skip = self.log.len().saturating_sub(40);
        for sent in &self.log[skip..] {
            writeln!(f, "{sent:?}")?;
        }
        Ok(())
    }
}

/// Bytes without a pattern that a misplaced packet could hide in.
pub fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| rng.u8(..)).collect()
}
