// SPDX-License-Identifier: GPL-2.0

//! Opening a connection, with and without losses.

mod common;

use common::*;
use esp::{flags, DropReason, Failure, Header, Seq, State};

#[test]
fn three_packets_open_a_connection() {
    let mut pair = Pair::new();
    pair.connect();
    assert_eq!(pair.sides[A].state(), State::SynSent);
    pair.settle();
    assert_eq!(pair.sides[A].state(), State::Established);
    assert_eq!(pair.sides[B].state(), State::Established);
    let seen: Vec<_> = pair.log.iter().map(|s| (s.from, s.header.flags)).collect();
    let syn_ack = flags::SYN | flags::ACK;
    assert_eq!(seen, [(A, flags::SYN), (B, syn_ack), (A, flags::ACK)]);
    let isn = [pair.sides[A].isn, pair.sides[B].isn];
    assert_eq!(pair.log[0].header.seq, isn[A]);
    assert_eq!(pair.log[1].header.seq, isn[B]);
    assert_eq!(pair.log[1].header.ack, isn[A].add(1));
    assert_eq!(pair.log[2].header.seq, isn[A].add(1));
    assert_eq!(pair.log[2].header.ack, isn[B].add(1));
}

#[test]
fn any_packet_of_the_handshake_may_be_lost() {
    for (side, nth) in [(A, 0), (B, 0), (A, 1)] {
        let mut pair = Pair::new();
        pair.lose(side, nth);
        pair.connect();
        pair.run_until(|p| p.sides[B].established);
        pair.settle();
        assert_eq!(pair.sides[A].state(), State::Established);
        assert!(pair.now < 6 * S, "one timeout suffices");
        pair.send(A, b"still alive");
        pair.settle();
        pair.assert_intact();
    }
}

#[test]
fn any_packet_of_the_handshake_may_come_twice() {
    for (side, nth) in [(A, 0), (B, 0), (A, 1)] {
        let mut pair = Pair::new();
        pair.fate(side, nth, Fate::Twice);
        pair.connect();
        pair.settle();
        assert_eq!(pair.sides[A].state(), State::Established);
        assert_eq!(pair.sides[B].state(), State::Established);
        assert!(pair.log.len() <= 6, "{pair:?}");
    }
}

#[test]
fn data_carries_the_last_acknowledgement_of_the_handshake() {
    let mut pair = Pair::new();
    pair.lose(A, 1);
    pair.connect();
    pair.run_until(|p| p.sides[A].established);
    pair.send(A, b"hello");
    pair.run_until(|p| p.sides[B].established);
    assert_eq!(pair.sides[B].received, b"hello");
    assert!(pair.now < 5 * S + MS, "without a timeout");
}

#[test]
fn a_silent_host_is_given_up_in_bounded_time() {
    let mut pair = Pair::new();
    pair.cut(B);
    let start = pair.now;
    pair.connect();
    pair.run_until(|p| p.sides[A].closed);
    assert_eq!(pair.sides[A].failed, Some(Failure::TimedOut));
    assert_eq!(pair.sides[A].conn().failure(), Some(Failure::TimedOut));
    let took = pair.now - start;
    assert!((10 * S..15 * S).contains(&took), "{took}");
    assert_eq!(pair.sent_by(A, |_| true).len(), 6);
}

#[test]
fn a_half_open_child_is_given_up() {
    let mut pair = Pair::new();
    pair.connect();
    pair.cut(A);
    pair.run_until(|p| p.sides[B].closed);
    assert_eq!(pair.sides[B].failed, Some(Failure::TimedOut));
    // The first one and four repetitions by the timer; the rest answers SYNs.
    let syn_acks = pair.sent_by(B, |s| s.header.has(flags::SYN));
    assert_eq!(syn_acks.len(), 5, "{pair:?}");
}

#[test]
fn no_listener_refuses() {
    let mut pair = Pair::new();
    pair.sides[B].listens = false;
    pair.connect();
    pair.settle();
    assert_eq!(pair.sides[A].failed, Some(Failure::Refused));
    assert!(pair.sides[A].closed);
    assert_eq!(pair.log.len(), 2, "SYN and RST, nothing more");
}

#[test]
fn a_listener_appearing_later_is_found() {
    let mut pair = Pair::new();
    pair.lose_matching(A, 3, |h| h.has(flags::SYN));
    pair.connect();
    pair.settle();
    assert_eq!(pair.sides[B].state(), State::Established);
}

#[test]
fn syn_sent_believes_only_an_answer_to_its_syn() {
    let mut pair = Pair::new();
    pair.sides[B].listens = false;
    pair.cut(A);
    pair.connect();
    let isn = pair.sides[A].isn;
    let packet = |flags, ack| Header {
        src: PORTS[B],
        dst: PORTS[A],
        len: 0,
        seq: Seq(77),
        ack,
        flags,
    };
    for (header, reason) in [
        (packet(flags::RST | flags::ACK, isn), DropReason::BadAck),
        (packet(flags::RST, isn.add(1)), DropReason::BadState),
        (
            packet(flags::SYN | flags::ACK, isn.add(2)),
            DropReason::BadAck,
        ),
        (packet(flags::SYN, Seq(0)), DropReason::BadState),
        (packet(flags::ACK, isn.add(1)), DropReason::BadState),
        (
            packet(flags::FIN | flags::ACK, isn.add(1)),
            DropReason::BadState,
        ),
        (packet(0xff, isn.add(1)), DropReason::Malformed),
    ] {
        let outcome = pair.receive(A, &header, &[]);
        assert_eq!(outcome.drop, Some(reason), "{header:?}");
        assert_eq!(pair.sides[A].state(), State::SynSent);
    }
    let _ = pair.receive(A, &packet(flags::SYN | flags::ACK, isn.add(1)), &[]);
    assert_eq!(pair.sides[A].state(), State::Established);
}

#[test]
fn another_syn_does_not_disturb_a_child() {
    let mut pair = Pair::new();
    pair.connect();
    pair.lose(B, 0);
    pair.run_until(|p| p.sides[B].conn.is_some());
    let mut other = pair.log[0].header;
    other.seq = other.seq.add(9);
    let outcome = pair.receive(B, &other, &[]);
    assert_eq!(outcome.drop, Some(DropReason::BadState));
    pair.settle();
    assert_eq!(pair.sides[B].state(), State::Established);
}

#[test]
fn a_connection_closed_before_it_is_open_ends_cleanly() {
    let mut pair = Pair::new();
    pair.connect();
    pair.run_until(|p| p.sides[B].conn.is_some());
    pair.close(B);
    assert_eq!(pair.sides[B].state(), State::FinWait1);
    pair.run_until(|p| p.sides[A].eof);
    pair.close(A);
    pair.settle();
    assert_eq!(pair.sides[A].failed, None);
    assert_eq!(pair.sides[B].failed, None);
    assert!(pair.sides[A].closed && pair.sides[B].closed);
}

#[test]
fn closing_an_unanswered_connection_is_the_end_of_it() {
    let mut pair = Pair::new();
    pair.connect();
    pair.close(A);
    assert_eq!(pair.sides[A].state(), State::Closed);
    pair.settle();
    // The SYN|ACK finds no socket; its RST ends the child.
    assert_eq!(pair.sides[B].failed, Some(Failure::Reset));
}
