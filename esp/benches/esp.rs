// SPDX-License-Identifier: GPL-2.0

//! What the decisions of ESP cost, without kernel and network: the engine's
//! part of what `make bench` counts.

// `criterion_group!` makes a function without a description.
#![allow(missing_docs)]

use std::collections::VecDeque;
use std::hint::black_box;

use criterion::{criterion_group, criterion_main, BatchSize, Criterion, Throughput};
use esp::{
    flags, AckQueue, Config, Connection, Demand, Header, Nanos, Outcome, Room, Seq, Slot, State,
    Transmit, Verdict, HEADER_LEN,
};

/// Payload of a packet.
const PAYLOAD: u16 = 1_489;
/// Packets of a message: one window.
const BURST: u16 = 21;
/// Between two things that happen.
const STEP: Nanos = 1_000;
/// A reader that keeps up.
const ROOM: Room = Room {
    queued: 0,
    limit: 1 << 20,
    arriving: 2_304,
    packet: 2_304,
};
const PORTS: [u16; 2] = [49_152, 2_805];

/// One end, with as much of a caller as it needs: flags that packets left with
/// are only asked for when packets are sent again, and none is lost here.
struct End {
    connection: Connection,
    ack_queue: AckQueue,
    slot: Slot,
}

impl End {
    fn new(connection: Connection) -> Self {
        Self {
            connection,
            ack_queue: AckQueue::default(),
            slot: Slot::default(),
        }
    }

    fn queue(&mut self, packets: u16) {
        self.connection.hold_last(true);
        for _ in 0..packets {
            assert!(self.connection.can_enqueue());
            self.connection.enqueue(1);
        }
        self.connection.hold_last(false);
    }

    /// A packet comes, and its data are read at once.
    fn take(&mut self, header: &Header, now: Nanos) -> Outcome {
        let outcome = self.connection.on_packet(header, ROOM, now);
        if outcome.deliver {
            self.connection.on_read(ROOM, now);
        }
        // Nobody else has the turn.
        let _ = self
            .ack_queue
            .schedule(&mut self.slot, &mut self.connection, now);
        outcome
    }

    fn give(&mut self, now: Nanos) -> Option<Header> {
        let mut header = match self.connection.poll_transmit(now, &mut |_| 0)? {
            Transmit::Control { header, .. } | Transmit::Probe(header) => return Some(header),
            Transmit::Data { header, .. } => header,
        };
        header.len = PAYLOAD;
        Some(header)
    }
}

/// Two ends with a connection, and what each said last.
struct Pair {
    now: Nanos,
    ends: [End; 2],
    /// Data packets that arrived and were acknowledged, at each end.
    delivered: [u32; 2],
    acked: [u32; 2],
}

impl Pair {
    fn connected() -> Self {
        let config = Config::default();
        let mut client = Connection::new(PORTS[0], PORTS[1], config);
        client.connect(Seq(1), 0);
        let Some(Transmit::Control { header: syn, .. }) = client.poll_transmit(0, &mut |_| 0)
        else {
            panic!("a connection opens with a SYN");
        };
        let server = Connection::accept(PORTS[1], &syn, Seq(2), config, 0);
        let mut pair = Self {
            now: STEP,
            ends: [End::new(client), End::new(server)],
            delivered: [0; 2],
            acked: [0; 2],
        };
        pair.settle();
        for end in &pair.ends {
            assert_eq!(end.connection.state(), State::Established);
        }
        pair
    }

    /// Carries packets until neither end has one.
    fn settle(&mut self) {
        let mut quiet = false;
        while !quiet {
            quiet = true;
            for from in [1, 0] {
                while let Some(header) = self.ends[from].give(self.now) {
                    self.now += STEP;
                    quiet = false;
                    let to = 1 - from;
                    let outcome = self.ends[to].take(&header, self.now);
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
                pair.ends[from].queue(1);
                pair.settle();
            }
        });
    });
    // The last packet's acknowledgement waits for data to carry it.
    assert!(pair.delivered[0] > 0 && pair.delivered[0] == pair.delivered[1]);

    let mut pair = Pair::connected();
    group.throughput(Throughput::Elements(u64::from(BURST)));
    group.bench_function("a burst sent and acknowledged, both ends", |bencher| {
        bencher.iter(|| {
            pair.ends[0].queue(BURST);
            pair.settle();
        });
    });
    assert!(pair.delivered[1] > 0 && pair.acked[0] == pair.delivered[1]);
    group.finish();
}

/// The halves of a burst, each without the other.
fn halves(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("esp/half");
    group.throughput(Throughput::Elements(u64::from(BURST)));

    let mut pair = Pair::connected();
    // What a receiver that follows says to a burst.
    let peer = |pair: &Pair, ack| Header {
        src: PORTS[1],
        dst: PORTS[0],
        len: 0,
        seq: pair.ends[1].connection.cursor(),
        ack,
        flags: flags::ACK,
    };
    group.bench_function("a burst sent", |bencher| {
        bencher.iter(|| {
            pair.ends[0].queue(BURST);
            while pair.ends[0].connection.unacked() > 0 {
                let mut last = None;
                while let Some(header) = pair.ends[0].give(pair.now) {
                    last = Some(header);
                }
                pair.now += STEP;
                let last = last.expect("an acknowledgement opens the window");
                let header = peer(&pair, last.seq.add(1));
                let outcome = pair.ends[0].take(&header, pair.now);
                pair.acked[0] += u32::from(outcome.acked);
            }
        });
    });
    assert!(pair.acked[0] > 0);

    let mut pair = Pair::connected();
    let mut seq = pair.ends[0].connection.next_number();
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
                    ack: pair.ends[1].connection.cursor(),
                    flags: bits,
                };
                seq = seq.add(1);
                pair.now += STEP;
                let outcome = pair.ends[1].take(&header, pair.now);
                pair.delivered[1] += u32::from(outcome.deliver);
                while let Some(header) = pair.ends[1].give(pair.now) {
                    black_box(header);
                }
            }
        });
    });
    let expected = pair.ends[0].connection.next_number();
    let arrived = Seq(expected.0.wrapping_add(pair.delivered[1] as u16));
    assert!(pair.delivered[1] > 0 && arrived == seq);
    group.finish();
}

/// Senders that have announced something ask for their turns, one after the
/// other, and get them in that order.
fn ack_queue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("esp/ack_queue");
    for senders in [2_usize, 32, 1_024] {
        let announced = || {
            let mut queue = AckQueue::default();
            let mut slots = vec![Slot::default(); senders];
            for slot in &mut slots {
                let verdict = queue.update(slot, Demand::Count, 0);
                assert_eq!(verdict, Verdict::Unchanged);
            }
            (queue, slots, VecDeque::with_capacity(senders))
        };
        group.throughput(Throughput::Elements(senders as u64));
        group.bench_function(format!("a round of {senders}"), |bencher| {
            bencher.iter_batched_ref(
                announced,
                |(queue, slots, list)| {
                    let mut now = 0;
                    for id in 0..senders {
                        now += STEP;
                        queue.note_arrival(now);
                        if queue.update(&mut slots[id], Demand::Turn, now) == Verdict::Joins {
                            list.push_back(id);
                        }
                        while let Some(turn) = queue.next_turn(now) {
                            let head: usize = list.pop_front().expect("the queue counts the list");
                            turn.give(&mut slots[head]);
                        }
                    }
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, header, connection, halves, ack_queue);
criterion_main!(benches);
