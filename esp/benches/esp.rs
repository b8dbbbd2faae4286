// SPDX-License-Identifier: GPL-2.0

//! Benchmarks of ESP's engine, without kernel and network. They show which part of the cost that
//! `make bench` counts is the engine's. The queues around the engine come from `tests/testkit`.

// `criterion_group!` makes a function without a description.
#![allow(missing_docs)]

use std::collections::VecDeque;
use std::hint::black_box;

use criterion::{criterion_group, criterion_main, BatchSize, Criterion, Throughput};
use esp::ack_queue::LISTS;
use esp::{
    flags, AckQueue, Config, Demand, Header, Nanos, Options, Outcome, Seq, Slot, State, Verdict,
    HEADER_LEN,
};
use esp_testkit::{Device, Host, Packet, Socket, Span};

/// Number of payload bytes in a packet.
const PAYLOAD: u16 = 1_489;
/// Number of packets in a message. A message fills one window.
const BURST: u16 = 21;
/// Time from one packet to the next.
const STEP: Nanos = 1_000;
const PORTS: [u16; 2] = [49_152, 2_805];

/// One end of a connection. Its host has no other connection.
struct End {
    socket: Socket<Span>,
    device: Device,
    /// Number of bytes written since the start.
    written: u64,
    /// Packets that this end has sent and the other end has not yet received.
    out: VecDeque<Packet<Span>>,
}

impl End {
    fn new(isn: u16) -> Self {
        let mut socket = Socket::new(Config::default(), PAYLOAD.into(), 1 << 20);
        socket.isn = Seq(isn);
        socket.overhead = 815;
        socket.listens = true;
        Self {
            socket,
            device: Device::default(),
            written: 0,
            out: VecDeque::new(),
        }
    }

    /// Writes a message of full packets.
    fn write(&mut self, packets: u16, now: Nanos) {
        let message = Span {
            first: self.written,
            len: u64::from(packets) * u64::from(PAYLOAD),
        };
        self.written += message.len;
        let len = self.send(0, message, now);
        assert_eq!(len as u64, message.len);
    }

    /// Processes a packet. The reader reads the packet's data at once and does not sleep.
    fn take(&mut self, packet: &Packet<Span>, now: Nanos) -> Outcome {
        let outcome = self.receive(0, packet, now);
        if outcome.deliver {
            black_box(self.read(0, 1, false, now));
        }
        outcome
    }
}

impl Host for End {
    type Payload = Span;

    fn at(&mut self, _id: usize) -> (&mut Device, &mut Socket<Span>) {
        (&mut self.device, &mut self.socket)
    }

    fn emit(&mut self, _id: usize, packet: Packet<Span>) {
        self.out.push_back(packet);
    }
}

/// Two ends with a connection.
struct Pair {
    now: Nanos,
    ends: [End; 2],
    /// `delivered` is the number of data packets that have arrived at each end. `acked` is the
    /// number of each end's packets that the other end has acknowledged.
    delivered: [u32; 2],
    acked: [u32; 2],
}

impl Pair {
    fn connected() -> Self {
        let mut pair = Self {
            now: STEP,
            ends: [End::new(1), End::new(2)],
            delivered: [0; 2],
            acked: [0; 2],
        };
        pair.ends[0].connect(0, PORTS, 0);
        pair.settle();
        for end in &pair.ends {
            assert_eq!(end.socket.state(), State::Established);
        }
        pair
    }

    /// Carries packets until neither end has one to send.
    fn settle(&mut self) {
        let mut quiet = false;
        while !quiet {
            quiet = true;
            for from in [1, 0] {
                while let Some(packet) = self.ends[from].out.pop_front() {
                    self.now += STEP;
                    quiet = false;
                    let to = 1 - from;
                    let outcome = self.ends[to].take(&packet, self.now);
                    self.delivered[to] += u32::from(outcome.deliver);
                    self.acked[to] += u32::from(outcome.acked);
                }
            }
        }
    }
}

fn header(criterion: &mut Criterion) {
    let header = Header {
        src: PORTS[0],
        dst: PORTS[1],
        len: PAYLOAD,
        seq: Seq(65_535),
        ack: Seq(7),
        flags: flags::ACK,
    };
    let mut frame = [0; HEADER_LEN + PAYLOAD as usize];
    frame[..HEADER_LEN].copy_from_slice(&header.emit());
    let mut group = criterion.benchmark_group("esp/header");
    group.bench_function("write", |bencher| {
        bencher.iter(|| black_box(header).emit());
    });
    group.bench_function("read", |bencher| {
        bencher.iter(|| {
            let frame = black_box(&frame[..]);
            let header = Header::parse(frame)?;
            let len = header.payload_len(frame.len() - HEADER_LEN)?;
            Some((header, len))
        });
    });
    group.finish();
}

fn connection(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("esp/connection");
    group.bench_function("opened", |bencher| bencher.iter(Pair::connected));

    let mut pair = Pair::connected();
    group.throughput(Throughput::Elements(2));
    group.bench_function("a packet there and one back, both ends", |bencher| {
        bencher.iter(|| {
            for from in [0, 1] {
                let now = pair.now;
                pair.ends[from].write(1, now);
                pair.settle();
            }
        });
    });
    // The counts of acknowledged packets are not compared, because the last packet's
    // acknowledgement waits for data to carry it.
    assert!(pair.delivered[0] > 0 && pair.delivered[0] == pair.delivered[1]);

    let mut pair = Pair::connected();
    group.throughput(Throughput::Elements(u64::from(BURST)));
    group.bench_function("a burst sent and acknowledged, both ends", |bencher| {
        bencher.iter(|| {
            let now = pair.now;
            pair.ends[0].write(BURST, now);
            pair.settle();
        });
    });
    assert!(pair.delivered[1] > 0 && pair.acked[0] == pair.delivered[1]);
    group.finish();
}

/// Measures separately what a burst costs its sender and what it costs its receiver.
fn halves(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("esp/half");
    group.throughput(Throughput::Elements(u64::from(BURST)));

    let mut pair = Pair::connected();
    // Creates the acknowledgements that a receiver sends for a burst.
    let peer = |pair: &mut Pair, ack| {
        Packet::control(Header {
            src: PORTS[1],
            dst: PORTS[0],
            len: 0,
            seq: pair.ends[1].socket.conn().cursor(),
            ack,
            flags: flags::ACK,
        })
    };
    group.bench_function("a burst sent", |bencher| {
        bencher.iter(|| {
            let now = pair.now;
            pair.ends[0].write(BURST, now);
            while pair.ends[0].socket.to_send() > 0 {
                pair.now += STEP;
                let last = pair.ends[0].out.drain(..).next_back();
                let last = last.expect("an acknowledgement opens the window");
                let packet = peer(&mut pair, last.header.seq.add(1));
                let now = pair.now;
                let outcome = pair.ends[0].take(&packet, now);
                pair.acked[0] += u32::from(outcome.acked);
            }
        });
    });
    assert!(pair.acked[0] > 0);

    let mut pair = Pair::connected();
    let mut seq = pair.ends[0].socket.conn().next_number();
    group.bench_function("a burst received", |bencher| {
        bencher.iter(|| {
            for packet in 0..BURST {
                let bits = match packet {
                    0 => flags::ACK | flags::TXS,
                    _ if packet == BURST - 1 => flags::ACK | flags::TXF,
                    _ => flags::ACK,
                };
                let header = Header {
                    src: PORTS[0],
                    dst: PORTS[1],
                    len: PAYLOAD,
                    seq,
                    ack: pair.ends[1].socket.conn().cursor(),
                    flags: bits,
                };
                seq = seq.add(1);
                pair.now += STEP;
                let packet = Packet {
                    header,
                    payload: Span {
                        first: 0,
                        len: PAYLOAD.into(),
                    },
                    options: Options::default(),
                    resend: false,
                    named: [0; esp::MISSING_MOST],
                };
                let now = pair.now;
                let outcome = pair.ends[1].take(&packet, now);
                pair.delivered[1] += u32::from(outcome.deliver);
                for packet in pair.ends[1].out.drain(..) {
                    black_box(packet);
                }
            }
        });
    });
    let expected = pair.ends[0].socket.conn().next_number();
    let arrived = Seq(expected.0.wrapping_add(pair.delivered[1] as u16));
    assert!(pair.delivered[1] > 0 && arrived == seq);
    group.finish();
}

/// Measures the ACK queue with senders that have announced transmissions. The senders request turns
/// one after the other, and get turns in that order.
fn ack_queue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("esp/ack_queue");
    for (senders, hosts) in [(2_usize, 2_usize), (32, 32), (32, 1), (1_024, 1_024)] {
        let announced = || {
            let mut queue = AckQueue::default();
            let mut slots: Vec<_> = (0..senders)
                .map(|id| Slot::of((id % hosts) as u64))
                .collect();
            for slot in &mut slots {
                let verdict = queue.update(slot, Demand::Count, 0);
                assert_eq!(verdict, Verdict::Unchanged);
            }
            let list = || VecDeque::with_capacity(senders);
            (queue, slots, std::array::from_fn::<_, LISTS, _>(|_| list()))
        };
        group.throughput(Throughput::Elements(senders as u64));
        group.bench_function(
            format!("a round of {senders} of {hosts} hosts"),
            |bencher| {
                bencher.iter_batched_ref(
                    announced,
                    |(queue, slots, lists)| {
                        let mut now = 0;
                        for id in 0..senders {
                            now += STEP;
                            queue.note_arrival(now);
                            if let Verdict::Joins(list) =
                                queue.update(&mut slots[id], Demand::Turn, now)
                            {
                                lists[list.index()].push_back(id);
                            }
                            while let Some(turn) = queue.next_turn(now) {
                                let head = lists[turn.list().index()].pop_front();
                                let head: usize = head.expect("the queue counts the lists");
                                if let Some(list) = turn.give(&mut slots[head]) {
                                    lists[list.index()].push_back(head);
                                }
                            }
                        }
                    },
                    BatchSize::SmallInput,
                );
            },
        );
    }
    group.finish();
}

criterion_group!(benches, header, connection, halves, ack_queue);
criterion_main!(benches);
