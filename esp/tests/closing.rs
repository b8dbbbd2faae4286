// SPDX-License-Identifier: GPL-2.0

//! Tests of how connections end: cleanly, by reset, and by timeout.

use esp::{flags, DropReason, Failure, Header, State};
use esp_testkit::pair::*;

fn assert_clean(pair: &Pair) {
    for side in &pair.sides {
        assert_eq!(side.failed, None, "{pair:?}");
        assert!(side.closed && side.eof, "{pair:?}");
        assert_eq!(side.state(), State::Closed);
    }
    pair.assert_intact();
}

/// Creates a pair whose side A is in `state`.
fn in_state(state: State) -> Pair {
    if matches!(state, State::SynSent | State::SynReceived) {
        // B is the side in SynReceived; the tests swap the sides.
        let mut pair = Pair::new();
        pair.connect();
        if state == State::SynReceived {
            pair.cut(B);
            pair.run_until(|p| p.sides[B].conn.is_some());
        }
        return pair;
    }
    let mut pair = Pair::established();
    let loses_fin_ack = |pair: &mut Pair| {
        pair.lose_matching(B, usize::MAX, |h| !h.has(flags::FIN | flags::RST));
    };
    match state {
        State::Established => {}
        State::FinWait1 => {
            pair.cut(A);
            pair.close(A);
        }
        State::FinWait2 => {
            pair.close(A);
            pair.settle();
        }
        State::CloseWait => {
            pair.close(B);
            pair.settle();
        }
        State::Closing => {
            loses_fin_ack(&mut pair);
            pair.close(A);
            pair.close(B);
            pair.run_until(|p| p.sides[A].eof);
        }
        State::LastAck => {
            pair.close(B);
            pair.settle();
            loses_fin_ack(&mut pair);
            pair.close(A);
        }
        other => unreachable!("{other:?}"),
    }
    assert_eq!(pair.sides[A].state(), state, "{pair:?}");
    pair
}

#[test]
fn one_side_closes_then_the_other() {
    let mut pair = Pair::established();
    pair.send(A, b"last words");
    pair.close(A);
    assert_eq!(pair.sides[A].state(), State::FinWait1);
    pair.settle();
    assert_eq!(pair.sides[A].state(), State::FinWait2);
    assert_eq!(pair.sides[B].state(), State::CloseWait);
    assert!(pair.sides[B].eof);
    pair.close(B);
    assert_eq!(pair.sides[B].state(), State::LastAck);
    pair.settle();
    assert_clean(&pair);
}

#[test]
fn the_open_half_goes_on() {
    let mut pair = Pair::established();
    pair.send(A, b"question");
    pair.close(A);
    pair.settle();
    for i in 0..50 {
        pair.send(B, &bytes(700, i));
        pair.settle();
    }
    pair.close(B);
    pair.settle();
    assert_clean(&pair);
    assert_eq!(pair.sides[A].received.len(), 35_000);
}

#[test]
fn the_end_follows_all_that_was_queued() {
    let mut pair = Pair::established();
    pair.send(A, &bytes(20_000, 1));
    pair.close(A);
    pair.run_until(|p| p.sides[B].eof);
    pair.assert_intact();
    let sent = pair.sent_by(A, |s| s.header.has(flags::FIN));
    assert_eq!(sent.len(), 1);
    let last = pair.data_sent(A)[199];
    assert_eq!(sent[0].seq, last.seq.add(1));
    assert!(last.has(flags::TXF), "the message is finished before");
}

#[test]
fn both_sides_may_close_at_once() {
    let mut pair = Pair::established();
    pair.close(A);
    pair.close(B);
    let mut crossed = false;
    while pair.step() {
        crossed |= pair.sides[A].state() == State::Closing;
    }
    assert!(crossed);
    assert_clean(&pair);
    assert_eq!(pair.log.len(), 4);
}

#[test]
fn any_packet_of_the_close_may_be_lost_or_duplicated() {
    for fate in [Fate::Lose, Fate::Twice, Fate::Late(MS)] {
        for (side, nth) in [(A, 0), (A, 1), (B, 0), (B, 1)] {
            for simultaneous in [false, true] {
                let mut pair = Pair::established();
                pair.fate(side, nth, fate);
                pair.close(A);
                if !simultaneous {
                    pair.run_until(|p| p.sides[B].eof);
                }
                pair.close(B);
                let start = pair.now;
                while pair.step() {}
                assert_clean(&pair);
                assert!(pair.now - start < S, "{fate:?} {side} {nth}");
            }
        }
    }
}

#[test]
fn a_fin_after_data_survives_loss_duplication_and_delay() {
    let packets = || {
        [A, B]
            .into_iter()
            .flat_map(|side| (0..5).map(move |nth| (side, nth)))
    };
    for fate in [
        Fate::Twice,
        Fate::Late(50 * US),
        Fate::Late(5 * MS),
        Fate::Late(15 * MS),
    ] {
        for (lost, other) in packets().flat_map(|p| packets().map(move |q| (p, q))) {
            for messages in 1..4 {
                let mut pair = Pair::established();
                pair.close(B);
                pair.settle();
                pair.restart_log();
                pair.lose(lost.0, lost.1);
                pair.fate(other.0, other.1, fate);
                for i in 0..messages {
                    pair.send(A, &bytes(150, i));
                }
                pair.close(A);
                while pair.step() {}
                assert_eq!(
                    pair.sides[A].failed, None,
                    "{lost:?} {other:?} {fate:?} {pair:?}"
                );
                assert_clean(&pair);
            }
        }
    }
}

#[test]
fn the_last_acknowledgement_is_sent_after_the_close() {
    let mut pair = in_state(State::FinWait2);
    pair.restart_log();
    pair.close(B);
    pair.run_until(|p| p.sides[A].closed);
    let answer = pair.log.last().expect("an answer");
    assert!(answer.from == A && answer.is_pure_ack());
    assert_eq!(answer.header.ack, pair.log[0].header.seq.add(1));
}

#[test]
fn a_reset_ends_every_state() {
    use State::*;
    for state in [Established, FinWait1, FinWait2, CloseWait] {
        let mut pair = in_state(state);
        pair.abort(B);
        pair.run_until(|p| p.sides[A].closed);
        assert_eq!(pair.sides[A].failed, Some(Failure::Reset), "{state:?}");
        assert_eq!(pair.sides[A].conn().failure(), Some(Failure::Reset));
        assert_eq!(pair.sides[A].conn().deadline(), None);
    }
    // In these states everything except the FIN is acknowledged, so the RST only means that the
    // peer has forgotten the connection.
    for state in [Closing, LastAck] {
        let mut pair = in_state(state);
        pair.abort(B);
        pair.run_until(|p| p.sides[A].closed);
        assert_eq!(pair.sides[A].failed, None, "{state:?}");
    }
}

#[test]
fn a_reset_with_unacknowledged_data_is_a_failure() {
    let mut pair = Pair::established();
    pair.close(B);
    pair.settle();
    pair.cut(A);
    pair.send(A, b"lost");
    pair.close(A);
    assert_eq!(pair.sides[A].state(), State::LastAck);
    pair.abort(B);
    pair.run_until(|p| p.sides[A].closed);
    assert_eq!(pair.sides[A].failed, Some(Failure::Reset));
}

#[test]
fn a_reset_by_a_host_that_never_had_the_data_is_a_failure() {
    // In this test, the peer forgets the connection before the data arrives, so the data is lost.
    let mut pair = Pair::established();
    pair.close(B);
    pair.settle();
    assert_eq!(pair.sides[A].state(), State::CloseWait);
    pair.sides[B].conn = None;
    pair.sides[B].listens = false;
    pair.send(A, b"lost");
    pair.close(A);
    assert_eq!(pair.sides[A].state(), State::LastAck);
    pair.run_until(|p| p.sides[A].closed);
    assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
    assert_eq!(pair.sides[A].failed, Some(Failure::Reset));
}

#[test]
fn a_lost_last_acknowledgement_of_data_and_end_is_no_failure() {
    // In this test, the peer has received and acknowledged everything, and has forgotten the
    // connection.
    let mut pair = Pair::established();
    pair.close(B);
    pair.settle();
    pair.lose_matching(B, 1, |_| true);
    pair.send(A, b"all of it");
    pair.close(A);
    pair.run_until(|p| p.sides[A].closed && p.sides[B].closed);
    assert_clean(&pair);
}

#[test]
fn a_reset_ends_a_half_open_child() {
    let mut pair = in_state(State::SynReceived);
    let syn = pair.log[0].header;
    let reset = Header {
        flags: flags::RST,
        seq: syn.seq.add(1),
        ..syn
    };
    let outcome = pair.receive(B, &reset, &[]);
    assert_eq!(outcome.failed, Some(Failure::Reset));
    assert!(outcome.closed);
}

#[test]
fn a_reset_outside_the_window_is_ignored() {
    for state in [
        State::Established,
        State::FinWait1,
        State::FinWait2,
        State::CloseWait,
        State::Closing,
        State::LastAck,
    ] {
        let mut pair = in_state(state);
        let next = pair.sides[B].conn().cursor();
        for seq in [next.add(100), next.sub(100), next.add(30_000)] {
            let header = Header {
                src: PORTS[B],
                dst: PORTS[A],
                len: 0,
                seq,
                ack: seq,
                flags: flags::RST | flags::ACK,
            };
            let outcome = pair.receive(A, &header, &[]);
            assert_eq!(outcome.drop, Some(DropReason::BadState), "{state:?}");
            assert_eq!(pair.sides[A].state(), state);
        }
    }
}

#[test]
fn a_peer_that_forgot_the_connection_resets_it() {
    // In this test, the peer's host was restarted, and answers everything with RST.
    for congested in [false, true] {
        let mut pair = Pair::established();
        if congested {
            pair.sides[A].reads = false;
            pair.sides[A].limit = 1;
            pair.send(B, &bytes(900, 1));
            pair.run_for(MS);
        }
        pair.sides[B].conn = None;
        pair.sides[B].listens = false;
        pair.send(A, b"hello?");
        pair.run_until(|p| p.sides[A].closed);
        assert_eq!(pair.sides[A].failed, Some(Failure::Reset));
    }
}

#[test]
fn an_idle_connection_notices_that_its_peer_forgot_it() {
    let mut pair = Pair::established();
    pair.sides[B].conn = None;
    pair.sides[B].listens = false;
    let start = pair.now;
    pair.run_until(|p| p.sides[A].closed);
    assert_eq!(pair.sides[A].failed, Some(Failure::Reset));
    assert!(pair.now - start < 31 * S);
}

#[test]
fn an_idle_connection_lasts() {
    let mut pair = Pair::established();
    pair.run_for(3_600 * S);
    assert_eq!(pair.sides[A].state(), State::Established);
    assert_eq!(pair.sides[B].state(), State::Established);
    // In this hour, both ends together send at most two probes per minute, and each probe is
    // answered.
    assert!(pair.log.len() <= 2 * 2 * 60 + 2, "{}", pair.log.len());
    pair.send(A, b"still there");
    pair.settle();
    pair.assert_intact();
}

#[test]
fn probes_that_cross_do_not_multiply() {
    let mut pair = Pair::established();
    pair.latency = 40 * MS;
    pair.run_for(45 * S);
    assert!(pair.log.len() <= 4, "{pair:?}");
}

#[test]
fn a_vanished_peer_is_noticed_in_every_state() {
    use State::*;
    for (state, with_data, bound) in [
        (SynSent, false, 15),
        (Established, false, 60),
        (Established, true, 20),
        (FinWait1, false, 20),
        (FinWait1, true, 20),
        (FinWait2, false, 60),
        (CloseWait, false, 60),
        (CloseWait, true, 20),
        (Closing, false, 20),
        (LastAck, false, 20),
    ] {
        let mut pair = if state == FinWait1 && with_data {
            let mut pair = Pair::established();
            pair.cut(A);
            pair.send(A, b"x");
            pair.close(A);
            pair
        } else {
            in_state(state)
        };
        pair.cut(B);
        if with_data && state != FinWait1 {
            pair.send(A, &bytes(9_000, 1));
        }
        let start = pair.now;
        pair.run_until(|p| p.sides[A].closed);
        assert_eq!(pair.sides[A].failed, Some(Failure::TimedOut), "{state:?}");
        let took = (pair.now - start) / S;
        assert!(took < bound, "{state:?} took {took} s");
        assert_eq!(pair.sides[A].conn().deadline(), None);
        let late = pair.sides[A].conn().poll_transmit(0, &mut |_| 0);
        assert_eq!(late, None, "nothing is sent after that");
    }
}

#[test]
fn a_peer_that_vanishes_from_a_full_window_is_noticed() {
    // In this test, no packet with TXS or TXF is outstanding, so no retransmission timer runs.
    let mut pair = Pair::established();
    pair.sides[B].reads = false;
    pair.sides[B].limit = 25 * pair.sides[B].packet_cost();
    pair.send(A, &bytes(10_000, 1));
    pair.run_for(500 * MS);
    pair.cut(B);
    let start = pair.now;
    pair.run_until(|p| p.sides[A].closed);
    assert_eq!(pair.sides[A].failed, Some(Failure::TimedOut));
    assert!(pair.now - start < 20 * S);
}

#[test]
fn a_sender_that_vanishes_in_the_middle_is_noticed() {
    let mut pair = Pair::established();
    pair.send(A, &bytes(10_000, 1));
    pair.run_for(100 * US);
    pair.cut(A);
    pair.run_until(|p| p.sides[B].closed);
    assert_eq!(pair.sides[B].failed, Some(Failure::TimedOut));
    let requests = pair.sides[B].conn().stats.arq_tx;
    assert!(requests < 250, "asks ever more rarely: {requests}");
}

#[test]
fn data_after_long_silence_does_not_time_out() {
    let mut pair = Pair::established();
    pair.run_for(29 * S);
    pair.lose_matching(A, 3, |_| true);
    pair.send(A, b"after half a minute");
    pair.settle();
    pair.assert_intact();
    assert_eq!(pair.sides[A].failed, None);
}

#[test]
fn data_after_silence_restarts_the_liveness_timer() {
    let mut pair = Pair::established();
    pair.run_for(20 * S);
    pair.send(A, b"after twenty seconds");
    pair.settle();
    assert_eq!(pair.log.len(), 2, "data and its acknowledgement, no probe");
}

#[test]
fn a_suspended_machine_keeps_its_connections() {
    let mut pair = Pair::established();
    pair.send(A, b"x");
    pair.now += 3_600 * S;
    pair.settle();
    assert_eq!(pair.sides[A].failed, None);
    assert_eq!(pair.sides[B].failed, None);
    pair.assert_intact();
}

#[test]
fn an_orphan_waits_for_the_fin_for_a_bounded_time() {
    let mut pair = Pair::established();
    pair.close(A);
    let now = pair.now;
    pair.sides[A].conn().orphan(now);
    pair.run_until(|p| p.sides[A].closed);
    assert_eq!(pair.sides[A].failed, None);
    assert!((10 * S..11 * S).contains(&(pair.now - now)));
}

#[test]
fn data_for_an_orphan_is_answered_with_a_reset() {
    for late in [false, true] {
        let mut pair = Pair::established();
        pair.close(A);
        if late {
            pair.settle();
        }
        let now = pair.now;
        pair.sides[A].conn().orphan(now);
        pair.send(B, b"for nobody");
        pair.run_until(|p| p.sides[A].failed.is_some());
        assert_eq!(pair.sides[A].failed, Some(Failure::Reset));
        assert!(pair.sides[A].closed);
        let reset = pair.log.last().expect("a packet").header;
        assert_eq!(reset.flags, flags::RST | flags::ACK);
        assert_eq!(pair.sides[A].conn().abort(), None, "it has left");
        pair.run_until(|p| p.sides[B].closed);
        assert_eq!(pair.sides[B].failed, Some(Failure::Reset));
        assert!(pair.sides[A].received.is_empty());
    }
}

#[test]
fn data_is_refused_once_both_halves_are_shut() {
    let mut pair = Pair::established();
    pair.sides[A].conn().receive_shutdown();
    pair.send(B, b"still taken");
    pair.settle();
    assert_eq!(pair.sides[A].received, b"still taken");
    pair.close(A);
    pair.settle();
    pair.send(B, b"for nobody");
    pair.run_until(|p| p.sides[A].closed && p.sides[B].closed);
    for side in [A, B] {
        assert_eq!(pair.sides[side].failed, Some(Failure::Reset));
    }
    assert_eq!(pair.sides[A].received, b"still taken");
}

#[test]
fn an_orphan_delivers_what_was_queued() {
    let mut pair = Pair::established();
    pair.send(A, &bytes(30_000, 1));
    pair.close(A);
    let now = pair.now;
    pair.sides[A].conn().orphan(now);
    pair.lose(A, 7);
    pair.run_until(|p| p.sides[B].eof);
    pair.close(B);
    pair.run_until(|p| p.sides[A].closed && p.sides[B].closed);
    assert_eq!(pair.sides[A].failed, None);
    pair.assert_intact();
}

/// Returns a pair whose side A is an orphan. Side B has no room for all of A's data.
fn orphan_whose_peer_does_not_read() -> Pair {
    let mut pair = Pair::established();
    pair.sides[B].reads = false;
    pair.sides[B].limit = 5 * pair.sides[B].packet_cost();
    pair.send(A, &bytes(9_000, 1));
    pair.close(A);
    let now = pair.now;
    pair.sides[A].conn().orphan(now);
    pair
}

#[test]
fn an_orphan_waits_for_a_slow_reader_for_some_minutes() {
    let mut pair = orphan_whose_peer_does_not_read();
    pair.run_for(290 * S);
    pair.sides[B].reads = true;
    pair.read(B);
    pair.run_until(|p| p.sides[B].eof);
    pair.close(B);
    pair.run_until(|p| p.sides[A].closed && p.sides[B].closed);
    assert_eq!(pair.sides[A].failed, None);
    pair.assert_intact();
}

#[test]
fn an_orphan_does_not_wait_for_ever_for_a_peer_that_never_reads() {
    let mut pair = orphan_whose_peer_does_not_read();
    let now = pair.now;
    pair.run_until(|p| p.sides[A].closed);
    assert_eq!(pair.sides[A].failed, Some(Failure::TimedOut));
    assert!((290 * S..=310 * S).contains(&(pair.now - now)));
}

#[test]
fn desynchronised_orphans_do_not_keep_each_other_alive() {
    let mut pair = Pair::established();
    // A third host sends each side a forged FIN of the other side. The data that a side then sends
    // has the number of the forged FIN, so it looks like a duplicate. The side's own FIN has the
    // next number, and arrives after the end of the stream.
    for (from, to) in [(A, B), (B, A)] {
        let header = Header {
            src: PORTS[from],
            dst: PORTS[to],
            len: 0,
            seq: pair.sides[from].conn().cursor(),
            ack: pair.sides[to].conn().first_unacked(),
            flags: flags::FIN | flags::ACK,
        };
        pair.cut(from);
        pair.cut(to);
        let _ = pair.receive(to, &header, b"");
        assert!(pair.sides[to].eof);
    }
    let mut pair = pair.mended();
    for at in [A, B] {
        pair.send(at, b"taken for the end");
    }
    pair.settle();
    let now = pair.now;
    for at in [A, B] {
        pair.close(at);
        pair.sides[at].conn().orphan(now);
    }
    pair.run_until(|p| p.sides[A].closed && p.sides[B].closed);
    assert!(pair.now - now < 100 * S);
    let failures = [A, B].map(|at| pair.sides[at].failed);
    assert!(failures.contains(&Some(Failure::TimedOut)), "{failures:?}");
}

#[test]
fn abort_tells_the_peer_if_it_knows_of_the_connection() {
    for state in [
        State::Established,
        State::FinWait1,
        State::FinWait2,
        State::CloseWait,
        State::Closing,
        State::LastAck,
    ] {
        let mut pair = in_state(state);
        let reset = pair.sides[A].conn().abort().expect("a reset");
        assert!(reset.has(flags::RST), "{state:?}");
        assert_eq!(pair.sides[A].state(), State::Closed);
        assert_eq!(pair.sides[A].conn().abort(), None, "once");
        assert_eq!(pair.sides[A].conn().poll_transmit(0, &mut |_| 0), None);
    }
    let mut pair = in_state(State::SynSent);
    assert_eq!(pair.sides[A].conn().abort(), None);
    let mut pair = in_state(State::SynReceived);
    assert!(pair.sides[B].conn().abort().is_some());
}

#[test]
fn data_behind_the_end_is_dropped() {
    let mut pair = in_state(State::CloseWait);
    let seq = pair.sides[B].conn().cursor();
    let ack = pair.sides[A].conn().first_unacked();
    let header = Header {
        src: PORTS[B],
        dst: PORTS[A],
        len: 3,
        seq,
        ack,
        flags: flags::ACK | flags::TXS | flags::TXF,
    };
    let outcome = pair.receive(A, &header, b"bad");
    assert_eq!(outcome.drop, Some(DropReason::BadState));
    assert!(pair.sides[A].received.is_empty());
}
