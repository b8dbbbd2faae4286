// SPDX-License-Identifier: GPL-2.0

//! Tests with packets that no peer sends, and with calls in any order. They must not cause a panic
//! or corrupt the true peer's data.

use esp::{flags, Config, Connection, Header, Room, Seq, State};
use esp_testkit::pair::*;
use proptest::prelude::*;

/// A forged packet. Its numbers are the expected ones, to which `seq` and `ack` are added to make
/// them wrong.
#[derive(Clone, Copy, Debug)]
struct Forged {
    seq: u16,
    ack: u16,
    flags: u8,
    len: u16,
}

fn forged() -> impl Strategy<Value = Forged> {
    let len = prop_oneof![Just(0u16), 1u16..50];
    let far = || 2_000u16..63_000;
    (far(), far(), any::<u8>(), len).prop_map(|(seq, ack, flags, len)| Forged {
        seq,
        ack,
        flags,
        len,
    })
}

impl Forged {
    /// Returns the header of this forged packet when it is sent to the side `to`. A forged packet
    /// with the right numbers can end or fill any stream that is not authenticated. So one of the
    /// numbers of each packet is wrong; the other may be right.
    fn towards(self, pair: &mut Pair, to: usize) -> Header {
        let seq = pair.sides[1 - to].conn().cursor();
        let ack = pair.sides[to].conn().first_unacked();
        let mut header = Header {
            src: PORTS[1 - to],
            dst: PORTS[to],
            len: self.len,
            seq,
            ack,
            flags: self.flags,
        };
        if header.takes_number() || header.has(flags::RST) {
            header.seq = seq.add(self.seq);
        }
        if !header.has(flags::RST) && (self.seq % 4 != 0 || header.is_skip()) {
            header.ack = ack.add(self.ack);
        }
        header
    }
}

/// An event of an engine.
#[derive(Clone, Copy, Debug)]
enum Event {
    Segment(Header, Room),
    Deadline,
    Wait(u64),
    Read(Room),
    Enqueue(u16),
    Hold(bool),
    Flush,
    Close,
    ReceiveShutdown,
    Orphan,
    Abort,
    Configure(Config),
    Connect,
}

fn room() -> impl Strategy<Value = Room> {
    let size = || prop_oneof![Just(0u32), 0u32..100_000, any::<u32>()];
    (size(), size(), size(), size()).prop_map(|(queued, limit, arriving, packet)| Room {
        queued,
        limit,
        arriving,
        packet,
    })
}

fn any_header() -> impl Strategy<Value = Header> {
    let number = || prop_oneof![3 => 0u16..40, 1 => any::<u16>()];
    let bits = prop_oneof![
        4 => Just(flags::ACK),
        1 => Just(flags::ACK | flags::RRQ),
        1 => Just(flags::ACK | flags::FIN),
        1 => Just(flags::ACK | flags::SYN),
        1 => Just(flags::ACK | flags::TXS),
        1 => Just(flags::ACK | flags::TXF),
        1 => Just(flags::RST | flags::ACK),
        2 => any::<u8>(),
    ];
    (
        number(),
        number(),
        prop_oneof![Just(0u16), Just(1u16), any::<u16>()],
        bits,
    )
        .prop_map(|(seq, ack, len, flags)| Header {
            src: 1,
            dst: 2,
            len,
            seq: Seq(seq),
            ack: Seq(ack),
            flags,
        })
}

fn event() -> impl Strategy<Value = Event> {
    let config = any::<(u16, u16, u16, u32)>().prop_map(|(a, b, c, d)| {
        Event::Configure(Config {
            burst_length: a,
            initial_ack_burst_length: b,
            packets_to_ack: c,
            round_trip_time: d,
            ..Config::default()
        })
    });
    prop_oneof![
        12 => (any_header(), room()).prop_map(|(h, r)| Event::Segment(h, r)),
        4 => Just(Event::Deadline),
        2 => prop_oneof![0u64..10 * S, any::<u64>()].prop_map(Event::Wait),
        2 => room().prop_map(Event::Read),
        4 => (1u16..60).prop_map(Event::Enqueue),
        1 => any::<bool>().prop_map(Event::Hold),
        1 => Just(Event::Flush),
        1 => Just(Event::Close),
        1 => Just(Event::ReceiveShutdown),
        1 => Just(Event::Orphan),
        1 => Just(Event::Abort),
        1 => config,
        1 => Just(Event::Connect),
    ]
}

/// Checks the invariants of an engine.
fn check(conn: &mut Connection, queued: &mut u32, now: u64) -> Result<(), TestCaseError> {
    let mut sent = 0u32;
    while conn.poll_transmit(now, &mut |_| 0xff).is_some() {
        sent += 1;
        prop_assert!(sent < 70_000, "sends without end");
    }
    prop_assert_eq!(u32::from(conn.unacked()), *queued);
    if conn.state() == State::Closed {
        prop_assert_eq!(conn.deadline(), None);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(13),
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..ProptestConfig::with_cases(600)
    })]

    #[test]
    fn no_order_of_calls_and_packets_breaks_the_engine(
        passive in any::<bool>(),
        events in prop::collection::vec(event(), 1..120),
    ) {
        let mut now = 1_000u64;
        let config = Config::default();
        let mut conn = if passive {
            let syn = Header { src: 1, dst: 2, len: 0, seq: Seq(3), ack: Seq(0), flags: flags::SYN };
            Connection::accept(2, &syn, Seq(2), config, now)
        } else {
            let mut conn = Connection::new(2, 1, config);
            conn.connect(Seq(2), now);
            conn
        };
        let mut queued = 0u32;
        for event in events {
            match event {
                Event::Segment(header, room) => {
                    let before = conn.state();
                    let outcome = conn.on_packet(&header, room, now);
                    prop_assert!(u32::from(outcome.acked) <= queued);
                    queued -= u32::from(outcome.acked);
                    prop_assert!(!outcome.deliver || (outcome.drop.is_none() && header.len > 0));
                    prop_assert!(!outcome.closed || conn.state() == State::Closed);
                    prop_assert!(!(outcome.closed && before == State::Closed));
                }
                Event::Deadline => {
                    if let Some(at) = conn.deadline() {
                        now = now.max(at);
                    }
                    let _ = conn.on_deadline(0, now);
                }
                Event::Wait(time) => now = now.saturating_add(time),
                Event::Read(room) => conn.on_read(room, now),
                Event::Enqueue(n) => {
                    for _ in 0..n {
                        if conn.can_enqueue() {
                            conn.enqueue(1);
                            queued += 1;
                        }
                    }
                }
                Event::Hold(hold) => conn.hold_last(hold),
                Event::Flush => conn.flush_ack(),
                Event::Close => conn.close_send(),
                Event::ReceiveShutdown => conn.receive_shutdown(),
                Event::Orphan => conn.orphan(now),
                Event::Abort => {
                    let _ = conn.abort();
                }
                Event::Configure(config) => conn.set_config(config),
                Event::Connect => {
                    if conn.state() == State::Closed {
                        conn = Connection::new(2, 1, config);
                        conn.connect(Seq(2), now);
                        queued = 0;
                    }
                }
            }
            check(&mut conn, &mut queued, now)?;
        }
    }

    /// Forged packets arrive between packets of the true peer.
    #[test]
    fn forged_packets_alter_no_byte(
        forged in prop::collection::vec((forged(), any::<bool>(), 1usize..12), 1..60),
        amounts in (0usize..5_000, 0usize..5_000),
    ) {
        let mut pair = Pair::established();
        pair.send(A, &bytes(amounts.0, 1));
        pair.send(B, &bytes(amounts.1, 2));
        for (packet, towards_a, steps) in forged {
            let to = if towards_a { A } else { B };
            let header = packet.towards(&mut pair, to);
            let payload = vec![0xee; usize::from(header.len)];
            let _ = pair.receive(to, &header, &payload);
            for _ in 0..steps {
                pair.step();
            }
        }
        pair.settle();
        prop_assert_eq!(pair.sides[A].failed, None);
        pair.assert_intact();
        pair.close(A);
        pair.close(B);
        pair.run_until(|p| p.sides[A].closed && p.sides[B].closed);
        prop_assert_eq!(pair.sides[A].failed, None);
        prop_assert_eq!(pair.sides[B].failed, None);
    }
}
