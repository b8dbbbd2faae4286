// SPDX-License-Identifier: GPL-2.0

//! Tests of whole streams over a wire that loses, repeats, delays and reorders packets. Every byte
//! arrives once, in order and in finite time, and both ends close.

use esp::Config;
use esp_testkit::pair::*;
use proptest::prelude::*;

/// Writes `amount` bytes from each side as messages of random lengths while the pair runs, and then
/// closes both sides.
fn converse(pair: &mut Pair, amounts: [usize; 2], most: usize, rng: &mut fastrand::Rng) {
    let all = [bytes(amounts[A], 1), bytes(amounts[B], 2)];
    let mut closed = [false; 2];
    let limit = pair.now + 600 * S;
    loop {
        let mut idle = true;
        for from in [A, B] {
            let done = pair.sides[from].sent.len();
            let rest = &all[from][done..];
            if rest.is_empty() {
                if !closed[from] {
                    pair.close(from);
                    closed[from] = true;
                }
            } else if pair.sides[from].conn().unacked() < 200 {
                let n = rng.usize(1..=most).min(rest.len());
                pair.send(from, &rest[..n]);
                idle = false;
            }
            if !pair.sides[from].reads {
                pair.read_packets(from, rng.usize(0..=3));
            }
            if rng.u8(..4) == 0 && !pair.sides[from].closed {
                pair.sleep(from);
            }
        }
        // The programs act more often than timers expire. Otherwise only timers would be tested.
        pair.run_for(rng.u64(1..200) * US);
        if idle && pair.sides.iter().all(|s| s.closed) {
            break;
        }
        assert!(pair.now < limit, "not done in bounded time: {pair:?}");
    }
    for at in [A, B] {
        pair.read(at);
        assert_eq!(pair.sides[at].failed, None, "{pair:?}");
        assert!(pair.sides[at].eof);
    }
    assert_eq!(pair.sides[A].sent.len(), amounts[A]);
    assert_eq!(pair.sides[B].sent.len(), amounts[B]);
    pair.assert_intact();
}

/// Returns a function that decides the fate of packets: it loses, doubles and delays packets with
/// these chances, in percent.
fn noisy(seed: u64, lose: u8, twice: u8, late: u8) -> impl FnMut() -> Fate {
    let mut rng = fastrand::Rng::with_seed(seed);
    move || {
        let x = rng.u8(..100);
        if x < lose {
            Fate::Lose
        } else if x < lose + twice {
            Fate::Twice
        } else if x < lose + twice + late {
            Fate::Late(rng.u64(1..2_000_000))
        } else {
            Fate::Pass
        }
    }
}

#[test]
fn numbers_wrap_several_times() {
    let mut pair = Pair::established();
    let packets = 200_000usize;
    let all = bytes(packets * 2, 3);
    for side in &mut pair.sides {
        side.mss = 2;
    }
    for message in all.chunks(1_500) {
        let mut rest = message;
        while !rest.is_empty() {
            let n = pair.send(A, rest);
            rest = &rest[n..];
            while pair.sides[A].conn().unacked() > 5_000 {
                pair.step();
            }
        }
        pair.restart_log();
    }
    pair.settle();
    pair.assert_intact();
    assert_eq!(pair.sides[B].received.len(), packets * 2);
    assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
    assert_eq!(pair.sides[B].conn().stats.pkt_rx_drop, 0);
}

#[test]
fn numbers_wrap_with_losses_too() {
    let mut pair = Pair::established();
    pair.sides[A].mss = 4;
    pair.sides[B].mss = 4;
    let mut fate = noisy(5, 2, 1, 0);
    pair.rule(move |_, _, _| fate());
    let mut rng = fastrand::Rng::with_seed(6);
    converse(&mut pair, [400_000, 300_000], 2_000, &mut rng);
}

#[test]
fn a_clean_wire_needs_no_retransmissions() {
    let mut pair = Pair::established();
    let mut rng = fastrand::Rng::with_seed(1);
    converse(&mut pair, [300_000, 200_000], 5_000, &mut rng);
    for side in &mut pair.sides {
        let stats = side.conn().stats;
        assert_eq!(
            (stats.pkt_rtx, stats.pkt_rx_drop, stats.seq_lost),
            (0, 0, 0)
        );
    }
}

#[test]
fn heavy_losses_are_survived() {
    for (seed, lose) in [(1, 5), (2, 20), (3, 40)] {
        let mut pair = Pair::established();
        let mut fate = noisy(seed, lose, 2, 0);
        pair.rule(move |_, _, _| fate());
        let mut rng = fastrand::Rng::with_seed(seed);
        converse(&mut pair, [60_000, 20_000], 3_000, &mut rng);
    }
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Pass),
        2 => Just(Fate::Lose),
        1 => Just(Fate::Twice),
        1 => (1u64..3_000).prop_map(|us| Fate::Late(us * US)),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    (1u16..40, 0u16..40, 1u16..40, 10u32..2_000).prop_map(|(burst, initial, to_ack, time)| Config {
        burst_length: burst,
        initial_ack_burst_length: initial.min(burst),
        packets_to_ack: to_ack.min(burst),
        round_trip_time: time,
        ..Config::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(7),
        failure_persistence: None,
        max_shrink_iters: 400,
        ..ProptestConfig::with_cases(150)
    })]

    /// The wire has faults from the first SYN on, but only finitely many.
    #[test]
    fn no_finite_pattern_of_faults_hangs_or_alters(
        from_a in prop::collection::vec(fate(), 0..60),
        from_b in prop::collection::vec(fate(), 0..60),
        amounts in (0usize..6_000, 0usize..6_000),
        most in 1usize..3_000,
        seed in any::<u64>(),
    ) {
        let mut pair = Pair::new();
        let fates = [from_a, from_b];
        pair.rule(move |from, n, _| fates[from].get(n).copied().unwrap_or(Fate::Pass));
        pair.connect();
        while !(pair.sides[A].established && pair.sides[B].established) {
            // Ten lost SYNs in a row look like an absent peer, so the connection may have failed.
            if pair.sides.iter().any(|s| s.closed) {
                return Ok(());
            }
            prop_assert!(pair.step());
        }
        let mut rng = fastrand::Rng::with_seed(seed);
        converse(&mut pair, [amounts.0, amounts.1], most, &mut rng);
    }

    /// Two hosts with any configurations and buffers work together over any wire.
    #[test]
    fn any_two_hosts_understand_each_other(
        configs in [config(), config()],
        limits in [1u32..60, 1u32..60],
        reads in any::<[bool; 2]>(),
        latency in 1u64..3_000,
        chances in (0u8..15, 0u8..5, 0u8..5),
        amounts in (0usize..12_000, 0usize..12_000),
        most in 1usize..4_000,
        seed in any::<u64>(),
    ) {
        let mut pair = Pair::new();
        pair.latency = latency * US;
        for at in [A, B] {
            let side = &mut pair.sides[at];
            side.config = configs[at];
            side.limit = limits[at] * side.packet_cost();
            side.reads = reads[at];
        }
        let mut pair = pair.establish();
        let mut fate = noisy(seed, chances.0, chances.1, chances.2);
        pair.rule(move |_, _, _| fate());
        let mut rng = fastrand::Rng::with_seed(seed);
        converse(&mut pair, [amounts.0, amounts.1], most, &mut rng);
    }
}
