// SPDX-License-Identifier: GPL-2.0

//! Tests that a run of packets is equivalent to its packets. Whether an engine receives or sends
//! several packets at once or one by one, it is in exactly the same state afterwards.

use std::collections::HashMap;

use esp::records::{Kind, Part};
use esp::{flags, Config, Connection, Header, Nanos, Room, Seq, State, Transmit, WriteQueue};
use proptest::prelude::*;

/// Payload bytes of a full packet.
const SIZE: u16 = 100;

/// Number of bytes that a packet takes in the receive queue.
const COST: u32 = 300;

const OURS: u16 = 7;
const PEERS: u16 = 9;

/// A write queue whose packets were sent with `flags`. The packets form runs of at most `most`
/// packets.
#[derive(Clone)]
struct Kept {
    flags: HashMap<u16, u8>,
    most: u16,
}

impl WriteQueue for Kept {
    fn flags(&mut self, seq: Seq) -> u8 {
        self.flags.get(&seq.0).copied().unwrap_or(0)
    }

    fn run(&mut self, seq: Seq) -> u16 {
        // Wherever a run begins, it ends at a multiple of `most`, as with buffers of `most`
        // packets.
        self.most - seq.0 % self.most
    }
}

impl Kept {
    fn of(most: u16) -> Self {
        Self {
            flags: HashMap::new(),
            most,
        }
    }

    fn note(&mut self, header: &Header) {
        self.flags
            .insert(header.seq.0, header.flags & (flags::TXS | flags::TXF));
    }
}

/// Returns all packets that an engine sends now, one by one. The `bool` tells whether the packet is
/// a retransmission.
fn drain(conn: &mut Connection, queue: &mut Kept, now: Nanos) -> Vec<(Header, bool)> {
    let mut sent = Vec::new();
    while let Some(next) = conn.poll_transmit(now, queue) {
        match next {
            Transmit::Data {
                header,
                count,
                resend,
            } => {
                for index in 0..count {
                    let one = header.of_run(index, SIZE, index + 1 == count);
                    queue.note(&one);
                    sent.push((one, resend));
                }
            }
            Transmit::Control { header, resend } => sent.push((header, resend)),
            Transmit::Probe(header) | Transmit::Request(header) => sent.push((header, false)),
        }
    }
    sent
}

fn room(packets: u32, limit: u32, arriving: u32) -> Room {
    Room {
        queued: packets * COST,
        limit,
        arriving,
        packet: COST,
    }
}

fn header(seq: Seq, ack: Seq, bits: u8) -> Header {
    Header {
        src: PEERS,
        dst: OURS,
        len: 0,
        seq,
        ack,
        flags: bits,
    }
}

/// Returns a connection that the peer opened. Numbers start at 65,500 on this side and at 65,480 on
/// the peer's.
fn established(config: Config) -> Connection {
    let syn = header(Seq(65_480), Seq(0), flags::SYN);
    let mut conn = Connection::accept(OURS, &syn, Seq(65_500), config, 0);
    let mut queue = Kept::of(1);
    assert_eq!(drain(&mut conn, &mut queue, 0).len(), 1);
    let ack = header(Seq(65_481), Seq(65_501), flags::ACK);
    let _ = conn.on_packet(&ack, room(0, 100_000, 0), 10);
    assert_eq!(conn.state(), State::Established);
    conn
}

/// An arriving run.
#[derive(Clone, Debug)]
struct Arrival {
    /// The distance of the run's first number from the expected one.
    from: i16,
    count: u16,
    flags: u8,
    /// Number of packets in the receive queue before the run.
    queued: u32,
    later: Nanos,
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let starts = prop_oneof![8 => Just(0), 2 => -30..0_i16, 2 => 1..10_i16];
    let bits = prop_oneof![4 => Just(0), 1 => Just(flags::TXS), 1 => Just(flags::TXF)];
    let queued = prop_oneof![5 => Just(0), 2 => 0..90_u32];
    (starts, 1..40_u16, bits, queued, 0..3_000_000_u64).prop_map(
        |(from, count, flags, queued, later)| Arrival {
            from,
            count,
            flags,
            queued,
            later,
        },
    )
}

/// An action on a sender.
#[derive(Clone, Debug)]
enum Action {
    /// Packets are queued.
    Queue(u16),
    /// The last packet is withheld, or no longer withheld.
    Hold(bool),
    /// The peer acknowledges this many more packets, with these flags in addition to ACK.
    Acknowledge(u16, u8),
    /// Time passes, and timers expire.
    Wait(Nanos),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (1..50_u16).prop_map(Action::Queue),
        1 => any::<bool>().prop_map(Action::Hold),
        4 => (0..30_u16).prop_map(|n| Action::Acknowledge(n, 0)),
        1 => (0..30_u16).prop_map(|n| Action::Acknowledge(n, flags::TXS)),
        1 => (0..30_u16).prop_map(|n| Action::Acknowledge(n, flags::RRQ)),
        2 => (0..60_000_000_u64).prop_map(Action::Wait),
    ]
}

proptest! {
    #[test]
    fn a_run_received_at_once_is_its_packets_received_one_by_one(
        arrivals in prop::collection::vec(arrival(), 1..40),
        limit in prop_oneof![Just(30_000_u32), Just(1_000_000)],
    ) {
        let mut runs = established(Config::default());
        let mut expected = Seq(65_481);
        let mut now = 100;
        for arrival in arrivals {
            now += arrival.later;
            let mut singles = runs.clone();
            let first = Seq(expected.0.wrapping_add(arrival.from as u16));
            let mut whole = header(first, Seq(65_501), flags::ACK | arrival.flags);
            whole.len = SIZE * arrival.count;
            let all = room(arrival.queued, limit, COST * u32::from(arrival.count));
            let outcome = runs.on_packets(&whole, arrival.count, all, now);

            let mut delivered = Vec::new();
            for index in 0..arrival.count {
                let one = whole.of_run(index, SIZE, index + 1 == arrival.count);
                let queued = arrival.queued + delivered.len() as u32;
                if singles.on_packet(&one, room(queued, limit, COST), now).deliver {
                    delivered.push(index);
                }
            }
            let taken: Vec<u16> = (outcome.skip..outcome.skip + outcome.taken).collect();
            prop_assert_eq!(outcome.deliver, !taken.is_empty());
            prop_assert_eq!(&taken, &delivered);
            prop_assert_eq!(&runs, &singles);
            expected = expected.add(outcome.taken);

            // The turn comes at once.
            for conn in [&mut runs, &mut singles] {
                if conn.demand() == esp::Demand::Turn {
                    conn.take_turn();
                }
            }
            let mut queue = Kept::of(1);
            let said = drain(&mut runs, &mut queue, now);
            prop_assert_eq!(said, drain(&mut singles, &mut queue, now));
            if runs.deadline().is_some_and(|at| at <= now) {
                let _ = runs.on_deadline(0, now);
            }
        }
    }

    #[test]
    fn merged_packets_are_split_into_the_same_again(
        seq in any::<u16>(),
        bits in prop_oneof![Just(0), Just(flags::TXS), any::<u8>()],
        others in prop::collection::vec(
            (prop_oneof![4 => Just(0_u16), 1 => 0..3_u16], // a gap in the numbers
             prop_oneof![6 => Just(0_u16), 1 => Just(1)],  // another acknowledgement
             prop_oneof![6 => Just(0_u8), 2 => Just(flags::TXF), 1 => any::<u8>()],
             prop_oneof![6 => Just(SIZE), 1 => 0..=SIZE + 1]),
            0..40),
    ) {
        let mut whole = header(Seq(seq), Seq(5), flags::ACK | bits);
        whole.len = SIZE;
        let mut packets = vec![whole];
        prop_assume!(whole.begins_run(SIZE.into()));
        for (gap, other, bits, len) in others {
            let count = packets.len() as u16;
            let next = Header {
                len,
                seq: Seq(seq).add(count).add(gap),
                ack: Seq(5 + other),
                flags: flags::ACK | bits,
                ..whole
            };
            let Some(all) = whole.joined(count, SIZE, &next, len.into()) else {
                break;
            };
            whole = all;
            packets.push(next);
        }
        let mut rest = whole.len;
        for (index, packet) in packets.iter().enumerate() {
            let len = rest.min(SIZE);
            rest -= len;
            prop_assert_eq!(*packet, whole.of_run(index as u16, len, rest == 0));
        }
        prop_assert_eq!(rest, 0);
    }

    #[test]
    fn a_run_sent_at_once_is_its_packets_sent_one_by_one(
        deeds in prop::collection::vec(action(), 1..60),
        most in 2..44_u16,
        burst_length in 1..50_u16,
        initial_ack_burst_length in 0..5_u16,
    ) {
        let config = Config { burst_length, initial_ack_burst_length, ..Config::default() };
        let mut runs = established(config);
        let mut singles = runs.clone();
        let (mut by_run, mut by_one) = (Kept::of(most), Kept::of(1));
        let mut now = 100;
        let mut high = Seq(65_501);
        for action in deeds {
            now += 1;
            for conn in [&mut runs, &mut singles] {
                match action {
                    Action::Queue(packets) => conn.enqueue(packets),
                    Action::Hold(hold) => conn.hold_last(hold),
                    Action::Acknowledge(packets, bits) => {
                        let there = conn.first_unacked().distance(high);
                        let ack = conn.first_unacked().add(packets.min(there));
                        let peers = header(Seq(65_481), ack, flags::ACK | bits);
                        let _ = conn.on_packet(&peers, room(0, 1_000_000, 0), now);
                    }
                    Action::Wait(time) => {
                        let _ = conn.on_deadline(0, now + time);
                    }
                }
            }
            if let Action::Wait(time) = action {
                now += time;
            }
            let sent = drain(&mut runs, &mut by_run, now);
            for (packet, _) in &sent {
                if packet.len > 0 && high.before(packet.seq.add(1)) {
                    high = packet.seq.add(1);
                }
            }
            prop_assert_eq!(sent, drain(&mut singles, &mut by_one, now));
            prop_assert_eq!(&runs, &singles);
            prop_assert_eq!(&by_run.flags, &by_one.flags);
        }
    }
}

/// The whole message has arrived. So no window has to be opened for the rest of it, and the
/// acknowledgement can wait for data.
#[test]
fn a_message_that_arrives_whole_is_acknowledged_with_the_answer() {
    let mut conn = established(Config::default());
    let mut whole = header(
        Seq(65_481),
        Seq(65_501),
        flags::ACK | flags::TXS | flags::TXF,
    );
    whole.len = 2 * SIZE;
    assert!(
        conn.on_packets(&whole, 2, room(0, 100_000, 2 * COST), 100)
            .deliver
    );
    assert_eq!(drain(&mut conn, &mut Kept::of(1), 100), []);
    assert!(conn.waits_for_sleep());
    conn.enqueue(1);
    let sent = drain(&mut conn, &mut Kept::of(1), 200);
    assert_eq!((sent.len(), sent[0].0.ack), (1, Seq(65_483)));
}

/// Returns the packets of these records. Each record is given by its number of packets and the
/// bytes of the last one.
fn packets_of(records: &[(u16, u16)], mut seq: Seq) -> Vec<Header> {
    let mut packets = Vec::new();
    for (count, last) in records {
        for index in 0..*count {
            let mut bits = flags::ACK;
            if index == 0 {
                bits |= flags::TXS;
            }
            if index + 1 == *count {
                bits |= flags::TXF;
            }
            let mut packet = header(seq, Seq(65_501), bits);
            packet.len = if index + 1 == *count { *last } else { SIZE };
            packets.push(packet);
            seq = seq.add(1);
        }
    }
    packets
}

/// Returns a write queue with these records, and with runs of at most `most` packets.
fn queue_of(records: &[(u16, u16)], most: u16) -> Records {
    let packets = packets_of(records, Seq(65_501));
    let bounds = packets.iter().map(|packet| {
        let bits = packet.flags & (flags::TXS | flags::TXF);
        (packet.seq.0, bits)
    });
    Records(Kept {
        flags: bounds.collect(),
        most,
    })
}

/// A write queue whose runs end with records.
struct Records(Kept);

impl WriteQueue for Records {
    fn flags(&mut self, seq: Seq) -> u8 {
        self.0.flags(seq)
    }

    fn run(&mut self, seq: Seq) -> u16 {
        let most = self.0.run(seq);
        let ends =
            |n: &u16| self.0.flags.get(&seq.add(n - 1).0).copied().unwrap_or(0) & flags::TXF != 0;
        (1..=most).find(ends).unwrap_or(most)
    }
}

proptest! {
    /// A buffer only has packets of one record, however packets are merged into runs.
    #[test]
    fn records_that_arrive_in_runs_are_those_that_were_sent(
        records in prop::collection::vec((1..12_u16, 1..=SIZE), 1..20),
        cuts in prop::collection::vec(prop::bool::weighted(0.2), 240),
    ) {
        let mut runs = established(Config::default());
        runs.use_records(Kind::plain(65_536));
        let packets = packets_of(&records, Seq(65_481));
        let mut whole = Vec::new();
        let mut now = 100;
        let mut rest = &packets[..];
        while let Some((first, mut others)) = rest.split_first() {
            let (mut run, mut count) = (*first, 1);
            let mut may = run.begins_run(run.len.into());
            while let Some((next, behind)) = others.split_first().filter(|_| may) {
                let cut = cuts[packets.len() - others.len()];
                let joined = run.joined(count, SIZE, next, next.len.into());
                let Some(all) = joined.filter(|_| !cut) else {
                    break;
                };
                (run, others, count) = (all, behind, count + 1);
                may = run.begins_run(run.len.into()) && next.len == SIZE;
            }
            let mut outcome = runs.on_packets(&run, count, room(0, 1_000_000, COST), now);
            prop_assert_eq!((outcome.skip, outcome.taken), (0, count));
            let part = runs.take_part(run.flags, count, run.len.into(), &mut outcome);
            if let Some(Part::Last(length)) = part {
                whole.push(length);
            }
            prop_assert!(part.is_some());
            if runs.demand().is_turn() {
                runs.take_turn();
            }
            let _ = drain(&mut runs, &mut Kept::of(1), now);
            rest = others;
            now += 1_000;
        }
        let lengths = records.iter().map(|(count, last)| u32::from(count - 1) * u32::from(SIZE) + u32::from(*last));
        prop_assert_eq!(whole, lengths.collect::<Vec<_>>());
    }

    /// Each run has the flags of its record, also in retransmissions.
    #[test]
    fn records_sent_in_runs_are_sent_as_their_packets(
        records in prop::collection::vec((1..12_u16, 1..=SIZE), 1..20),
        most in 2..44_u16,
        acks in prop::collection::vec((0..20_u16, any::<bool>()), 1..40),
    ) {
        let mut runs = established(Config::default());
        runs.use_records(Kind::plain(65_536));
        let mut singles = runs.clone();
        let (mut by_run, mut by_one) = (queue_of(&records, most), queue_of(&records, 1));
        let wanted = by_one.0.flags.clone();
        let all: u16 = records.iter().map(|(count, _)| count).sum();
        let (mut high, mut now) = (Seq(65_501), 100);
        for conn in [&mut runs, &mut singles] {
            conn.enqueue(all);
        }
        for (packets, again) in acks {
            let mut sent = [Vec::new(), Vec::new()];
            let queues = [&mut by_run, &mut by_one];
            for ((conn, queue), sent) in [&mut runs, &mut singles].into_iter().zip(queues).zip(&mut sent) {
                while let Some(next) = conn.poll_transmit(now, queue) {
                    let Transmit::Data { header, count, .. } = next else {
                        continue;
                    };
                    for index in 0..count {
                        sent.push(header.of_run(index, SIZE, index + 1 == count));
                    }
                }
            }
            let [run, one] = sent;
            prop_assert_eq!(&run, &one);
            for packet in run {
                let bits = packet.flags & (flags::TXS | flags::TXF);
                prop_assert_eq!(wanted.get(&packet.seq.0), Some(&bits));
                if high.before(packet.seq.add(1)) {
                    high = packet.seq.add(1);
                }
            }
            now += 20_000_000;
            let there = runs.first_unacked().distance(high);
            let ack = runs.first_unacked().add(packets.min(there));
            let bits = if again { flags::RRQ } else { 0 };
            let peers = header(Seq(65_481), ack, flags::ACK | bits);
            for conn in [&mut runs, &mut singles] {
                let _ = conn.on_packet(&peers, room(0, 1_000_000, 0), now);
                let _ = conn.on_deadline(0, now);
            }
            prop_assert_eq!(&runs, &singles);
        }
    }
}
