// SPDX-License-Identifier: GPL-2.0

//! Tests of hosts with different parameters. The sender's window is smaller than the number of
//! packets after which the receiver acknowledges.

use esp::Config;
use esp_testkit::pair::*;

/// Returns a pair. Its sender has a window of `burst`, and its receiver acknowledges every `to_ack`
/// packets.
fn unequal(burst: u16, to_ack: u16) -> Pair {
    let mut pair = Pair::new();
    pair.sides[A].config = Config {
        burst_length: burst,
        packets_to_ack: burst.min(10),
        ..Config::default()
    };
    pair.sides[B].config = Config {
        burst_length: 2 * to_ack,
        packets_to_ack: to_ack,
        ..Config::default()
    };
    pair.establish()
}

/// Returns the time that a message takes, in microseconds.
fn duration(pair: &mut Pair, packets: usize) -> u64 {
    let (start, before) = (pair.now, pair.sides[B].received.len());
    pair.send(A, &bytes(100 * packets, 1));
    pair.run_until(|p| p.sides[B].received.len() == before + 100 * packets);
    (pair.now - start) / US
}

#[test]
fn a_window_smaller_than_packets_to_ack_does_not_stop_the_stream() {
    for (burst, to_ack) in [
        (21, 32),
        (8, 10),
        (1, 2),
        (1, 32),
        (2, 3),
        (31, 32),
        (21, 96),
        (21, 0x3fff),
        (10, 11),
    ] {
        let mut pair = unequal(burst, to_ack);
        let took = duration(&mut pair, 4_000);
        // `best` is the time with a receiver that has the sender's parameters, or acknowledges
        // every packet.
        let mut equal = unequal(burst, burst.div_ceil(2));
        let best = duration(&mut equal, 4_000);
        assert!(
            took < 2 * best,
            "{burst} against {to_ack}: {took} us, {best} us at best"
        );
        pair.settle();
        pair.assert_intact();
        assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
        assert_eq!(pair.sides[B].conn().stats.arq_tx, 0);
    }
}

/// Returns how long B waited before each of its probes, in microseconds.
fn waits(pair: &Pair) -> Vec<u64> {
    let next = pair.sides[B]
        .conn
        .as_ref()
        .expect("a connection")
        .first_unacked();
    let probes = pair
        .log
        .iter()
        .filter(|s| s.from == B && s.header.seq.distance(next) == 1);
    let arrival = |before: &Sent| {
        let mut data = pair.log.iter().filter(|s| s.is_data() && s.at < before.at);
        data.next_back()
            .map_or(0, |s| s.at + pair.spacing + pair.latency)
    };
    probes
        .map(|probe| (probe.at - arrival(probe)) / US)
        .collect()
}

#[test]
fn every_wait_for_a_small_window_takes_the_configured_time() {
    for (burst, to_ack) in [(21, 32), (8, 10), (1, 2)] {
        let mut pair = unequal(burst, to_ack);
        duration(&mut pair, 20_000);
        let waits = waits(&pair);
        // Two waits prove the window, and then one wait in 256 windows proves it again. The number
        // of these later waits is rounded up.
        let most = 3 + 20_000 / (256 * usize::from(burst));
        assert!(
            (2..=most).contains(&waits.len()),
            "{burst} against {to_ack}: {waits:?}"
        );
        // The first wait may precede any measured round trip, and then takes longer. The others
        // take the configured 200 us (`round_trip_time`).
        assert!(
            waits[1..].iter().all(|wait| (150..250).contains(wait)),
            "{waits:?}"
        );
    }
}

#[test]
fn a_window_that_grows_is_acknowledged_less_often_again() {
    let mut pair = unequal(32, 16);
    let config = Config {
        burst_length: 8,
        ..pair.sides[A].config
    };
    pair.sides[A].conn().set_config(config);
    duration(&mut pair, 1_000);
    let acks = |pair: &mut Pair| {
        pair.restart_log();
        duration(pair, 3_000);
        pair.sent_by(B, |_| true).len()
    };
    assert!(acks(&mut pair) > 3_000 / 8);
    let config = Config {
        burst_length: 32,
        ..pair.sides[A].config
    };
    pair.sides[A].conn().set_config(config);
    acks(&mut pair);
    let often = acks(&mut pair);
    assert!(often < 3_000 / 14, "{often}");
}

#[test]
fn a_window_that_shrinks_is_acknowledged_more_often() {
    let mut pair = unequal(32, 32);
    duration(&mut pair, 1_000);
    for burst in [8, 21, 3] {
        let config = Config {
            burst_length: burst,
            ..pair.sides[A].config
        };
        pair.sides[A].conn().set_config(config);
        pair.restart_log();
        duration(&mut pair, 4_000);
        let waits = waits(&pair);
        let most = 4 + 4_000 / (256 * usize::from(burst));
        assert!(waits.len() <= most, "{burst}: {waits:?}");
        assert!(waits.iter().all(|&wait| wait < 450), "{waits:?}");
    }
}

#[test]
fn a_line_that_is_slow_is_not_taken_for_a_small_window_for_long() {
    // In this test, a packet takes 6 ms, although the handshake has measured a round trip of 40 us.
    let mut pair = Pair::established();
    pair.spacing = 6 * MS;
    duration(&mut pair, 1_000);
    pair.restart_log();
    duration(&mut pair, 1_000);
    let acks = pair.sent_by(B, |_| true).len();
    assert!(acks <= 1_000 / 8, "{acks}");
}
