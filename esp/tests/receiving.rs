// SPDX-License-Identifier: GPL-2.0

//! Tests of the receiving rules R1 to R4, and of the receiver's congestion.

use esp::{flags, Config, DropReason, Header, Seq};
use esp_testkit::pair::*;

/// Returns a pair whose side B does not read, and has room for this number of packets.
fn sleeping(packets: u32) -> Pair {
    let mut pair = Pair::established();
    pair.sides[B].reads = false;
    pair.sides[B].limit = packets * pair.sides[B].packet_cost();
    pair
}

fn acks(pair: &Pair) -> Vec<u16> {
    let first = pair.data_sent(A)[0].seq;
    pair.sent_by(B, |s| s.header.has(flags::ACK))
        .iter()
        .map(|h| first.distance(h.ack))
        .collect()
}

#[test]
fn announcement_every_tenth_and_last_are_acknowledged() {
    // This tests rule R2 of `docs/protocol.md`.
    let mut pair = Pair::established();
    pair.send(A, &bytes(3_500, 1));
    pair.settle();
    assert_eq!(acks(&pair), [1, 11, 21, 31, 35]);
    pair.assert_intact();
    assert_eq!(pair.data_sent(A).len(), 35);
}

#[test]
fn packets_to_ack_counts_across_messages() {
    let mut pair = Pair::established();
    for _ in 0..10 {
        pair.send(A, b"x");
    }
    let sent = pair.now;
    pair.run_until(|p| p.sent_by(B, |_| true).len() == 1);
    assert!(pair.now - sent < MS, "without waiting for the delay");
    assert_eq!(acks(&pair), [10]);
}

#[test]
fn the_final_acknowledgement_waits_for_data_to_carry_it() {
    let mut pair = Pair::established();
    pair.send(A, b"x");
    pair.run_until(|p| p.sides[B].received.len() == 1);
    let arrived = pair.now;
    pair.run_for(3_900 * US);
    assert!(pair.sent_by(B, |_| true).is_empty());
    pair.run_for(200 * US);
    let sent = pair.log.last().expect("an acknowledgement");
    assert!(sent.is_pure_ack());
    assert_eq!(sent.at - arrived, 4 * MS);
}

#[test]
fn one_request_per_hole() {
    // R1: the hole is requested once. The packets of the burst that arrive after this request cause
    // no further request.
    let mut pair = Pair::established();
    pair.lose(A, 3);
    pair.send(A, &bytes(2_000, 1));
    pair.settle();
    pair.assert_intact();
    let stats = pair.sides[B].conn().stats;
    assert_eq!(stats.arq_tx, 1);
    assert!(stats.pkt_rx_oos > 10, "{stats:?}");
    assert_eq!(stats.seq_lost, 1);
}

#[test]
fn two_holes_bring_two_requests() {
    let mut pair = Pair::established();
    pair.lose(A, 3);
    let first = pair.sides[A].conn().first_unacked();
    pair.lose_matching(A, 2, move |h| h.len > 0 && h.seq == first.add(10));
    pair.send(A, &bytes(2_000, 1));
    pair.settle();
    pair.assert_intact();
    let stats = pair.sides[B].conn().stats;
    assert_eq!(stats.arq_tx, 2, "{pair:?}");
    assert_eq!(stats.seq_lost, 2);
}

#[test]
fn a_lost_request_is_repeated_after_a_probe() {
    let mut pair = Pair::established();
    let start = pair.now;
    pair.lose(A, 3);
    pair.lose_matching(B, 2, |h| h.has(flags::RRQ));
    pair.send(A, &bytes(2_000, 1));
    pair.run_until(|p| p.sides[B].received.len() == 2_000);
    assert!(
        pair.now - start < 2 * MS,
        "200 us, then 400 us, a round trip each"
    );
    assert_eq!(pair.sides[B].conn().stats.arq_tx, 3);
    pair.settle();
    pair.assert_intact();
}

#[test]
fn a_lost_tail_is_found_by_the_timers_probe() {
    // R4: the lost packets are the last ones, so no later packet reveals the hole.
    let mut pair = Pair::established();
    let start = pair.now;
    for nth in 15..20 {
        pair.lose(A, nth);
    }
    pair.send(A, &bytes(2_000, 1));
    pair.run_until(|p| p.sides[B].received.len() == 2_000);
    assert!(pair.now - start < MS, "well before the sender's timeout");
    assert_eq!(pair.sides[B].conn().stats.arq_tx, 1);
    pair.settle();
    pair.assert_intact();
}

/// Returns the probes by which B has asked for the next packet that it expects from A. A probe has
/// the number before B's first unacknowledged one. B must not have sent data, since a data packet
/// could have that number too.
fn probes(pair: &Pair) -> Vec<Header> {
    let conn = pair.sides[B].conn.as_ref().expect("a connection");
    let next = conn.first_unacked();
    pair.sent_by(B, |sent| sent.header.seq.distance(next) == 1)
}

#[test]
fn late_packets_are_probed_for_and_not_retransmitted() {
    let mut pair = Pair::established();
    // From now on the round trip is a hundred times as long as in the handshake, so all probes are
    // too early.
    pair.latency = 2 * MS;
    pair.send(A, &bytes(20_000, 1));
    pair.settle();
    pair.assert_intact();
    assert!(!probes(&pair).is_empty());
    assert_eq!(pair.sides[B].conn().stats.arq_tx, 0);
    assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
    // The receiver has learned the round trip.
    pair.restart_log();
    pair.send(A, &bytes(20_000, 2));
    pair.settle();
    assert_eq!(probes(&pair), []);
}

#[test]
fn a_lost_tail_is_found_though_probes_and_answers_are_lost() {
    let mut pair = Pair::established();
    for nth in 15..20 {
        pair.lose(A, nth);
    }
    pair.send(A, &bytes(2_000, 1));
    pair.run_until(|p| !probes(p).is_empty());
    let start = pair.now;
    // The wire loses three packets: the answer to the first probe, then the second probe itself,
    // and then the answer to the third probe.
    pair.lose_matching(B, 1, |h| !h.has(flags::RRQ));
    pair.lose_matching(A, 2, |h| h.len == 0);
    pair.run_until(|p| p.sides[B].received.len() == 2_000);
    assert!(pair.now - start < 10 * MS, "before the sender's timeout");
    assert_eq!(pair.sides[B].conn().stats.arq_tx, 1);
    pair.settle();
    pair.assert_intact();
}

#[test]
fn liveness_probes_reveal_a_lost_request() {
    let mut pair = Pair::with_config(Config {
        round_trip_time: 1_000_000,
        ..Config::default()
    })
    .establish();
    pair.lose(A, 3);
    pair.lose_matching(B, 1, |h| h.has(flags::RRQ));
    pair.send(A, &bytes(5_000, 1));
    pair.run_for(5 * S);
    pair.assert_intact();
}

#[test]
fn a_pause_between_two_transmissions_is_no_round_trip() {
    let mut pair = Pair::established();
    pair.send(A, &bytes(2_000, 1));
    for pause in 1..=5 {
        pair.run_for(pause * 10 * S);
        pair.send(A, &bytes(2_000, pause));
    }
    pair.settle();
    let (start, before) = (pair.now, pair.sides[B].received.len());
    let first = pair.sides[A].conn().first_unacked();
    pair.lose_matching(A, 5, move |h| h.len > 0 && first.distance(h.seq) >= 15);
    pair.send(A, &bytes(2_000, 9));
    pair.run_until(|p| p.sides[B].received.len() == before + 2_000);
    assert!(pair.now - start < 2 * MS, "{}", pair.now - start);
    pair.settle();
    pair.assert_intact();
}

#[test]
fn the_request_timer_rests_when_no_data_is_coming() {
    let mut pair = Pair::established();
    pair.send(A, &bytes(2_000, 1));
    pair.run_for(10 * S);
    assert_eq!(pair.sides[B].conn().stats.arq_tx, 0);
    assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
}

#[test]
fn an_acknowledgement_reveals_that_data_before_it_is_lost() {
    let mut pair = Pair::established();
    let start = pair.now;
    pair.lose(A, 0);
    pair.send(A, b"lost");
    // B announces a transmission; A's acknowledgement has the number after the lost packet.
    pair.send(B, &bytes(2_000, 1));
    pair.run_until(|p| p.sides[B].received == b"lost");
    assert!(pair.now - start < MS, "before A's timeout");
    pair.settle();
    pair.assert_intact();
}

#[test]
fn a_duplicate_is_answered_at_once() {
    let mut pair = Pair::established();
    pair.fate(A, 0, Fate::Twice);
    pair.send(A, b"x");
    pair.run_until(|p| p.sides[B].drops == [DropReason::Duplicate]);
    assert_eq!(acks(&pair), [1]);
    assert_eq!(pair.sides[B].received, b"x");
}

#[test]
fn acknowledgements_are_never_acknowledged() {
    let mut pair = Pair::established();
    pair.rule(|_, _, h| {
        if h.takes_number() {
            Fate::Pass
        } else {
            Fate::Twice
        }
    });
    pair.send(A, b"x");
    pair.send(B, b"y");
    pair.settle();
    assert!(pair.log.len() <= 4, "{pair:?}");
}

#[test]
fn without_room_for_a_burst_acknowledgements_are_withheld() {
    // R3: the queue has room for 25 packets, and a burst has 21. When the acknowledgement after the
    // announcement's is due, 11 packets are queued, so there is no room for another burst.
    let mut pair = sleeping(25);
    pair.send(A, &bytes(10_000, 1));
    pair.run_for(900 * MS);
    assert_eq!(acks(&pair), [1], "only that of the announcement");
    let sent = pair.data_sent(A).len();
    assert_eq!(sent, 22, "what was granted, and nothing again");
    assert!(pair.sides[B].drops.is_empty());
    // The reader reads again.
    pair.sides[B].reads = true;
    pair.read(B);
    pair.settle();
    pair.assert_intact();
    assert_eq!(pair.data_sent(A).len(), 100);
    assert_eq!(pair.sides[B].conn().stats.pkt_rx_drop, 0);
    assert_eq!(pair.sides[B].conn().stats.arq_tx, 0);
}

#[test]
fn a_buffer_smaller_than_a_burst_has_room_while_a_quarter_of_it_is_in_use() {
    // R3: the queue has room for 8 packets, but a burst has 21.
    let mut pair = sleeping(8);
    let withheld: Vec<bool> = (0..3)
        .map(|_| {
            pair.send(A, b"x");
            pair.run_for(900 * MS);
            pair.sides[B].conn().waits_for_room()
        })
        .collect();
    assert_eq!(withheld, [false, false, true]);
}

#[test]
fn a_small_packet_does_not_fill_what_a_burst_of_full_ones_needs() {
    // After seven full packets, there is room for a burst of 21 and a small packet, but not for a
    // burst and another full packet.
    for (arriving, withheld) in [(None, true), (Some(50), false)] {
        let mut pair = sleeping(28);
        pair.sides[B].limit += 60;
        pair.send(A, &bytes(700, 1));
        pair.run_for(900 * MS);
        assert!(!pair.sides[B].conn().waits_for_room());
        pair.sides[B].arriving = arriving;
        pair.send(A, b"x");
        pair.run_for(900 * MS);
        assert_eq!(pair.sides[B].conn().waits_for_room(), withheld);
    }
}

#[test]
fn a_slow_reader_causes_no_loss_and_no_retransmission() {
    let mut pair = sleeping(40);
    pair.send(A, &bytes(20_000, 1));
    let mut rounds = 0;
    while pair.sides[B].received.len() < 20_000 {
        pair.run_for(3 * MS);
        pair.read_packets(B, 2);
        rounds += 1;
        assert!(rounds < 1_000);
    }
    pair.settle();
    pair.assert_intact();
    assert_eq!(pair.sides[B].conn().stats.pkt_rx_drop, 0);
    assert_eq!(pair.sides[B].conn().stats.arq_tx, 0);
    assert!(pair.sides[B].most_queued <= pair.sides[B].limit);
    // The sender's timer may retransmit the end of the message.
    let twice = pair.data_sent(A).len() - 200;
    assert!(twice <= 8, "{twice}");
}

#[test]
fn a_tiny_buffer_still_moves_everything() {
    for packets in [1, 2, 3] {
        let mut pair = sleeping(packets);
        pair.sides[B].reads = true;
        pair.send(A, &bytes(5_000, 1));
        pair.run_until(|p| p.sides[B].received.len() == 5_000);
        pair.settle();
        pair.assert_intact();
        assert_eq!(pair.sides[B].conn().stats.pkt_rx_drop, 0);
        assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
    }
}

#[test]
fn a_reader_that_sleeps_for_minutes_keeps_the_connection() {
    let mut pair = sleeping(5);
    pair.send(A, &bytes(9_000, 1));
    pair.run_for(300 * S);
    assert_eq!(pair.sides[A].failed, None);
    assert_eq!(pair.sides[B].failed, None);
    assert_eq!(pair.sides[B].conn().stats.pkt_rx_drop, 0);
    let limit = pair.sides[B].limit + 22 * pair.sides[B].packet_cost();
    assert!(pair.sides[B].most_queued <= limit, "at most a burst more");
    // The log has one probe per second, and retransmissions of the announcement.
    assert!(pair.log.len() < 1_400, "{}", pair.log.len());
    pair.sides[B].reads = true;
    pair.read(B);
    pair.settle();
    pair.assert_intact();
}

#[test]
fn a_lost_window_update_is_repeated() {
    let mut pair = sleeping(25);
    pair.send(A, &bytes(4_000, 1));
    pair.run_for(100 * MS);
    pair.sides[B].reads = true;
    pair.lose_matching(B, 1, |_| true);
    let start = pair.now;
    pair.read(B);
    pair.run_until(|p| p.sides[B].received.len() == 4_000);
    assert!(pair.now - start < 5 * MS, "by the request timer");
    pair.settle();
    pair.assert_intact();
}

#[test]
fn small_messages_do_not_overrun_a_sleeping_reader() {
    let mut pair = sleeping(8);
    for i in 0..200u8 {
        pair.send(A, &[i; 10]);
    }
    pair.run_for(30 * S);
    assert_eq!(pair.sides[B].conn().stats.pkt_rx_drop, 0);
    assert!(pair.sides[B].room().queued <= 21 * pair.sides[B].packet_cost());
    pair.sides[B].reads = true;
    pair.read(B);
    pair.settle();
    pair.assert_intact();
}

#[test]
fn packets_beyond_the_room_are_requested_later() {
    let mut pair = Pair::new();
    pair.sides[A].config.burst_length = 100;
    pair.sides[B].config.burst_length = 4;
    pair.sides[B].config.packets_to_ack = 4;
    let mut pair = pair.establish();
    pair.sides[B].reads = false;
    pair.sides[B].limit = 6 * pair.sides[B].packet_cost();
    pair.send(A, &bytes(20_000, 1));
    pair.run_for(500 * MS);
    assert!(pair.sides[B].drops.contains(&DropReason::NoRoom));
    let most = 6 + 4;
    assert!(pair.sides[B].most_queued <= most * pair.sides[B].packet_cost());
    pair.sides[B].reads = true;
    pair.read(B);
    pair.settle();
    pair.assert_intact();
}

#[test]
fn a_large_burst_does_not_outgrow_a_small_buffer() {
    // In this test, each message is one packet, and a hold acknowledges it. Holds open no window,
    // so the sender sends only until its window ends. The queue never holds more than `most`
    // packets: `limit`, plus 64 or, if that is more, as many as `limit` again. The last buffer has
    // room for all 3,000 packets, so nothing exceeds its limit.
    for (limit, most) in [(6, 6 + 64), (100, 100 + 100), (5_000, 5_000)] {
        let mut pair = Pair::new();
        for side in &mut pair.sides {
            side.config.burst_length = 0x7fff;
        }
        let mut pair = pair.establish();
        pair.send(A, b"read, and a window given");
        pair.settle();
        pair.sides[B].reads = false;
        pair.sides[B].limit = limit * pair.sides[B].packet_cost();
        for i in 0..3_000 {
            pair.send(A, &bytes(10, i));
            pair.run_for(10 * US);
        }
        pair.run_for(5 * S);
        let queued = pair.sides[B].most_queued;
        assert!(queued <= most * pair.sides[B].packet_cost(), "{queued}");
        let refused = pair.sides[B].drops.contains(&DropReason::NoRoom);
        assert_eq!(refused, most < 3_000);
        pair.sides[B].reads = true;
        pair.read(B);
        pair.run_until(|p| p.sides[B].received.len() == p.sides[A].sent.len());
        pair.assert_intact();
        assert_eq!(pair.sides[A].failed, None);
    }
}

#[test]
fn a_receiver_that_acknowledges_less_often_than_the_burst_still_goes_on() {
    let mut pair = Pair::new();
    pair.sides[A].config = Config {
        burst_length: 4,
        packets_to_ack: 2,
        ..Config::default()
    };
    let mut pair = pair.establish();
    pair.send(A, &bytes(5_000, 1));
    pair.settle();
    pair.assert_intact();
}

#[test]
fn data_carries_no_more_than_was_granted_while_congested() {
    let mut pair = sleeping(25);
    pair.send(A, &bytes(4_000, 1));
    pair.run_for(100 * MS);
    pair.send(B, b"from the congested side");
    pair.run_for(MS);
    let carried = pair.data_sent(B)[0].ack;
    let first = pair.data_sent(A)[0].seq;
    assert_eq!(first.distance(carried), 1);
    assert_eq!(pair.data_sent(A).len(), 22, "nothing was opened by it");
}

#[test]
fn a_request_is_withheld_while_congested() {
    let mut pair = sleeping(25);
    pair.lose(A, 18);
    pair.send(A, &bytes(4_000, 1));
    pair.run_for(500 * MS);
    assert!(pair.sent_by(B, |s| s.header.has(flags::RRQ)).is_empty());
    pair.sides[B].reads = true;
    pair.read(B);
    pair.settle();
    pair.assert_intact();
    let requests = pair.sent_by(B, |s| s.header.has(flags::RRQ));
    let first = pair.data_sent(A)[0].seq;
    assert_eq!(requests[0].ack, first.add(18));
}

#[test]
fn the_end_of_stream_is_acknowledged_though_congested() {
    let mut pair = sleeping(2);
    pair.send(A, b"x");
    pair.run_for(100 * MS);
    pair.close(A);
    pair.run_for(100 * MS);
    assert!(pair.sides[B].eof);
    let acked = pair.sides[A].conn().unacked() == 0;
    assert!(acked, "{pair:?}");
    pair.read(B);
    pair.assert_intact();
}

#[test]
fn wrong_packets_are_dropped_and_counted() {
    let mut pair = Pair::established();
    let una = pair.sides[B].conn().first_unacked();
    let seq = pair.sides[A].conn().first_unacked();
    let good = Header {
        src: PORTS[A],
        dst: PORTS[B],
        len: 1,
        seq,
        ack: una,
        flags: flags::ACK | flags::TXS | flags::TXF,
    };
    let bad = [
        (
            Header {
                flags: 0xff,
                ..good
            },
            DropReason::Malformed,
        ),
        (
            Header {
                flags: 0,
                len: 0,
                ..good
            },
            DropReason::Malformed,
        ),
        (
            Header {
                flags: flags::RRQ,
                ..good
            },
            DropReason::Malformed,
        ),
        (
            Header {
                flags: flags::SYN | flags::RST,
                len: 0,
                ..good
            },
            DropReason::Malformed,
        ),
        (
            Header {
                flags: flags::SYN | flags::FIN,
                len: 0,
                ..good
            },
            DropReason::Malformed,
        ),
        (
            Header {
                flags: flags::FIN | flags::ACK,
                len: 9,
                ..good
            },
            DropReason::Malformed,
        ),
        (
            Header {
                ack: una.add(1),
                ..good
            },
            DropReason::BadAck,
        ),
        (
            Header {
                ack: una.sub(1),
                ..good
            },
            DropReason::BadAck,
        ),
        (
            Header {
                flags: flags::SYN,
                len: 0,
                ..good
            },
            DropReason::BadState,
        ),
        (
            Header {
                flags: flags::RST,
                len: 0,
                seq: seq.add(21),
                ..good
            },
            DropReason::BadState,
        ),
        (
            Header {
                flags: flags::RST,
                len: 0,
                seq: seq.sub(1),
                ..good
            },
            DropReason::BadState,
        ),
    ];
    for (n, (header, reason)) in bad.iter().enumerate() {
        let payload = vec![7; usize::from(header.len)];
        let outcome = pair.receive(B, header, &payload);
        assert_eq!(outcome.drop, Some(*reason), "{header:?}");
        assert!(!outcome.deliver && outcome.acked == 0 && !outcome.closed);
        let stats = pair.sides[B].conn().stats;
        assert_eq!(stats.pkt_rx_drop, n as u32 + 1);
    }
    let answers = pair.sent_by(B, |_| true);
    assert_eq!(answers.len(), 1, "only the SYN is answered: {pair:?}");
    assert_eq!((answers[0].flags, answers[0].ack), (flags::ACK, seq));
    let outcome = pair.receive(B, &good, &[7]);
    assert!(outcome.deliver);
    // The engine ignores the flag 0x80 (CRC).
    let next = Header {
        seq: seq.add(1),
        flags: good.flags | 0x80,
        ..good
    };
    assert!(pair.receive(B, &next, &[8]).deliver);
    assert_eq!(pair.sides[B].received, [7, 8]);
}

#[test]
fn data_without_an_ack_is_taken() {
    // The sender of Reinhardt 2006 and Treydte 2007 sets ACK only if an acknowledgement is pending.
    let mut pair = Pair::established();
    let seq = pair.sides[A].conn().first_unacked();
    for n in 0..30 {
        let marks = match n {
            0 => flags::TXS,
            29 => flags::TXF,
            _ => 0,
        };
        let header = Header {
            src: PORTS[A],
            dst: PORTS[B],
            len: 1,
            seq: seq.add(n),
            // The receiver must ignore this number.
            ack: Seq(12_345),
            flags: marks,
        };
        let outcome = pair.receive(B, &header, &[n as u8]);
        assert!(outcome.deliver && outcome.drop.is_none(), "{outcome:?}");
        assert_eq!(outcome.acked, 0);
    }
    assert_eq!(pair.sides[B].received, (0..30).collect::<Vec<u8>>());
    let acks: Vec<_> = pair
        .sent_by(B, |_| true)
        .iter()
        .map(|h| seq.distance(h.ack))
        .collect();
    assert_eq!(acks[..3], [1, 11, 21]);
    // The answers to probes show that the peer is alive.
    for n in 30..60 {
        pair.run_for(10 * S);
        let header = Header {
            src: PORTS[A],
            dst: PORTS[B],
            len: 1,
            seq: seq.add(n),
            ack: Seq(0),
            flags: flags::TXS | flags::TXF,
        };
        pair.cut(A);
        assert!(pair.receive(B, &header, b"x").deliver);
    }
    assert_eq!(pair.sides[B].failed, None);
}

#[test]
fn data_beyond_every_window_is_dropped() {
    let mut pair = Pair::established();
    pair.sides[B].device.held = true;
    let seq = pair.sides[A].conn().first_unacked();
    let una = pair.sides[B].conn().first_unacked();
    let header = |n: u16| Header {
        src: PORTS[A],
        dst: PORTS[B],
        len: 1,
        seq: seq.add(n),
        ack: una,
        flags: flags::ACK | if n == 0 { flags::TXS } else { 0 },
    };
    // In this test, the sender gets no acknowledgement that opens a window, but continues anyway.
    for n in 0..40_000 {
        let outcome = pair.receive(B, &header(n), b"x");
        let beyond = n >= 0x7fff;
        assert_eq!(outcome.deliver, !beyond, "{n}");
        if beyond && n < 0x8000 {
            assert_eq!(outcome.drop, Some(DropReason::BeyondWindow), "{n}");
        }
    }
    assert!(pair.sides[B].conn().stats.pkt_rx_drop > 0);
    // B gets its turn, and the stream continues.
    pair.sides[B].device.held = false;
    pair.sides[B].conn().take_turn();
    pair.transmit(B);
    assert!(pair.receive(B, &header(0x7fff), b"x").deliver);
}

#[test]
fn dropped_messages_are_requested_once_there_is_room() {
    let mut pair = Pair::new();
    pair.sides[A].config.burst_length = 100;
    pair.sides[B].config.burst_length = 4;
    let mut pair = pair.establish();
    pair.sides[B].reads = false;
    pair.sides[B].limit = 4 * pair.sides[B].packet_cost();
    for i in 0..60 {
        pair.send(A, &[i; 10]);
    }
    pair.run_for(3 * MS);
    assert!(pair.sides[B].drops.contains(&DropReason::NoRoom));
    pair.sides[B].reads = true;
    let start = pair.now;
    pair.read(B);
    pair.run_until(|p| p.sides[B].received.len() == 600);
    assert!(pair.now - start < 2 * MS, "without the sender's timer");
    pair.settle();
    pair.assert_intact();
}

#[test]
fn the_request_timer_restarts_when_congestion_ends() {
    let mut pair = sleeping(25);
    for nth in 9..20 {
        pair.lose(A, nth);
    }
    pair.send(A, &bytes(2_000, 1));
    pair.run_for(3 * MS);
    pair.sides[B].reads = true;
    let start = pair.now;
    pair.read(B);
    pair.run_until(|p| !probes(p).is_empty());
    assert_eq!(pair.now - start, 200 * US);
    pair.settle();
    pair.assert_intact();
}

#[test]
fn request_timeouts_restart_after_progress() {
    let mut pair = Pair::established();
    pair.lose_matching(B, 5, |h| h.has(flags::RRQ));
    let lose_tail = |pair: &mut Pair| {
        let first = pair.sides[A].conn().first_unacked();
        pair.lose_matching(A, 5, move |h| h.len > 0 && first.distance(h.seq) >= 15);
    };
    lose_tail(&mut pair);
    pair.send(A, &bytes(2_000, 1));
    pair.settle();
    assert!(pair.sides[B].conn().stats.arq_tx >= 5);
    lose_tail(&mut pair);
    let start = pair.now;
    pair.send(A, &bytes(2_000, 2));
    pair.run_until(|p| p.sides[B].received.len() == 4_000);
    assert!(pair.now - start < 2 * MS, "{}", pair.now - start);
    pair.settle();
    pair.assert_intact();
}
