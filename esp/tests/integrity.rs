// SPDX-License-Identifier: GPL-2.0

//! Tests with stale and forged packets, and of the numbers that an engine accepts.

use esp::{flags, Connection, DropReason, Failure, Header, Outcome, Seq, State};
use esp_testkit::pair::*;

/// The window that both sides advertise.
const WINDOW: u16 = 21;

/// Returns a pair whose sides have advertised version and window.
fn with_options() -> Pair {
    let mut pair = Pair::new();
    for side in &mut pair.sides {
        side.sends_options = true;
    }
    pair.establish()
}

/// Returns the next packet without payload that `from` could send.
fn next_from(pair: &mut Pair, from: usize, flags: u8) -> Header {
    Header {
        src: PORTS[from],
        dst: PORTS[1 - from],
        len: 0,
        seq: pair.sides[from].conn().cursor(),
        ack: pair.sides[1 - from].conn().cursor(),
        flags,
    }
}

/// Processes a packet on a copy of the connection at `at`. Returns the copy and the outcome.
fn tried(pair: &mut Pair, at: usize, header: &Header) -> (Connection, Outcome) {
    let mut conn = pair.sides[at].conn().clone();
    let outcome = conn.on_packet(header, pair.sides[at].room(), pair.now);
    (conn, outcome)
}

/// Tries all sequence numbers for a packet. Returns the number of sequence numbers that `counts`
/// accepts, and the least and the largest distance of these numbers from the packet's own.
fn numbers(header: Header, mut counts: impl FnMut(&Header) -> bool) -> (usize, i32, i32) {
    let found: Vec<i32> = (-0x8000..0x8000)
        .filter(|distance| {
            counts(&Header {
                seq: header.seq.add(*distance as u16),
                ..header
            })
        })
        .collect();
    match found[..] {
        [] => (0, 0, 0),
        [only] => (1, only, only),
        [first, .., last] => (found.len(), first, last),
    }
}

#[test]
fn an_empty_packets_number_is_within_two_windows_of_the_expected_one() {
    let mut pair = with_options();
    pair.cut(A);
    pair.send(A, &bytes(2_000, 1));
    let ack = next_from(&mut pair, B, flags::ACK);
    assert_ne!(ack.ack, pair.sides[A].conn().first_unacked());
    let believed = numbers(ack, |header| {
        let (_, outcome) = tried(&mut pair, A, header);
        assert_eq!(outcome.drop.is_none(), outcome.acked > 0);
        if outcome.acked == 0 {
            assert_eq!(outcome.drop, Some(DropReason::BeyondWindow));
        }
        outcome.acked > 0
    });
    let most = 2 * i32::from(WINDOW);
    assert_eq!(believed, (2 * most as usize + 2, -most - 1, most));
}

#[test]
fn a_stale_acknowledgement_frees_nothing_that_the_peer_lacks() {
    let mut pair = with_options();
    // Four packets of a window arrive.
    pair.lose_matching(A, 17, |header| header.seq.distance(Seq(65_535)) > 0x8000);
    pair.send(A, &bytes(2_100, 1));
    pair.run_for(60 * US);
    // This acknowledgement belongs to an earlier connection with the same ports.
    let current = next_from(&mut pair, B, flags::ACK);
    let stale = Header {
        seq: current.seq.add(5_000),
        ..current
    };
    let _ = pair.receive(A, &stale, &[]);
    pair.settle();
    pair.assert_intact();
    assert_eq!(pair.sides[A].failed, None);
}

#[test]
fn data_needs_an_ack_if_its_sender_has_a_version() {
    for tells in [false, true] {
        let mut pair = if tells {
            with_options()
        } else {
            Pair::established()
        };
        let data = Header {
            len: 5,
            ..next_from(&mut pair, A, flags::TXS | flags::TXF)
        };
        let outcome = pair.receive(B, &data, b"forge");
        assert_eq!(outcome.deliver, !tells);
        if tells {
            assert_eq!(outcome.drop, Some(DropReason::BadState));
        }
    }
}

#[test]
fn a_number_beyond_two_windows_requests_nothing() {
    let mut pair = with_options();
    let data = Header {
        len: 5,
        ..next_from(&mut pair, A, flags::ACK)
    };
    let now = pair.now;
    let requested = numbers(data, |header| {
        let (mut conn, _) = tried(&mut pair, B, header);
        let next = conn.poll_transmit(now, &mut |_| 0);
        next.is_some_and(|packet| packet.header().has(flags::RRQ))
    });
    let most = 2 * i32::from(WINDOW);
    assert_eq!(requested, (most as usize, 1, most), "no other shows a hole");
}

#[test]
fn a_reset_ends_a_connection_with_the_exact_number_only() {
    for bits in [flags::RST, flags::RST | flags::ACK] {
        for busy in [false, true] {
            let mut pair = with_options();
            pair.cut(A);
            if busy {
                pair.send(A, &bytes(2_000, 1));
            }
            let reset = next_from(&mut pair, B, bits);
            let now = pair.now;
            let mut challenged = 0;
            let ended = numbers(reset, |header| {
                let (mut conn, outcome) = tried(&mut pair, A, header);
                if outcome.failed.is_none() {
                    let answer = conn.poll_transmit(now, &mut |_| 0);
                    challenged += usize::from(answer.is_some_and(|packet| {
                        *packet.header() == next_from(&mut pair, A, flags::ACK)
                    }));
                }
                outcome.failed == Some(Failure::Reset)
            });
            assert_eq!(ended, (1, 0, 0));
            assert_eq!(challenged, 4 * usize::from(WINDOW) + 1);
        }
    }
}

#[test]
fn a_reset_counts_only_if_a_packet_may_have_caused_it() {
    for (bits, packets, names) in [
        (flags::RST, 0, 2),
        (flags::RST, 5, 4),
        (flags::RST | flags::ACK, 0, 1),
        (flags::RST | flags::ACK, 5, 3),
    ] {
        let mut pair = with_options();
        pair.cut(A);
        if packets > 0 {
            // The announcement and one more packet are sent.
            pair.send(A, &bytes(100 * packets, 1));
        }
        let reset = next_from(&mut pair, B, bits);
        let ending = (0..=u16::MAX).filter(|ack| {
            let ack = Seq(*ack);
            let (_, outcome) = tried(&mut pair, A, &Header { ack, ..reset });
            outcome.failed.is_some()
        });
        assert_eq!(ending.count(), names);
    }
}

#[test]
fn forged_resets_cause_two_challenges_a_second() {
    let mut pair = with_options();
    let forged = next_from(&mut pair, A, flags::RST);
    let start = pair.now;
    for i in 0..10_000 {
        let at = start + i * 400 * US;
        pair.run_for(at - pair.now);
        let near = Header {
            seq: forged.seq.add(1 + (i % 40) as u16),
            ..forged
        };
        let _ = pair.receive(B, &near, &[]);
    }
    assert_eq!(pair.sent_by(B, |_| true).len(), 8, "in four seconds");
    assert!(pair.sent_by(A, |_| true).is_empty(), "nothing answers them");
    assert_eq!(pair.sides[A].state(), State::Established);
}

#[test]
fn a_host_that_forgot_the_connection_ends_it_whatever_was_in_flight() {
    let mut pair = with_options();
    pair.send(B, b"on its way");
    pair.send(A, b"acknowledges none of that");
    pair.sides[B].conn = None;
    pair.sides[B].listens = false;
    let start = pair.now;
    pair.run_until(|p| p.sides[A].closed);
    assert_eq!(pair.sides[A].failed, Some(Failure::Reset));
    assert!(pair.now - start < 100 * US, "two round trips");
}

#[test]
fn an_abort_behind_lost_data_ends_the_connection_in_a_round_trip() {
    let mut pair = with_options();
    pair.lose_matching(B, 2, |header| header.len > 0);
    pair.send(B, &bytes(200, 1));
    pair.abort(B);
    pair.sides[B].conn = None;
    pair.sides[B].listens = false;
    let start = pair.now;
    pair.run_until(|p| p.sides[A].closed);
    assert_eq!(pair.sides[A].failed, Some(Failure::Reset));
    assert!(pair.now - start < 100 * US);
}

#[test]
fn a_reset_by_a_restarted_host_without_the_data_is_no_clean_end() {
    let mut pair = with_options();
    pair.close(B);
    pair.settle();
    pair.lose_matching(A, 2, |_| true);
    pair.send(A, b"all of it");
    pair.close(A);
    // The SYN of a restarted B arrives before any retransmission, and B answers the challenge ACK.
    pair.sides[B].conn = None;
    pair.sides[B].listens = false;
    pair.sides[B].isn = Seq(7);
    pair.connect_from(B);
    pair.run_until(|p| p.sides[A].closed);
    assert_eq!(pair.sides[A].failed, Some(Failure::Reset));
}
