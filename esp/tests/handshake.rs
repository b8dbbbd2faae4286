// SPDX-License-Identifier: GPL-2.0

//! Tests of opening a connection, with and without losses.

use esp::{flags, Config, Connection, DropReason, Failure, Header, Room, Seq, State, Transmit};

use esp_testkit::pair::*;

/// A receive queue with room.
const PLENTY: Room = Room {
    queued: 0,
    limit: 1 << 20,
    arriving: 0,
    packet: 2048,
};

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
fn any_packet_of_the_handshake_may_be_duplicated() {
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
    // B sends the SYN|ACK once and retransmits it four times.
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
        (packet(flags::ACK, isn), DropReason::BadAck),
        (
            packet(flags::ACK | flags::RRQ, isn.add(9)),
            DropReason::BadAck,
        ),
        (packet(flags::RST, isn.add(1)), DropReason::BadState),
        (
            packet(flags::SYN | flags::ACK, isn.add(2)),
            DropReason::BadAck,
        ),
        (packet(flags::ACK, isn.add(1)), DropReason::BadState),
        (
            packet(flags::FIN | flags::ACK, isn.add(1)),
            DropReason::BadState,
        ),
        (packet(0xff, isn.add(1)), DropReason::Malformed),
    ] {
        pair.restart_log();
        let outcome = pair.receive(A, &header, &[]);
        assert_eq!(outcome.drop, Some(reason), "{header:?}");
        assert_eq!(pair.sides[A].state(), State::SynSent);
        // A packet with a different acknowledgement number belongs to a forgotten connection, and
        // is answered with RST.
        let resets = reason == DropReason::BadAck && !header.has(flags::RST);
        let sent = pair.sent_by(A, |_| true);
        assert_eq!(sent.len(), usize::from(resets), "{header:?}: {sent:?}");
        if let Some(reset) = sent.first() {
            assert_eq!((reset.flags, reset.seq), (flags::RST, header.ack));
        }
    }
    let _ = pair.receive(A, &packet(flags::SYN | flags::ACK, isn.add(1)), &[]);
    assert_eq!(pair.sides[A].state(), State::Established);
}

/// Returns a pair whose sides open the same connection simultaneously.
fn crossed() -> Pair {
    let mut pair = Pair::new();
    pair.sides[B].listens = false;
    pair.connect_from(A);
    pair.connect_from(B);
    pair
}

#[test]
fn syns_that_cross_open_one_connection() {
    let mut pair = crossed();
    pair.run_until(|p| {
        p.sides
            .iter()
            .all(|side| side.state() == State::SynReceived)
    });
    pair.run_until(|p| p.sides[A].established && p.sides[B].established);
    pair.settle();
    assert!(pair.now < 5 * S + MS, "without a timeout");
    assert_eq!(pair.log.len(), 4, "a SYN and a SYN|ACK each way: {pair:?}");
    assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
    pair.send(A, &bytes(3_000, 1));
    pair.send(B, &bytes(3_000, 2));
    pair.settle();
    pair.assert_intact();
    for side in [A, B] {
        pair.close(side);
    }
    pair.settle();
    assert!(pair
        .sides
        .iter()
        .all(|side| side.closed && side.failed.is_none()));
}

#[test]
fn any_packets_of_a_crossed_handshake_may_be_lost_or_duplicated() {
    // Each of the first three packets of A and the first two of B is delivered, lost or duplicated.
    for fates in 0..3_usize.pow(5) {
        let mut pair = crossed_with_fates(fates);
        pair.run_until(|p| p.sides[A].established && p.sides[B].established);
        pair.send(A, b"there");
        pair.send(B, b"and back");
        pair.settle();
        pair.assert_intact();
    }
}

fn crossed_with_fates(mut fates: usize) -> Pair {
    let mut pair = Pair::new();
    pair.sides[B].listens = false;
    for nth in 0..5 {
        let fate = [Fate::Pass, Fate::Lose, Fate::Twice][fates % 3];
        pair.fate(nth % 2, nth / 2, fate);
        fates /= 3;
    }
    pair.connect_from(A);
    pair.connect_from(B);
    pair
}

#[test]
fn a_crossed_handshake_with_a_host_that_is_gone_ends() {
    let mut pair = crossed();
    let start = pair.now;
    pair.cut(B);
    pair.run_until(|p| p.sides[A].closed);
    assert_eq!(pair.sides[A].failed, Some(Failure::TimedOut));
    assert!(pair.now - start < 15 * S);
}

#[test]
fn a_crossed_handshake_that_is_reset_was_refused() {
    let mut pair = crossed();
    pair.cut(A);
    pair.lose(B, 0);
    pair.run_until(|p| p.sides[A].state() == State::SynReceived);
    let mut pair = pair.mended();
    pair.sides[B].conn = None;
    pair.run_until(|p| p.sides[A].closed);
    assert_eq!(pair.sides[A].failed, Some(Failure::Refused));
}

#[test]
fn a_forged_syn_does_not_keep_a_connection_from_opening() {
    for late in [false, true] {
        let mut pair = Pair::new();
        pair.connect();
        let forged = Header {
            src: PORTS[B],
            dst: PORTS[A],
            len: 0,
            seq: Seq(77),
            ack: Seq(0),
            flags: flags::SYN,
        };
        if late {
            pair.run_until(|p| p.sides[B].conn.is_some());
        }
        let _ = pair.receive(A, &forged, &[]);
        pair.run_until(|p| p.sides[A].established && p.sides[B].established);
        pair.send(A, &bytes(2_000, 1));
        pair.send(B, &bytes(2_000, 2));
        pair.settle();
        pair.assert_intact();
        assert!(pair.now < 7 * S, "one timeout at most");
    }
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
fn closing_an_unanswered_connection_ends_it() {
    let mut pair = Pair::new();
    pair.connect();
    pair.close(A);
    assert_eq!(pair.sides[A].state(), State::Closed);
    pair.settle();
    // The SYN|ACK finds no socket. The RST that answers it ends the child.
    assert_eq!(pair.sides[B].failed, Some(Failure::Reset));
}

/// Restarts the host of side A, whose program connects from the same port again. Returns the pair.
fn restarted(mut pair: Pair) -> Pair {
    pair.sides[A].isn = pair.sides[A].isn.add(20_000);
    pair.sides[A].established = false;
    pair.restart_log();
    pair.connect();
    pair
}

#[test]
fn a_host_that_was_restarted_connects_again() {
    for (orphan, congested) in [(false, false), (false, true), (true, false)] {
        let mut pair = Pair::established();
        if congested {
            pair.sides[B].reads = false;
            pair.sides[B].limit = 1;
            pair.send(A, &bytes(900, 1));
            pair.run_for(MS);
        }
        if orphan {
            let now = pair.now;
            pair.close(B);
            pair.sides[B].conn().orphan(now);
            pair.run_for(MS);
        }
        let mut pair = restarted(pair);
        let start = pair.now;
        pair.run_until(|p| p.sides[B].closed);
        assert!(pair.now - start < MS, "a round trip");
        assert_eq!(pair.sides[B].failed, Some(Failure::Reset));
        let sent: Vec<_> = pair.log.iter().map(|s| s.from).collect();
        assert_eq!(sent, [A, B, A], "SYN, acknowledgement, RST: {pair:?}");
        let side = &mut pair.sides[B];
        (side.conn, side.closed, side.failed) = (None, false, None);
        pair.run_until(|p| p.sides[A].established && p.sides[B].established);
        assert!(pair.now - start < S, "with the next SYN");
    }
}

/// Each of two half-open connections takes the other's SYN|ACK for a repeated SYN of its peer.
#[test]
fn two_half_open_connections_do_not_answer_each_other() {
    let isn = [Seq(1000), Seq(2000)];
    let child = |to: usize| {
        let syn = Header {
            src: PORTS[1 - to],
            dst: PORTS[to],
            len: 0,
            seq: isn[1 - to],
            ack: Seq(0),
            flags: flags::SYN,
        };
        Connection::accept(PORTS[to], &syn, isn[to], Config::default(), 0)
    };
    let mut ends = [child(A), child(B)];
    let mut count = 0;
    for _ in 0..100 {
        for from in [A, B] {
            while let Some(sent) = ends[from].poll_transmit(0, &mut |_| 0) {
                let Transmit::Control { header, .. } = sent else {
                    panic!("{sent:?}");
                };
                count += 1;
                // The number acknowledged is none of the other end's.
                let forged = Header {
                    ack: header.ack.add(5),
                    ..header
                };
                let outcome = ends[1 - from].on_packets(&forged, 1, PLENTY, 0);
                assert_eq!(outcome.drop, Some(DropReason::Duplicate));
            }
        }
    }
    assert_eq!(count, 2, "one SYN|ACK from each");
}

#[test]
fn a_forged_syn_is_answered_once_and_has_no_effect() {
    let mut pair = Pair::established();
    // In the first case no packets are in flight. In the second case, packets of both sides are in
    // flight. In the third case, some of these packets are lost, too.
    for (busy, losses) in [(false, 0), (true, 0), (true, 5)] {
        if busy {
            pair.lose_matching(A, losses, |h| h.len > 0);
            pair.lose_matching(B, losses, |h| h.len > 0);
            pair.send(A, &bytes(3_000, 1));
            pair.send(B, &bytes(3_000, 2));
            pair.run_for(50 * US);
        }
        for bits in [flags::SYN, flags::SYN | flags::ACK] {
            for to in [A, B] {
                let irs = pair.sides[1 - to].isn;
                for distance in [0, 1, 2_000, 0x8000, 0xffff] {
                    let syn = Header {
                        src: PORTS[1 - to],
                        dst: PORTS[to],
                        len: 0,
                        seq: irs.add(distance),
                        // Far from all that this end has sent.
                        ack: pair.sides[to].isn.add(0x8000),
                        flags: bits,
                    };
                    if !busy {
                        // Challenge ACKs are rate-limited.
                        pair.run_for(500 * MS);
                    }
                    pair.restart_log();
                    let outcome = pair.receive(to, &syn, &[]);
                    assert_eq!(outcome.drop, Some(DropReason::BadState));
                    assert!(pair.sent_by(to, |s| !s.is_data()).len() <= 1);
                    if !busy {
                        pair.settle();
                        assert_eq!(pair.log.len(), 1, "the answer brings none: {pair:?}");
                    }
                }
            }
        }
        pair.settle();
        pair.assert_intact();
        assert_eq!(pair.sides[A].state(), State::Established);
        assert_eq!(pair.sides[B].state(), State::Established);
    }
}

/// The 16-bit numbers of a connection that has carried 65,536 packets are those with which it
/// opened.
#[test]
fn only_a_connection_that_has_carried_no_data_is_unused() {
    let mut pair = Pair::new();
    pair.connect();
    assert!(!pair.sides[A].conn().is_unused(), "it is not open yet");
    pair.settle();
    let is_unused = |pair: &mut Pair| [A, B].map(|at| pair.sides[at].conn().is_unused());
    assert_eq!(is_unused(&mut pair), [true; 2]);
    let first = pair.sides[A].conn().next_number();
    pair.shrink(A, 1);
    for packets in std::iter::repeat_n(1, 16).chain(std::iter::repeat_n(240, 273)) {
        pair.send(A, &bytes(packets, 1));
        assert!(!pair.sides[A].conn().is_unused(), "data waits");
        pair.settle();
        assert_eq!(is_unused(&mut pair), [false; 2]);
    }
    assert_eq!(pair.sides[A].conn().next_number(), first);
}
