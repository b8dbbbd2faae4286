// SPDX-License-Identifier: GPL-2.0-only

//! Fuzzes one engine with calls and packets in any order.
//!
//! The test tracks what a caller and a neighbour know of the engine: the next sequence number, the
//! number of queued packets, and the window.

use arbitrary::{Arbitrary, Result, Unstructured};
use esp::{
    flags, Config, Demand, DropReason, Header, Nanos, Options, Outcome, Room, Seq, State,
    MOST_NARROW,
};
use esp_testkit::{Packet as Sent, Socket, Span};

const MILLISECOND: Nanos = 1_000_000;
/// The sequence number of the engine's SYN. It is close to [`PEER_ISN`], the number of the peer's
/// SYN, and to the point at which sequence numbers wrap.
const ISN: Seq = Seq(0xfff0);
const PEER_ISN: Seq = Seq(0xfffa);
/// The nonce of both ends, if they have one.
const NONCE: u32 = 7;

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Event {
    Segment(Packet),
    Deadline,
    /// Time passes, in milliseconds.
    Wait(u16),
    Read(Buffer),
    Enqueue(u8),
    Hold(bool),
    Flush,
    /// The device receives packets of other connections.
    Busy,
    /// The caller gives the connection the turn that it requests (the permission to let the peer
    /// send), or makes it wait.
    Turn(bool),
    Close,
    ReceiveShutdown,
    Orphan,
    Abort,
    Configure(Parameters),
    /// The packets of the write queue, from this index on, have become too large, so the engine
    /// must cut them.
    Shrink(u8),
}

/// A packet, described by its difference from the correct packet.
#[derive(Clone, Copy, Debug, Arbitrary)]
pub(crate) struct Packet {
    kind: Kind,
    seq: Number,
    ack: Number,
    len: u8,
    room: Buffer,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Kind {
    Ack,
    Request,
    Hold,
    Data(bool, bool),
    Fin,
    SynAck,
    Reset,
    Any(u8),
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Number {
    /// The sequence or acknowledgement number that a correct packet has.
    Due,
    Near(i8),
    Any(u16),
}

impl Number {
    fn around(self, due: Seq) -> Seq {
        match self {
            Self::Due => due,
            Self::Near(by) => due.add(i16::from(by) as u16),
            Self::Any(number) => Seq(number),
        }
    }
}

impl Packet {
    /// Returns the header of the packet, from port `src` to port `dst`. The receiver of the packet
    /// expects the number `expected`, and has itself sent all numbers below `high`.
    pub(crate) fn header(self, [src, dst]: [u16; 2], expected: Seq, high: Seq) -> Header {
        let (bits, len) = match self.kind {
            Kind::Ack => (flags::ACK, 0),
            Kind::Request => (flags::ACK | flags::RRQ, 0),
            Kind::Hold => (flags::ACK | flags::TXS, 0),
            Kind::Data(starts, ends) => {
                let starts = if starts { flags::TXS } else { 0 };
                let ends = if ends { flags::TXF } else { 0 };
                (flags::ACK | starts | ends, u16::from(self.len).max(1))
            }
            Kind::Fin => (flags::ACK | flags::FIN, 0),
            Kind::SynAck => (flags::ACK | flags::SYN, 0),
            Kind::Reset => (flags::RST | flags::ACK, 0),
            Kind::Any(bits) => (bits, self.len.into()),
        };
        Header {
            src,
            dst,
            len,
            seq: self.seq.around(expected),
            ack: self.ack.around(high),
            flags: bits,
        }
    }

    /// Returns the options of a SYN: none if `len` is even. Otherwise `len` gives the largest
    /// payload, and `room` gives the window. A SYN needs no room in the receive queue, so `room`
    /// has no other use here.
    fn options(self) -> Options {
        let config = Config {
            burst_length: u16::from(self.room.queued) << 7,
            initial_ack_burst_length: self.room.limit.into(),
            ..Config::default()
        };
        match self.len % 4 {
            0 | 2 => Options::default(),
            odd => Options {
                nonce: (odd == 3).then_some(NONCE),
                ..Options::parse(&Options::emit(u32::from(self.len) * 100, &config))
            },
        }
    }
}

/// A receive queue, in which each packet costs 256 bytes.
#[derive(Clone, Copy, Debug, Arbitrary)]
struct Buffer {
    queued: u8,
    limit: u8,
}

impl Buffer {
    fn room(self) -> Room {
        Room {
            queued: u32::from(self.queued) * 256,
            limit: u32::from(self.limit) * 256,
            arriving: 256,
            packet: 256,
        }
    }
}

#[derive(Clone, Copy, Debug, Arbitrary)]
struct Parameters {
    burst: u16,
    initial: u16,
    to_ack: u16,
    round_trip: u16,
}

impl Parameters {
    fn config(self) -> Config {
        Config {
            burst_length: self.burst,
            initial_ack_burst_length: self.initial,
            packets_to_ack: self.to_ack,
            round_trip_time: self.round_trip.into(),
            ..Config::default()
        }
    }
}

struct World {
    /// The engine and its queues. All data packets carry one byte.
    socket: Socket<Span>,
    now: Nanos,
    /// The time at which the device last received a packet of another connection.
    last_device_rx: Nanos,
    /// The sequence number that the peer sends next, once its SYN has been received.
    expected: Option<Seq>,
    /// The sequence number that follows the highest one that the engine has sent.
    high: Seq,
    /// The highest acknowledgement that the engine has received. The engine's window begins at this
    /// number.
    granted: Seq,
    /// The largest window that the engine has received in a grant.
    largest_grant: u16,
    /// The options of the engine's first SYN or SYN|ACK.
    told: Option<Options>,
}

/// The payload of each packet, which is a single byte.
const BYTE: Span = Span { first: 0, len: 1 };

/// Maximum number of new packets that one cut makes.
const MOST_PIECES: usize = 0x3000;

impl World {
    fn new(passive: bool) -> Self {
        let now = 1_000 * MILLISECOND;
        let mut socket = Socket::new(Config::default(), 1, 0);
        socket.isn = ISN;
        socket.sends_options = true;
        socket.nonce = Some(NONCE);
        if passive {
            let syn = Header {
                src: 1,
                dst: 2,
                len: 0,
                seq: PEER_ISN,
                ack: Seq(0),
                flags: flags::SYN,
            };
            socket.accept(&Sent::control(syn), now);
        } else {
            socket.connect([2, 1], now);
        }
        Self {
            socket,
            now,
            last_device_rx: 0,
            expected: passive.then_some(PEER_ISN.add(1)),
            high: ISN,
            granted: ISN,
            largest_grant: 0,
            told: None,
        }
    }

    fn segment(&mut self, packet: Packet) {
        let header = packet.header([1, 2], self.expected.unwrap_or(PEER_ISN), self.high);
        let (before, ended) = (self.socket.state(), self.socket.eof);
        let paused = self.socket.conn().is_paused();
        let room = packet.room.room();
        let packet = Sent {
            header,
            payload: Span {
                first: 0,
                len: header.payload().into(),
            },
            options: packet.options(),
            resend: false,
            named: [0; esp::MISSING_MOST],
        };
        let outcome = self.socket.on_packet(&packet, room, self.now);
        let refused = matches!(
            outcome.drop,
            Some(DropReason::Malformed | DropReason::BadAck)
        );
        let answers = !header.has(flags::SYN) || before == State::SynSent;
        let acknowledges = header.has(flags::ACK) && !header.has(flags::RST) && answers;
        let hold = header.len == 0 && header.flags == flags::ACK | flags::TXS;
        // A skip asks the peer to count numbers as used that it has not received. Until the peer
        // has answered, an acknowledgement of all numbers may count only skipped ones. So such an
        // acknowledgement does not open the window.
        let doubted = paused && header.ack == self.high && !outcome.cut;
        let hold = hold || doubted || header.is_skipped();
        if acknowledges && !refused && !hold && self.granted.before(header.ack) {
            self.granted = header.ack;
        }
        if header.is_grant() {
            let told = self
                .told
                .is_some_and(|told| told.largest_grant > MOST_NARROW);
            let grant = header.grant(told && self.socket.conn().has_masks());
            let window = grant.expect("it is one").window;
            self.largest_grant = self.largest_grant.max(window);
        }
        if before == State::SynSent && outcome.established {
            self.expected = Some(header.seq.add(1));
        }
        if before == State::Closed {
            assert!(outcome.drop.is_some(), "what is over takes nothing");
            assert!(!outcome.deliver && !outcome.fin && !outcome.closed && outcome.acked == 0);
        }
        if outcome.deliver || outcome.fin {
            assert!(!ended, "nothing follows the end");
            assert!(outcome.drop.is_none());
            assert_eq!(Some(header.seq), self.expected, "in order and once");
            assert_eq!(outcome.deliver, header.payload() > 0);
            assert_eq!(outcome.fin, header.has(flags::FIN));
            self.expected = Some(header.seq.add(1));
        }
        self.take(outcome);
    }

    fn take(&mut self, outcome: Outcome) {
        self.socket.free(outcome.acked);
        if outcome.failed.is_some() {
            assert!(outcome.closed);
            assert_eq!(outcome.failed, self.socket.conn().failure());
        }
        if outcome.closed {
            assert_eq!(self.socket.state(), State::Closed);
        }
        if outcome.cut {
            self.cut(0);
        }
    }

    /// Cuts every packet of the queue in two, except for the first `keep` packets.
    fn cut(&mut self, keep: usize) {
        let from = self.first_data().add(keep as u16);
        let skips = from.before(self.high);
        let mut left = MOST_PIECES;
        self.socket.cut_by(keep, |byte| {
            let pieces = left.min(2);
            left -= pieces;
            vec![byte; pieces]
        });
        if skips {
            // The new packets do not reuse the numbers of packets that were sent, but skip them.
            // The end of the window moves by the count of skipped numbers, so the window's size
            // stays the same.
            self.granted = self.granted.add(from.distance(self.high));
        }
    }

    fn shrink(&mut self, keep: usize) {
        let queued = self.socket.to_send();
        if self.socket.state() == State::Closed || keep >= queued {
            return;
        }
        // The test can compare sequence numbers only while the queue takes less than half of all
        // numbers. So it cuts no queue of more than 0x1000 packets, and a cut makes at most
        // `MOST_PIECES`.
        if queued > 0x1000 {
            return;
        }
        let from = self.first_data().add(keep as u16);
        if self.socket.conn().is_unsent(from) {
            self.cut(keep);
        } else {
            self.socket.conn().pause(self.now);
        }
    }

    fn run(&mut self, event: Event) {
        match event {
            Event::Segment(packet) => self.segment(packet),
            Event::Deadline => {
                if let Some(at) = self.socket.deadline() {
                    self.now = self.now.max(at);
                }
                let outcome = self.socket.on_deadline(self.last_device_rx, self.now);
                self.take(outcome);
                self.transmit();
                let again = self.socket.deadline();
                assert!(
                    again.is_none_or(|at| at > self.now),
                    "a timer that was run is not due again at once"
                );
            }
            Event::Wait(ms) => self.now += Nanos::from(ms) * MILLISECOND,
            Event::Read(buffer) => self.socket.conn().on_read(buffer.room(), self.now),
            Event::Enqueue(packets) => {
                for _ in 0..packets {
                    if self.socket.conn().can_enqueue() {
                        let number = self.socket.conn().next_number();
                        let queued = self.socket.to_send() as u16;
                        assert_eq!(number, self.first_data().add(queued));
                        let mut byte = BYTE;
                        assert!(self.socket.queue_one(&mut byte));
                    }
                }
            }
            Event::Hold(hold) => self.socket.conn().hold_last(hold),
            Event::Flush => self.socket.conn().flush_ack(),
            Event::Busy => self.last_device_rx = self.now,
            Event::Turn(given) => {
                let conn = self.socket.conn();
                if given {
                    conn.take_turn();
                } else if conn.demand() == Demand::Turn {
                    conn.wait_turn();
                }
            }
            Event::Close => self.socket.conn().close_send(),
            Event::ReceiveShutdown => self.socket.conn().receive_shutdown(),
            Event::Orphan => self.socket.conn().orphan(self.now),
            Event::Abort => {
                let _ = self.socket.conn().abort();
                assert_eq!(self.socket.state(), State::Closed);
            }
            Event::Configure(parameters) => self.socket.set_config(parameters.config()),
            Event::Shrink(keep) => self.shrink(keep.into()),
        }
        self.transmit();
    }

    /// Returns the number of the packet at the queue's head. If the queue is empty, returns the
    /// number of the packet that will be queued next.
    fn first_data(&mut self) -> Seq {
        let una = self.socket.conn().first_unacked();
        una.add(u16::from(una == ISN))
    }

    fn transmit(&mut self) {
        let mut sent = 0u32;
        while let Some(packet) = self.socket.poll(self.now) {
            sent += 1;
            assert!(sent < 70_000, "sends without end");
            self.sent(&packet);
        }
        let unacked = self.socket.conn().unacked();
        assert_eq!(usize::from(unacked), self.socket.to_send());
        if self.socket.state() == State::Closed {
            assert_eq!(self.socket.deadline(), None);
        }
    }

    fn sent(&mut self, packet: &Sent<Span>) {
        let header = &packet.header;
        let data = header.payload() > 0;
        assert_eq!((header.src, header.dst), (2, 1));
        if header.has(flags::SYN) {
            let told = *self.told.get_or_insert(packet.options);
            assert_eq!(packet.options.window, told.window, "what the first told");
            assert_eq!(packet.options.largest_grant, told.largest_grant);
            assert_eq!(packet.options.selective, told.selective);
        }
        if header.is_skipped() {
            // The peer has skipped numbers. The engine acknowledges again what it has received.
            let expected = self.expected.expect("no skip before the handshake");
            assert!(!expected.before(header.ack), "only what has come");
            if expected.before(header.seq) {
                self.expected = Some(header.seq);
            }
            return;
        }
        if let (Some(expected), true) = (self.expected, header.has(flags::ACK)) {
            assert!(!expected.before(header.ack), "only what has come");
        }
        if data {
            assert_eq!(packet.resend, header.seq.before(self.high));
            assert_eq!(header.flags & !(flags::ACK | flags::TXS | flags::TXF), 0);
        }
        let numbered = data || header.has(flags::SYN | flags::FIN);
        if numbered && !header.seq.before(self.high) {
            assert_eq!(header.seq, self.high, "no number is left out");
            self.high = header.seq.add(1);
            // `window` is the number of packets that may follow the most recent acknowledgement.
            let config = self.socket.config;
            let granted = self.largest_grant.min(config.burst_length_max);
            let window = config.burst_length.max(granted).clamp(1, 0x7fff);
            assert!(self.granted.distance(header.seq) < window);
        }
    }
}

fn play(input: &mut Unstructured<'_>) -> Result<()> {
    let mut world = World::new(input.arbitrary()?);
    world.transmit();
    // The number of events is limited so that one input does not take seconds.
    for _ in 0..400 {
        if input.is_empty() {
            break;
        }
        world.run(input.arbitrary()?);
    }
    Ok(())
}

/// Fuzzes one engine with any calls and packets.
///
/// # Panics
///
/// If a property does not hold.
pub fn esp_calls(data: &[u8]) {
    // The error is ignored: it only says that the input ends within an event. All earlier events
    // have been played.
    let _ = play(&mut Unstructured::new(data));
}
