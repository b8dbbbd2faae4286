// SPDX-License-Identifier: GPL-2.0

//! Tests of streams whose packets become too large for the device.

use std::cell::Cell;
use std::rc::Rc;

use esp::{flags, Failure, Header, State};
use esp_testkit::pair::*;

/// Makes the wire lose all packets of both sides that are larger than `most`.
fn narrow(pair: &mut Pair, most: u16) {
    pair.rule(move |_, _, header| {
        if header.payload() > most {
            Fate::Lose
        } else {
            Fate::Pass
        }
    });
}

/// Returns a pair whose sides accept skips.
fn with_options() -> Pair {
    let mut pair = Pair::new();
    for side in &mut pair.sides {
        side.sends_options = true;
    }
    pair.establish()
}

/// Returns the data packets that A sent from the time `at` on.
fn since(pair: &Pair, at: u64) -> Vec<Header> {
    pair.sent_by(A, |sent| sent.at >= at && sent.is_data())
}

#[test]
fn unsent_packets_are_split_without_a_pause() {
    let mut pair = with_options();
    pair.sides[A].mss = 30;
    pair.send(A, &bytes(90, 1));
    // The announcement and one more packet were sent, both small. The larger write that follows is
    // appended to a third packet, which waits.
    pair.sides[A].mss = 100;
    pair.send(A, &bytes(900, 2));
    let then = pair.now;
    pair.shrink(A, 50);
    assert!(!pair.sides[A].conn().is_paused());
    pair.settle();
    assert!(pair.now - then < 100 * MS);
    assert!(since(&pair, then).iter().all(|header| header.len <= 50));
    pair.assert_intact();
}

#[test]
fn packets_in_flight_that_arrive_need_no_skip() {
    let mut pair = with_options();
    pair.send(A, &bytes(5000, 1));
    let then = pair.now;
    pair.shrink(A, 60);
    assert!(pair.sides[A].conn().is_paused());
    pair.settle();
    assert!(!pair.sides[A].conn().is_paused());
    assert!(since(&pair, then + 1).iter().all(|header| header.len <= 60));
    pair.assert_intact();
}

#[test]
fn packets_that_no_longer_fit_are_split_and_retransmitted() {
    let mut pair = with_options();
    // In this test, the receiver's MTU shrinks before the sender's MTU, so all packets are lost.
    narrow(&mut pair, 60);
    pair.send(A, &bytes(5000, 1));
    pair.run_for(50 * MS);
    let then = pair.now;
    pair.shrink(A, 60);
    pair.settle();
    let sent = since(&pair, then);
    assert!(sent.iter().all(|header| header.len <= 60));
    assert!(sent[0].has(flags::TXS), "nobody has heard of the message");
    pair.assert_intact();
}

#[test]
fn received_packets_are_not_retransmitted() {
    let mut pair = with_options();
    let silent = Rc::new(Cell::new(true));
    let until = silent.clone();
    pair.rule(move |from, _, _| {
        if from == B && until.get() {
            Fate::Lose
        } else {
            Fate::Pass
        }
    });
    pair.send(A, &bytes(2000, 3));
    pair.run_for(30 * MS);
    let had = pair.sides[B].received.len();
    assert!(had > 0 && pair.sides[A].conn().unacked() == 20);
    silent.set(false);
    narrow(&mut pair, 60);
    let then = pair.now;
    pair.shrink(A, 60);
    pair.settle();
    let again: usize = since(&pair, then + 1)
        .iter()
        .map(|h| usize::from(h.len))
        .sum();
    assert_eq!(again, 2000 - had);
    pair.assert_intact();
}

/// The device shrinks while the last packet and the FIN are on their way, and both arrive.
#[test]
fn a_fin_that_arrived_is_not_sent_again() {
    for sends_options in [true, false] {
        let mut pair = Pair::new();
        for side in &mut pair.sides {
            side.sends_options = sends_options;
        }
        let mut pair = pair.establish();
        pair.send(A, &bytes(90, 1));
        pair.close(A);
        pair.shrink(A, 60);
        pair.run_for(10_000 * MS);
        assert!(pair.sides[B].eof);
        let fins = pair.sent_by(A, |sent| sent.header.has(flags::FIN));
        assert!(fins.iter().all(|fin| fin.seq == fins[0].seq), "{fins:?}");
        assert!(fins.len() <= 3, "{fins:?}");
        pair.close(B);
        pair.settle();
        pair.assert_intact();
        assert!(pair.sides.iter().all(|side| side.state() == State::Closed));
    }
}

#[test]
fn the_fin_follows_the_split_packets() {
    let mut pair = with_options();
    narrow(&mut pair, 60);
    pair.send(A, &bytes(180, 1));
    pair.close(A);
    pair.run_for(50 * MS);
    pair.shrink(A, 60);
    pair.run_until(|p| p.sides[B].eof);
    pair.close(B);
    pair.settle();
    pair.assert_intact();
    assert!(pair.sides.iter().all(|side| side.state() == State::Closed));
    assert!(pair.sides.iter().all(|side| side.failed.is_none()));
}

#[test]
fn data_in_the_other_direction_continues() {
    let mut pair = with_options();
    narrow(&mut pair, 60);
    pair.sides[B].mss = 60;
    pair.send(A, &bytes(1000, 1));
    pair.run_for(20 * MS);
    pair.shrink(A, 60);
    pair.send(B, &bytes(3000, 2));
    pair.run_for(100 * MS);
    assert_eq!(pair.sides[A].received.len(), 3000);
    pair.settle();
    pair.assert_intact();
}

#[test]
fn a_dead_peer_is_noticed_during_a_pause() {
    let mut pair = with_options();
    pair.send(A, &bytes(1000, 1));
    pair.cut(A);
    pair.cut(B);
    pair.shrink(A, 60);
    pair.run_until(|p| p.sides[A].failed.is_some());
}

#[test]
fn a_device_that_shrinks_at_any_time_loses_no_byte() {
    for round in 0..300u64 {
        let mut pair = with_options();
        // The wire loses some packets, in both directions.
        let mut state = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let first = random() % 400;
        let loss = 3 + random() % 20;
        pair.rule(move |_, _, _| {
            if random() % loss == 0 {
                Fate::Lose
            } else {
                Fate::Pass
            }
        });
        pair.send(A, &bytes(6000, round));
        pair.send(B, &bytes(1500, !round));
        pair.run_for(first * US);
        // In every second round, the receiver's MTU shrinks first, so the receiver drops large
        // packets.
        if round % 2 == 0 {
            narrow(&mut pair, 64);
            pair.run_for(round * 500 * US);
        }
        for mss in [80, 64, 37] {
            pair.shrink(A, mss);
            pair.shrink(B, mss);
            pair.send(A, &bytes(300, round + mss as u64));
            pair.run_for((round % 7) * 150 * MS);
        }
        pair.close(A);
        pair.close(B);
        pair.settle();
        pair.assert_intact();
        assert!(
            pair.sides.iter().all(|s| s.eof && s.failed.is_none()),
            "round {round}: {pair:?}"
        );
    }
}

#[test]
fn late_frames_from_before_the_split_alter_no_byte() {
    for delay in [100 * US, 50 * MS, 600 * MS, 3 * S] {
        for first in 0..25 {
            let mut pair = with_options();
            let mut packets = 0;
            pair.rule(move |from, _, header| {
                if from != A || header.payload() <= 60 {
                    return Fate::Pass;
                }
                packets += 1;
                if packets > first {
                    Fate::Late(delay)
                } else {
                    Fate::Pass
                }
            });
            pair.send(A, &bytes(20_000, 1));
            pair.run_for(100 * US);
            pair.shrink(A, 60);
            pair.run_for(5 * S);
            pair.settle();
            pair.assert_intact();
            assert_eq!(pair.sides[A].failed, None);
        }
    }
}

#[test]
fn a_long_path_alters_no_byte() {
    // In this test, frames that were sent before the split and frames that were sent after it are
    // in flight together. So are acknowledgements of earlier frames.
    for latency in [200 * MS, 300 * MS, 600 * MS, S] {
        for part in 0..24 {
            let mut pair = with_options();
            pair.latency = latency;
            pair.send(A, &bytes(20_000, 1));
            pair.run_for(latency / 4 * part);
            pair.shrink(A, 60);
            pair.run_for(60 * S);
            pair.assert_intact();
            assert_eq!(pair.sides[A].failed, None);
        }
    }
}

#[test]
fn a_number_is_used_for_one_packet_only() {
    let mut pair = with_options();
    narrow(&mut pair, 60);
    pair.send(A, &bytes(5000, 1));
    pair.run_for(50 * MS);
    let then = pair.now;
    let before = pair.data_sent(A);
    pair.shrink(A, 60);
    pair.settle();
    let used: Vec<_> = before.iter().map(|header| header.seq).collect();
    let again = since(&pair, then + 1);
    assert!(!again.is_empty());
    assert!(again.iter().all(|header| !used.contains(&header.seq)));
    assert!(again[0].has(flags::TXS));
    pair.assert_intact();
    assert!(pair.now - then < 100 * MS, "without a pause");
}

#[test]
fn only_the_answer_to_a_skip_acknowledges() {
    let mut pair = with_options();
    narrow(&mut pair, 60);
    pair.send(A, &bytes(5000, 1));
    pair.run_for(50 * MS);
    // The first answers to the skip are lost. B's other packets acknowledge everything that A sent,
    // because B has skipped these numbers.
    pair.lose_matching(B, 3, Header::is_skipped);
    pair.shrink(A, 60);
    pair.send(B, &bytes(40, 2));
    pair.run_for(2 * MS);
    assert!(pair.sides[A].conn().is_paused());
    assert!(pair.sides[A].conn().unacked() > 0);
    pair.settle();
    pair.assert_intact();
}

#[test]
fn both_ends_may_skip_at_once() {
    let mut pair = with_options();
    narrow(&mut pair, 60);
    pair.send(A, &bytes(3000, 1));
    pair.send(B, &bytes(3000, 2));
    pair.run_for(10 * MS);
    pair.shrink(A, 60);
    pair.shrink(B, 60);
    pair.settle();
    pair.assert_intact();
}

#[test]
fn a_connection_ends_rather_than_reuse_numbers_if_the_peer_accepts_no_skips() {
    // If the packets in flight still arrive, the connection continues.
    let mut pair = Pair::established();
    pair.send(A, &bytes(5000, 1));
    pair.shrink(A, 60);
    pair.settle();
    pair.assert_intact();
    // If the packets in flight are lost, the connection ends.
    let mut pair = Pair::established();
    narrow(&mut pair, 60);
    pair.send(A, &bytes(5000, 1));
    pair.run_for(MS);
    let then = pair.now;
    pair.shrink(A, 60);
    pair.run_until(|p| p.sides[A].closed && p.sides[B].closed);
    assert_eq!(pair.sides[A].failed, Some(Failure::TooLarge));
    assert_eq!(pair.sides[B].failed, Some(Failure::Reset));
    assert!(pair.now - then < S);
}

#[test]
fn skipped_numbers_are_not_acknowledged_by_data_of_a_congested_receiver() {
    for taken in 4..12 {
        let mut pair = with_options();
        pair.sides[B].reads = false;
        pair.sides[B].limit = 1_200;
        // The receiver gets the first `taken` large packets, and soon has no room. The later ones
        // are lost. `passed` counts the large packets that were sent.
        let mut passed = 0;
        pair.rule(move |from, _, header| {
            passed += usize::from(from == A && header.payload() > 60);
            if from == A && header.payload() > 60 && passed > taken {
                Fate::Lose
            } else {
                Fate::Pass
            }
        });
        pair.send(A, &bytes(3_000, 1));
        pair.run_for(MS);
        pair.shrink(A, 60);
        // The receiver's answers to the skip are lost while the receiver sends data.
        pair.lose_matching(B, 3, Header::is_skipped);
        pair.run_until(|pair| pair.sent_by(A, |sent| sent.header.is_skip()).len() > 1);
        pair.send(B, b"from the congested side");
        pair.run_for(5 * MS);
        pair.sides[B].reads = true;
        pair.read(B);
        pair.settle();
        pair.assert_intact();
    }
}
