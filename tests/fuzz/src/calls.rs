// SPDX-License-Identifier: GPL-2.0-only

//! One engine, and calls and packets in any order.
//!
//! Beside the engine stands what a caller and a neighbour see of it: which number is taken next, how many packets are
//! queued, how far a window was opened.

use arbitrary::{Arbitrary, Result, Unstructured};
use esp::{
    flags, Config, Connection, Demand, DropReason, Header, Nanos, Outcome, Room, Seq, State,
    Transmit,
};

const MILLISECOND: Nanos = 1_000_000;
/// Numbers of the two SYNs: close to each other and to where they wrap.
const ISN: Seq = Seq(0xfff0);
const PEER_ISN: Seq = Seq(0xfffa);

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Event {
    Segment(Packet),
    Deadline,
    /// Milliseconds.
    Wait(u16),
    Read(Buffer),
    Enqueue(u8),
    Hold(bool),
    Flush,
    /// Other packets come by the device.
    Busy,
    /// The caller gives or refuses the turn that is wanted.
    Turn(bool),
    Close,
    ReceiveShutdown,
    Orphan,
    Abort,
    Configure(Parameters),
    /// Packets have become too large, from this one of the queue on.
    Shrink(u8),
}

/// A packet by its distance from what would be right.
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
    /// The number that is due.
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
    /// The packet, from port to port, to one that expects the number `expected` next and has sent all before `high`.
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
}

/// A receive queue whose packets cost 256 bytes.
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
    conn: Connection,
    now: Nanos,
    /// When another packet last came by the device.
    heard: Nanos,
    config: Config,
    /// The peer's number that is taken next, once its SYN has come.
    expected: Option<Seq>,
    ended: bool,
    queued: u16,
    /// With which flags each number left first.
    left: Box<[Option<u8>; 1 << 16]>,
    /// Behind the highest number that ever left.
    high: Seq,
    /// The most that an acknowledgement has opened.
    granted: Seq,
}

impl World {
    fn new(passive: bool) -> Self {
        let now = 1_000 * MILLISECOND;
        let config = Config::default();
        let conn = if passive {
            let syn = Header {
                src: 1,
                dst: 2,
                len: 0,
                seq: PEER_ISN,
                ack: Seq(0),
                flags: flags::SYN,
            };
            Connection::accept(2, &syn, ISN, config, now)
        } else {
            let mut conn = Connection::new(2, 1, config);
            conn.connect(ISN, now);
            conn
        };
        Self {
            conn,
            now,
            heard: 0,
            config,
            expected: passive.then_some(PEER_ISN.add(1)),
            ended: false,
            queued: 0,
            left: Box::new([None; 1 << 16]),
            high: ISN,
            granted: ISN,
        }
    }

    fn segment(&mut self, packet: Packet) {
        let header = packet.header([1, 2], self.expected.unwrap_or(PEER_ISN), self.high);
        let before = self.conn.state();
        let outcome = self.conn.on_packet(&header, packet.room.room(), self.now);
        let refused = matches!(
            outcome.drop,
            Some(DropReason::Malformed | DropReason::BadAck)
        );
        let answers = !header.has(flags::SYN) || before == State::SynSent;
        let acknowledges = header.has(flags::ACK) && !header.has(flags::RST) && answers;
        let hold = header.len == 0 && header.flags == flags::ACK | flags::TXS;
        if acknowledges && !refused && !hold && self.granted.before(header.ack) {
            self.granted = header.ack;
        }
        if before == State::SynSent && outcome.established {
            self.expected = Some(header.seq.add(1));
        }
        if before == State::Closed {
            assert!(outcome.drop.is_some(), "what is over takes nothing");
            assert!(!outcome.deliver && !outcome.fin && !outcome.closed && outcome.acked == 0);
        }
        if outcome.deliver || outcome.fin {
            assert!(!self.ended, "nothing follows the end");
            assert!(outcome.drop.is_none());
            assert_eq!(Some(header.seq), self.expected, "in order and once");
            assert_eq!(outcome.deliver, header.len > 0);
            assert_eq!(outcome.fin, header.has(flags::FIN));
            self.expected = Some(header.seq.add(1));
            self.ended = outcome.fin;
        }
        self.take(outcome);
    }

    fn take(&mut self, outcome: Outcome) {
        assert!(outcome.acked <= self.queued, "only what is queued");
        self.queued -= outcome.acked;
        if outcome.failed.is_some() {
            assert!(outcome.closed);
            assert_eq!(outcome.failed, self.conn.failure());
        }
        if outcome.closed {
            assert_eq!(self.conn.state(), State::Closed);
        }
        if outcome.cut {
            self.cut(0);
        }
    }

    /// Each packet behind the first `keep` of the queue becomes two.
    fn cut(&mut self, keep: u16) {
        let from = self.first_data().add(keep);
        let pieces = (self.queued - keep).saturating_mul(2).min(0x3000);
        let flags = self.left[usize::from(from.0)].unwrap_or(0);
        self.conn.recut(from, pieces, |seq| {
            assert_eq!(seq, from);
            flags
        });
        self.queued = keep + pieces;
        if from.before(self.high) {
            self.high = from;
        }
    }

    fn shrink(&mut self, keep: u16) {
        if self.conn.state() == State::Closed || keep >= self.queued {
            return;
        }
        // Beyond half of the numbers they cannot be told apart.
        if self.queued > 0x1000 {
            return;
        }
        if self.conn.is_unsent(self.first_data().add(keep)) {
            self.cut(keep);
        } else {
            self.conn.pause(self.now);
        }
    }

    fn run(&mut self, event: Event) {
        match event {
            Event::Segment(packet) => self.segment(packet),
            Event::Deadline => {
                if let Some(at) = self.conn.deadline() {
                    self.now = self.now.max(at);
                }
                let outcome = self.conn.on_deadline(self.heard, self.now);
                self.take(outcome);
                self.transmit();
                let again = self.conn.deadline();
                assert!(
                    again.is_none_or(|at| at > self.now),
                    "a timer that was run is not due again at once"
                );
            }
            Event::Wait(ms) => self.now += Nanos::from(ms) * MILLISECOND,
            Event::Read(buffer) => self.conn.on_read(buffer.room(), self.now),
            Event::Enqueue(packets) => {
                for _ in 0..packets {
                    if self.conn.can_enqueue() {
                        assert_eq!(self.conn.next_number(), self.first_data().add(self.queued));
                        self.conn.enqueue(1);
                        self.queued += 1;
                    }
                }
            }
            Event::Hold(hold) => self.conn.hold_last(hold),
            Event::Flush => self.conn.flush_ack(),
            Event::Busy => self.heard = self.now,
            Event::Turn(given) => {
                if self.conn.demand() == Demand::Turn {
                    if given {
                        self.conn.take_turn();
                    } else {
                        self.conn.wait_turn();
                    }
                } else if given {
                    self.conn.take_turn();
                }
            }
            Event::Close => self.conn.close_send(),
            Event::ReceiveShutdown => self.conn.receive_shutdown(),
            Event::Orphan => self.conn.orphan(self.now),
            Event::Abort => {
                let _ = self.conn.abort();
                assert_eq!(self.conn.state(), State::Closed);
            }
            Event::Configure(parameters) => {
                self.config = parameters.config();
                self.conn.set_config(self.config);
            }
            Event::Shrink(keep) => self.shrink(keep.into()),
        }
        self.transmit();
    }

    /// The number of the queue's head, or of the packet that will be.
    fn first_data(&self) -> Seq {
        let una = self.conn.first_unacked();
        una.add(u16::from(una == ISN))
    }

    fn transmit(&mut self) {
        let mut sent = 0u32;
        loop {
            let (first, queued, left) = (self.first_data(), self.queued, &self.left);
            let mut kept = |seq: Seq| {
                assert!(first.distance(seq) < queued, "only data is sent again");
                left[usize::from(seq.0)].expect("what is sent again has left before")
            };
            let Some(next) = self.conn.poll_transmit(self.now, &mut kept) else {
                break;
            };
            sent += 1;
            assert!(sent < 70_000, "sends without end");
            self.sent(next);
        }
        assert_eq!(self.conn.unacked(), self.queued);
        if self.conn.state() == State::Closed {
            assert_eq!(self.conn.deadline(), None);
        }
    }

    fn sent(&mut self, next: Transmit) {
        let (header, data) = match next {
            Transmit::Data { header, resend, .. } => {
                assert_eq!(resend, header.seq.before(self.high));
                (header, true)
            }
            Transmit::Control { header, .. } | Transmit::Probe(header) => (header, false),
        };
        assert_eq!((header.src, header.dst, header.len), (2, 1, 0));
        if let (Some(expected), true) = (self.expected, header.has(flags::ACK)) {
            assert!(!expected.before(header.ack), "only what has come");
        }
        if data {
            assert!(self.first_data().distance(header.seq) < self.queued);
            assert_eq!(header.flags & !(flags::ACK | flags::TXS | flags::TXF), 0);
        }
        let numbered = data || header.has(flags::SYN | flags::FIN);
        if numbered && !header.seq.before(self.high) {
            assert_eq!(header.seq, self.high, "no number is left out");
            self.high = header.seq.add(1);
            // The window: a burst from what was acknowledged last.
            let window = self.config.burst_length.clamp(1, 0x7fff);
            assert!(self.granted.distance(header.seq) < window);
            if data {
                let kept = header.flags & (flags::TXS | flags::TXF);
                self.left[usize::from(header.seq.0)] = Some(kept);
            }
        } else if data {
            let kept = header.flags & (flags::TXS | flags::TXF);
            assert_eq!(self.left[usize::from(header.seq.0)], Some(kept));
        }
    }
}

fn play(input: &mut Unstructured<'_>) -> Result<()> {
    let mut world = World::new(input.arbitrary()?);
    world.transmit();
    // So many that a file does not take seconds.
    for _ in 0..400 {
        if input.is_empty() {
            break;
        }
        world.run(input.arbitrary()?);
    }
    Ok(())
}

/// One engine under any calls and packets.
///
/// # Panics
/// When something does not hold, as all targets.
pub fn esp_calls(data: &[u8]) {
    // Input that ends amid an event ends there.
    let _ = play(&mut Unstructured::new(data));
}
