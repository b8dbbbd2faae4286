// SPDX-License-Identifier: GPL-2.0

//! Tests of the sending rules S1 to S8.

use esp::{flags, Config, Header, State};
use esp_testkit::pair::*;

const TX: u8 = flags::TXS | flags::TXF;

/// Returns the TXS and TXF flags of A's data packets, in order.
fn txs_txf(pair: &Pair) -> Vec<u8> {
    pair.data_sent(A).iter().map(|h| h.flags & TX).collect()
}

#[test]
fn a_message_of_one_packet_carries_both_marks() {
    let mut pair = Pair::established();
    pair.send(A, b"one");
    pair.settle();
    assert_eq!(txs_txf(&pair), [TX]);
    pair.assert_intact();
}

#[test]
fn a_message_starts_with_txs_and_ends_with_txf() {
    let mut pair = Pair::established();
    pair.send(A, &bytes(450, 1));
    pair.settle();
    assert_eq!(txs_txf(&pair), [flags::TXS, 0, 0, 0, flags::TXF]);
    pair.send(A, &bytes(200, 2));
    pair.settle();
    assert_eq!(txs_txf(&pair)[5..], [flags::TXS, flags::TXF]);
    pair.assert_intact();
}

#[test]
fn a_message_joins_one_that_waits() {
    // S4: the tail of the first message waits for the window. The packets of the second message
    // follow without a TXS.
    let mut pair = Pair::established();
    pair.send(A, &bytes(400, 1));
    assert_eq!(pair.data_sent(A).len(), 2, "announcement and one more");
    pair.send(A, &bytes(200, 2));
    pair.settle();
    assert_eq!(txs_txf(&pair), [flags::TXS, 0, 0, 0, 0, flags::TXF]);
    pair.assert_intact();
}

#[test]
fn a_small_write_fills_the_last_unsent_packet() {
    // This tests rule S5 of `docs/protocol.md`.
    let mut pair = Pair::established();
    pair.send(A, &bytes(250, 1));
    assert!(pair.sides[A].conn().last_is_unsent());
    pair.send(A, &bytes(50, 2));
    pair.send(A, &bytes(10, 3));
    pair.settle();
    let lengths: Vec<_> = pair.data_sent(A).iter().map(|h| h.len).collect();
    assert_eq!(lengths, [100, 100, 100, 10]);
    assert!(!pair.sides[A].conn().last_is_unsent());
    pair.assert_intact();
}

#[test]
fn nothing_joins_a_record_that_has_ended() {
    let mut pair = Pair::established();
    pair.send(A, &bytes(250, 1));
    pair.sides[A].conn().seal_last();
    assert!(pair.sides[A].conn().last_is_unsent());
    assert!(!pair.sides[A].conn().last_takes_more());
    pair.send(A, &bytes(20, 2));
    assert!(
        pair.sides[A].conn().last_takes_more(),
        "the next packet is open"
    );
    pair.send(A, &bytes(10, 3));
    pair.settle();
    let lengths: Vec<_> = pair.data_sent(A).iter().map(|h| h.len).collect();
    assert_eq!(lengths, [100, 100, 50, 30]);
    pair.assert_intact();
}

#[test]
fn nothing_is_delayed_for_a_small_write() {
    let mut pair = Pair::established();
    for _ in 0..5 {
        pair.send(A, b"x");
    }
    assert_eq!(txs_txf(&pair), [TX; 5], "each left at once");
    pair.settle();
    pair.assert_intact();
}

#[test]
fn the_last_packet_sent_has_txf_even_if_the_call_has_more() {
    // S6: a call that could queue only part of its message releases the last packet. The rest is
    // then a separate transmission.
    let mut pair = Pair::established();
    pair.send(A, &bytes(200, 1));
    pair.settle();
    pair.send(A, &bytes(100, 2));
    pair.settle();
    assert_eq!(txs_txf(&pair), [flags::TXS, flags::TXF, TX]);
}

#[test]
fn a_held_packet_stays_until_it_is_not_the_last_one() {
    let mut pair = Pair::established();
    let conn = pair.sides[A].conn();
    conn.hold_last(true);
    conn.enqueue(1);
    assert_eq!(conn.poll_transmit(0, &mut |_| 0), None);
    conn.enqueue(1);
    let flags = |t: Option<esp::Transmit>| match t {
        Some(esp::Transmit::Data { header: h, .. }) => h.flags & TX,
        other => panic!("{other:?}"),
    };
    assert_eq!(conn.unsent(), 2);
    assert_eq!(flags(conn.poll_transmit(0, &mut |_| 0)), flags::TXS);
    assert_eq!(conn.poll_transmit(0, &mut |_| 0), None);
    assert_eq!(conn.unsent(), 1);
    conn.hold_last(false);
    assert_eq!(flags(conn.poll_transmit(0, &mut |_| 0)), flags::TXF);
    assert_eq!(conn.unsent(), 0);
}

#[test]
fn the_end_releases_a_held_packet() {
    let mut pair = Pair::established();
    let conn = pair.sides[A].conn();
    conn.hold_last(true);
    conn.enqueue(1);
    conn.close_send();
    let left = conn.poll_transmit(0, &mut |_| 0);
    assert!(matches!(left, Some(esp::Transmit::Data { header: h, .. }) if h.flags & TX == TX));
    let left = conn.poll_transmit(0, &mut |_| 0);
    assert!(matches!(left, Some(esp::Transmit::Control { header: h, .. }) if h.has(flags::FIN)));
}

#[test]
fn the_announcement_opens_as_much_as_configured() {
    // S2: before the announcement is acknowledged, only `initial` packets may follow it.
    for initial in [0, 1, 4] {
        let config = Config {
            initial_ack_burst_length: initial,
            ..Config::default()
        };
        let mut pair = Pair::with_config(config).establish();
        pair.send(A, &bytes(3_000, 1));
        assert_eq!(pair.data_sent(A).len(), usize::from(initial) + 1);
        pair.settle();
        pair.assert_intact();
    }
}

#[test]
fn the_window_is_a_burst_once_the_announcement_is_acknowledged() {
    let mut pair = Pair::established();
    pair.send(A, &bytes(10_000, 1));
    // Only the announcement is acknowledged.
    let first = pair.data_sent(A)[0].seq;
    pair.lose_matching(B, usize::MAX, move |h| h.ack != first.add(1));
    pair.run_for(300 * US);
    let sent = pair.data_sent(A);
    let last = sent.iter().map(|h| first.distance(h.seq)).max();
    assert_eq!(last, Some(21), "una is 1, so 21 and no further: {pair:?}");
}

#[test]
fn at_any_time_less_than_a_burst_is_unacknowledged() {
    let config = Config {
        burst_length: 8,
        initial_ack_burst_length: 8,
        packets_to_ack: 4,
        ..Config::default()
    };
    let mut pair = Pair::with_config(config).establish();
    // Every message announces a transmission, but all messages together stay within the window.
    for i in 0..200 {
        pair.send(A, &[i; 3]);
    }
    pair.send(A, &bytes(5_000, 1));
    assert!(pair.data_sent(A).len() <= 8);
    while pair.sides[A].sent.len() != pair.sides[B].received.len() {
        assert!(pair.step());
        let conn = pair.sides[A].conn();
        assert!(conn.first_unacked().distance(conn.cursor()) <= 8);
    }
    pair.settle();
    pair.assert_intact();
    assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
}

#[test]
fn a_small_message_costs_two_packets_one_way() {
    let mut pair = Pair::established();
    pair.send(A, b"message");
    pair.settle();
    assert_eq!(pair.log.len(), 2, "the message and its acknowledgement");
}

#[test]
fn a_dialogue_needs_no_acknowledgements_of_its_own() {
    let mut pair = Pair::established();
    for round in 0..100u8 {
        pair.send(A, &[round; 10]);
        let want = (usize::from(round) + 1) * 10;
        pair.run_until(|p| p.sides[B].received.len() == want);
        pair.send(B, &[!round; 10]);
        // The side that answered waits for the next message.
        pair.sleep(B);
        pair.run_until(|p| p.sides[A].received.len() == want);
    }
    pair.assert_intact();
    assert_eq!(pair.log.len(), 200, "{pair:?}");
    assert_eq!(pair.log.iter().filter(|s| s.is_pure_ack()).count(), 0);
    // The 200 messages acknowledge each other. Only the last one needs an empty acknowledgement.
    pair.settle();
    assert_eq!(pair.log.len(), 201);
}

#[test]
fn a_sleeping_reader_acknowledges_at_once() {
    let mut pair = Pair::established();
    pair.send(A, b"x");
    pair.run_until(|p| p.sides[B].received.len() == 1);
    let before = pair.log.len();
    pair.sleep(B);
    assert_eq!(pair.log.len(), before + 1);
    assert!(pair.log[before].is_pure_ack());
}

#[test]
fn a_lost_single_message_is_retransmitted_by_the_timer() {
    let mut pair = Pair::established();
    pair.lose(A, 0);
    pair.send(A, b"once more");
    pair.settle();
    pair.assert_intact();
    assert_eq!(txs_txf(&pair), [TX, TX], "with the marks it had");
    assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 1);
    let waited = pair.log[1].at - pair.log[0].at;
    assert!((5 * MS..=10 * MS).contains(&waited), "{waited}");
}

#[test]
fn timeouts_double_up_to_a_bound() {
    let mut pair = Pair::established();
    pair.lose_matching(A, 12, Header::takes_number);
    pair.send(A, b"x");
    pair.settle();
    pair.assert_intact();
    let sent: Vec<_> = pair.log.iter().filter(|s| s.is_data()).collect();
    assert_eq!(sent.len(), 13);
    for pair in sent.windows(3) {
        let (first, second) = (pair[1].at - pair[0].at, pair[2].at - pair[1].at);
        assert!(second == (2 * first).min(2 * S), "{first} {second}");
    }
}

#[test]
fn a_row_of_lost_messages_costs_one_timeout() {
    let mut pair = Pair::established();
    let start = pair.now;
    pair.lose_matching(A, 8, |_| true);
    for i in 0..8 {
        pair.send(A, &[i; 20]);
    }
    pair.run_until(|p| p.sides[B].received.len() == 160);
    pair.assert_intact();
    let took = pair.now - start;
    assert!(took < 5 * MS + 8 * 2 * MS, "{took}");
    pair.settle();
    assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 8);
}

#[test]
fn a_lost_announcement_is_retransmitted() {
    for initial in [0, 1] {
        let config = Config {
            initial_ack_burst_length: initial,
            ..Config::default()
        };
        let mut pair = Pair::with_config(config).establish();
        pair.lose(A, 0);
        pair.send(A, &bytes(2_000, 1));
        pair.settle();
        pair.assert_intact();
    }
}

#[test]
fn a_lost_acknowledgement_of_the_announcement_costs_one_timeout() {
    let mut pair = Pair::established();
    let start = pair.now;
    pair.lose(B, 0);
    pair.send(A, &bytes(2_000, 1));
    pair.run_until(|p| p.sides[B].received.len() == 2_000);
    assert!(pair.now - start < 12 * MS);
    pair.assert_intact();
}

#[test]
fn a_lost_final_acknowledgement_is_repeated_for_the_duplicate() {
    let mut pair = Pair::established();
    pair.lose(B, 0);
    pair.send(A, b"x");
    pair.settle();
    pair.assert_intact();
    assert_eq!(pair.sides[A].conn().unacked(), 0);
    assert_eq!(pair.data_sent(A).len(), 2);
    assert_eq!(pair.sides[B].received, b"x");
}

#[test]
fn a_request_retransmits_from_the_missing_packet_on() {
    // This tests rule S8 of `docs/protocol.md`.
    let mut pair = Pair::established();
    pair.lose(A, 5);
    pair.send(A, &bytes(3_000, 1));
    pair.settle();
    pair.assert_intact();
    let requests = pair.sent_by(B, |s| s.header.has(flags::RRQ));
    assert_eq!(requests.len(), 1, "{pair:?}");
    let first = pair.data_sent(A)[0].seq;
    assert_eq!(requests[0].ack, first.add(5));
    assert!(requests[0].has(flags::ACK));
    assert_eq!(pair.sides[B].conn().stats.arq_tx, 1);
    assert_eq!(pair.sides[B].conn().stats.seq_lost, 1);
    // Retransmissions have the flags of the first transmission.
    for header in pair.data_sent(A) {
        let at = first.distance(header.seq);
        let marks = match at {
            0 => flags::TXS,
            29 => flags::TXF,
            _ => 0,
        };
        assert_eq!(header.flags & TX, marks, "packet {at}");
    }
}

#[test]
fn a_duplicated_request_is_followed_once() {
    let count = |twice: bool| {
        let mut pair = Pair::established();
        pair.latency = 100 * US;
        pair.lose(A, 5);
        if twice {
            pair.rule(|from, _, h| {
                if from == B && h.has(flags::RRQ) {
                    Fate::Twice
                } else {
                    Fate::Pass
                }
            });
        }
        pair.send(A, &bytes(3_000, 1));
        pair.settle();
        pair.assert_intact();
        pair.data_sent(A).len()
    };
    assert_eq!(count(true), count(false));
}

#[test]
fn a_request_that_crosses_its_packet_is_ignored() {
    // In this test, a busy sender processes two packets at once: an acknowledgement of everything
    // it sent, and the request that the receiver made when nothing more arrived. The
    // acknowledgement makes the sender send new packets, and the request asks for exactly these.
    let mut pair = Pair::established();
    pair.latency = 100 * US;
    let mut answers = 0;
    pair.rule(move |from, _, _| {
        answers += usize::from(from == B);
        if answers > 1 {
            Fate::Lose
        } else {
            Fate::Pass
        }
    });
    pair.send(A, &bytes(4_000, 1));
    pair.run_until(|p| p.data_sent(A).len() > 20);
    let mut header = pair.sent_by(B, |s| s.header.has(flags::ACK))[0];
    header.ack = pair.sides[A].conn().cursor();
    header.flags = flags::ACK;
    let before = pair.data_sent(A).len();
    let _ = pair.receive(A, &header, &[]);
    pair.transmit(A);
    let released = pair.data_sent(A).len();
    assert!(released > before, "the acknowledgement opened no window");
    header.flags |= flags::RRQ;
    let _ = pair.receive(A, &header, &[]);
    pair.transmit(A);
    assert_eq!(pair.data_sent(A).len(), released);
}

#[test]
fn the_cursor_is_the_next_packet_sent() {
    let mut pair = Pair::established();
    let first = pair.sides[A].conn().cursor();
    pair.send(A, &bytes(500, 1));
    let conn = pair.sides[A].conn();
    assert_eq!(conn.cursor(), first.add(2));
    assert_eq!(conn.first_unacked(), first);
    assert_eq!(conn.unacked(), 5);
    pair.settle();
    let conn = pair.sides[A].conn();
    assert_eq!((conn.cursor(), conn.unacked()), (first.add(5), 0));
    assert_eq!(conn.first_unacked(), first.add(5));
}

#[test]
fn the_sequence_numbers_bound_the_write_queue() {
    let mut pair = Pair::established();
    pair.cut(A);
    let conn = pair.sides[A].conn();
    let mut n = 0u32;
    while conn.can_enqueue() {
        conn.enqueue(1);
        n += 1;
    }
    assert!((32_000..1 << 15).contains(&n), "{n}");
    assert_eq!(u32::from(conn.unacked()), n);
    conn.enqueue(1);
    assert_eq!(u32::from(conn.unacked()), n, "no more are taken");
}

#[test]
fn nothing_can_be_queued_behind_the_end() {
    let mut pair = Pair::established();
    assert!(pair.sides[A].conn().can_enqueue());
    pair.close(A);
    assert!(!pair.sides[A].conn().can_enqueue());
    assert_eq!(pair.sides[A].state(), State::FinWait1);
}

#[test]
fn the_round_trip_is_learnt() {
    // With a latency of 30 ms in each direction, no timeout expires too early.
    let mut pair = Pair::new();
    pair.latency = 30 * MS;
    let mut pair = pair.establish();
    for _ in 0..20 {
        pair.send(A, b"ping");
        pair.settle();
        pair.send(B, &bytes(2_000, 1));
        pair.settle();
    }
    pair.assert_intact();
    assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
    assert_eq!(pair.sides[B].conn().stats.pkt_rtx, 0);
    assert_eq!(pair.sides[A].conn().stats.arq_tx, 0);
}

#[test]
fn a_lost_final_acknowledgement_of_a_long_message_is_noticed_soon() {
    let mut pair = Pair::established();
    let first = pair.sides[A].conn().first_unacked();
    pair.lose_matching(B, 1, move |h| h.ack == first.add(15));
    let start = pair.now;
    pair.send(A, &bytes(1_500, 1));
    pair.run_until(|p| p.sides[A].conn.as_ref().is_some_and(|c| c.unacked() == 0));
    assert!(pair.now - start < 15 * MS, "not only by a probe");
    assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 1);
}

#[test]
fn a_lost_request_for_messages_costs_one_timeout() {
    // The later messages arrived before the first one, so the receiver already knows that more
    // messages follow. Therefore it acknowledges the first message as soon as that arrives.
    let mut pair = Pair::established();
    let start = pair.now;
    pair.lose(A, 0);
    pair.lose_matching(B, 1, |h| h.has(flags::RRQ));
    for i in 0..8 {
        pair.send(A, &[i; 20]);
    }
    pair.run_until(|p| p.sides[B].received.len() == 160);
    pair.assert_intact();
    assert!(pair.now - start < 11 * MS, "{}", pair.now - start);
}

/// Returns the time until A's next message, which is lost once, is retransmitted.
fn timeout_of(pair: &mut Pair) -> u64 {
    pair.restart_log();
    pair.lose_matching(A, 1, |h| h.len > 0);
    pair.send(A, b"lost");
    pair.settle();
    pair.assert_intact();
    let sent: Vec<_> = pair.log.iter().filter(|s| s.is_data()).collect();
    assert_eq!(sent.len(), 2);
    sent[1].at - sent[0].at
}

#[test]
fn timeouts_restart_after_progress() {
    let mut pair = Pair::established();
    pair.lose_matching(A, 6, |h| h.len > 0);
    pair.send(A, b"hard to deliver");
    pair.settle();
    assert_eq!(timeout_of(&mut pair), 10 * MS);
}

#[test]
fn retransmissions_measure_no_round_trip() {
    let mut pair = Pair::new();
    pair.latency = 30 * MS;
    let mut pair = pair.establish();
    let first = timeout_of(&mut pair);
    // There is one sample, a round trip of 60 ms. The timeout is this round trip plus four times
    // its variation, which is at first half of the round trip.
    assert!((180 * MS..185 * MS).contains(&first), "{first}");
    for _ in 0..10 {
        assert_eq!(timeout_of(&mut pair), first);
    }
}

#[test]
fn a_round_trip_that_varies_is_no_loss() {
    // In this test, every second round trip takes more than twice as long as the handshake.
    let mut pair = Pair::new();
    pair.latency = 10 * MS;
    let mut pair = pair.establish();
    for i in 0..100 {
        pair.latency = if i % 2 == 0 { 23 * MS } else { 10 * MS };
        pair.send(A, b"ping");
        pair.settle();
    }
    let again = pair.sides[A].conn().stats.pkt_rtx;
    assert_eq!(again, 0, "sent again, though nothing was lost");
}

#[test]
fn the_least_timeout_is_configured() {
    for least in [5_000, 10_000, 50_000, 3_000_000] {
        let mut pair = Pair::with_config(Config {
            retransmission_time_min: least,
            ..Config::default()
        })
        .establish();
        assert_eq!(timeout_of(&mut pair), u64::from(least) * US);
    }
}

#[test]
fn delayed_acknowledgements_measure_no_round_trip() {
    let mut pair = Pair::established();
    for _ in 0..50 {
        pair.send(A, b"x");
        pair.settle();
    }
    // A's request timer follows A's round trip time.
    let start = pair.now;
    let first = pair.sides[B].conn().first_unacked();
    pair.lose_matching(B, 3, move |h| h.len > 0 && first.distance(h.seq) >= 17);
    pair.send(B, &bytes(2_000, 1));
    pair.run_until(|p| p.sides[A].received.len() == 2_000);
    assert!(pair.now - start < MS, "{}", pair.now - start);
}

#[test]
fn a_smaller_window_does_not_stop_packets_in_flight() {
    let mut pair = Pair::established();
    pair.send(A, &bytes(6_000, 1));
    pair.run_for(100 * US);
    let first = pair.sides[A].conn().first_unacked();
    let smaller = Config {
        burst_length: 2,
        packets_to_ack: 1,
        ..Config::default()
    };
    pair.sides[A].conn().set_config(smaller);
    // B requests the first packet, although all packets are in flight.
    let request = Header {
        src: PORTS[B],
        dst: PORTS[A],
        len: 0,
        seq: pair.sides[B].conn().cursor(),
        ack: first,
        flags: flags::ACK | flags::RRQ,
    };
    let _ = pair.receive(A, &request, &[]);
    let cursor = pair.sides[A].conn().cursor();
    assert_eq!(first.distance(cursor), 2);
    let all = Header {
        ack: first.add(10),
        flags: flags::ACK,
        ..request
    };
    let _ = pair.receive(A, &all, &[]);
    assert_eq!(pair.sides[A].conn().first_unacked(), first.add(10));
    assert_eq!(pair.sides[A].conn().cursor(), first.add(12));
    pair.settle();
    pair.assert_intact();
}
