// SPDX-License-Identifier: GPL-2.0

//! Tests of windows above 255 packets, which receivers grant on long paths to connections whose
//! checksums have masks.

use esp::options::Options;
use esp::{flags, Config, Grant, Header, Nanos, Seq, MOST_NARROW};
use esp_testkit::pair::*;

/// The flags of an acknowledgement with a grant.
const GRANT: u8 = flags::ACK | flags::RRQ | flags::TXF;

/// The time of a packet on the wire: 1500 bytes at 10 Gbit/s.
const PACKET: Nanos = 1_200;

/// The parameters of each side, and whether it uses checksums.
type Ends = [(Config, bool); 2];

const DEFAULT: Config = Config::DEFAULT;

/// The parameters of a host that knows no windows above 255 packets.
const OLD: Config = Config {
    burst_length_max: MOST_NARROW,
    ..DEFAULT
};

/// Returns a pair whose packets take `latency`.
fn path(latency: Nanos, spacing: Nanos, ends: Ends) -> Pair {
    let mut pair = Pair::new();
    pair.latency = latency;
    pair.spacing = spacing;
    for (side, (config, checksums)) in pair.sides.iter_mut().zip(ends) {
        side.config = config;
        side.sends_options = true;
        side.nonce = checksums.then_some(7);
        side.limit = 1 << 21;
    }
    pair.establish()
}

/// Returns the default parameters, with selective retransmission or without.
fn with_selective(selective: bool) -> Config {
    Config {
        selective: selective.into(),
        ..DEFAULT
    }
}

/// Returns a pair with a round trip of 2 ms at 10 Gbit/s: 1,669 packets.
fn long_path(ends: Ends) -> Pair {
    path(MS, PACKET, ends)
}

/// Sends packets from A until all have arrived. Returns how long that took.
fn send(pair: &mut Pair, packets: usize) -> Nanos {
    let (since, before) = (pair.now, pair.sides[B].received.len());
    let sent = pair.send(A, &bytes(100 * packets, 1));
    assert_eq!(sent, 100 * packets);
    pair.run_until(|p| p.sides[B].received.len() == before + 100 * packets);
    let took = pair.now - since;
    pair.settle();
    took
}

/// Returns the grants that B has sent so far.
fn grants(pair: &Pair) -> Vec<Grant> {
    let all = pair.sent_by(B, |sent| sent.header.is_grant());
    all.iter()
        .map(|header| header.grant(true).expect("a grant"))
        .collect()
}

fn largest(pair: &Pair) -> u16 {
    grants(pair)
        .iter()
        .map(|grant| grant.window)
        .max()
        .unwrap_or(0)
}

/// Returns the longest time in which A sent no new data while it had some.
fn longest_pause(pair: &Pair) -> Nanos {
    let data = pair.log.iter().filter(|s| s.from == A && s.is_data());
    let times: Vec<_> = data.map(|sent| sent.at).collect();
    times.windows(2).map(|at| at[1] - at[0]).max().unwrap_or(0)
}

#[test]
fn a_wide_grant_is_as_documented() {
    let header = |len| Header {
        src: 1,
        dst: 2,
        len,
        seq: Seq(3),
        ack: Seq(4),
        flags: GRANT,
    };
    let wide = |len| header(len).grant(true).map(|g| (g.start, g.window));
    assert_eq!(wide(0x8000 | (42 << 9) | 500), Some((42, 2_000)));
    assert_eq!(wide(0xffff), Some((63, 2_044)));
    assert_eq!(wide(0x2aff), Some((42, 255)));
    assert_eq!(wide(0), None, "a request");
    // A host that has not advertised wide grants has an `initial_ack_burst_length` of 170.
    let narrow = header(0xaaff).grant(false);
    let of = |start, window| Some(Grant { start, window });
    assert_eq!(narrow, of(170, 255));
}

#[test]
fn a_syn_tells_the_largest_window() {
    for (most, initial, told) in [
        (2_040, 1, 2_040),
        (2_047, 63, 2_040),
        (1_003, 1, 1_000),
        (256, 1, 256),
        (255, 1, 255),
        (30, 1, 30),
        (21, 1, 0),
        (2_040, 64, 255),
    ] {
        let config = Config {
            burst_length: 21.max(initial),
            burst_length_max: most,
            initial_ack_burst_length: initial,
            ..DEFAULT
        };
        let bytes = Options::emit(1489, &config);
        assert_eq!(Options::parse(&bytes).largest_grant, told, "{config:?}");
    }
    // Without option 7, the number in option 10 counts for nothing.
    assert_eq!(Options::parse(&[10, 2, 255, 0]).largest_grant, 0);
    // A narrow grant to a sender with more unscheduled packets may have the bit of a wide one.
    let told = |initial| [5, 4, 0, 200, 0, initial, 7, 1, 255, 10, 2, 255, 0];
    assert_eq!(Options::parse(&told(63)).largest_grant, 2_040);
    assert_eq!(Options::parse(&told(64)).largest_grant, 255);
}

#[test]
fn a_window_holds_the_packets_of_a_long_round_trip() {
    let mut pair = long_path([(DEFAULT, true); 2]);
    send(&mut pair, 24_000);
    let took = send(&mut pair, 20_000);
    // The announcement takes a round trip, and the window grows again within four more.
    assert!(took < 20_000 * PACKET + 8 * MS, "{took} ns");
    assert!(
        (1_669..=1_900).contains(&largest(&pair)),
        "{}",
        largest(&pair)
    );
    assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
    pair.assert_intact();
}

#[test]
fn a_window_grows_by_128_packets_in_a_round_trip_at_most() {
    let mut pair = long_path([(DEFAULT, true); 2]);
    send(&mut pair, 12_000);
    let first = |window| {
        let grant = |sent: &&Sent| sent.header.grant(true).is_some_and(|g| g.window > window);
        pair.log.iter().find(grant).expect("it grows").at
    };
    assert!(first(255 + 5 * 128) - first(255) > 4 * 2 * MS);
}

#[test]
fn only_masks_allow_windows_above_255() {
    for ends in [
        [(DEFAULT, false), (DEFAULT, false)],
        [(DEFAULT, true), (DEFAULT, false)],
        [(DEFAULT, false), (DEFAULT, true)],
    ] {
        let mut pair = long_path(ends);
        send(&mut pair, 10_000);
        assert_eq!(largest(&pair), 255);
        pair.assert_intact();
    }
}

#[test]
fn a_short_path_has_a_window_above_255_only_if_a_round_trip_holds_as_many() {
    for (latency, spacing, most) in [
        (10 * US, PACKET, 255),
        (10 * US, US, 255),
        // 100 Gbit/s: 160 and 670 packets arrive in a round trip.
        (10 * US, PACKET / 10, 255),
        (40 * US, PACKET / 10, 1_000),
    ] {
        let mut pair = path(latency, spacing, [(DEFAULT, true); 2]);
        send(&mut pair, 10_000);
        for _ in 0..3 {
            let windows = (largest(&pair), spacing);
            assert!(windows.0 <= most, "{windows:?}");
            assert!(most == 255 || windows.0 > 670, "{windows:?}");
            pair.restart_log();
            send(&mut pair, 10_000);
        }
        assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
        pair.assert_intact();
    }
}

#[test]
fn each_pair_of_old_and_new_works() {
    let small = Config {
        burst_length_max: 1_000,
        ..DEFAULT
    };
    for ([a, b], most) in [
        ([OLD, DEFAULT], 255),
        ([DEFAULT, OLD], 255),
        ([OLD, OLD], 255),
        ([small, DEFAULT], 1_000),
        ([DEFAULT, small], 1_000),
    ] {
        let mut pair = long_path([(a, true), (b, true)]);
        send(&mut pair, 12_000);
        assert_eq!(largest(&pair), most);
        let narrow = |sent: &Sent| sent.header.is_grant() && sent.header.len < 0x8000;
        let all = most > 255 || grants(&pair).len() == pair.sent_by(B, narrow).len();
        assert!(all, "an old host gets the two bytes that it knows");
        assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
        pair.assert_intact();
    }
}

/// Returns the window of A after a wide grant of 42 and 2,000 packets.
fn after_wide_grant(pair: &mut Pair) -> u16 {
    let header = Header {
        src: PORTS[B],
        dst: PORTS[A],
        len: 0x8000 | (42 << 9) | 500,
        seq: Seq(65_501),
        ack: Seq(65_531),
        flags: GRANT,
    };
    let _ = pair.receive(A, &header, &[]);
    pair.sides[A].conn().window()
}

#[test]
fn a_wide_grant_counts_only_for_a_sender_with_masks_that_told_it() {
    for (ends, window) in [
        ([(DEFAULT, true); 2], 2_000),
        ([(DEFAULT, false); 2], 0xf4),
        ([(OLD, true); 2], 0xf4),
    ] {
        let mut pair = long_path(ends);
        assert_eq!(after_wide_grant(&mut pair), window);
    }
}

#[test]
fn a_wide_window_fits_half_of_the_receive_buffer() {
    let mut pair = long_path([(DEFAULT, true); 2]);
    // The buffer holds 1,000 packets of 200 bytes.
    pair.sides[B].limit = 200 * 1_000;
    pair.send(A, &bytes(100 * 12_000, 1));
    let asks = |p: &Pair| {
        let conn = p.sides[B].conn.as_ref();
        conn.and_then(esp::Connection::wanted_room) > Some(200 * 1_000)
    };
    pair.run_until(asks);
    pair.settle();
    assert_eq!(largest(&pair), 500);
    pair.assert_intact();
}

#[test]
fn a_loss_in_a_wide_window_needs_no_timeout() {
    for selective in [false, true] {
        let config = with_selective(selective);
        // A packet, two of them a third of a window apart, and three that are close.
        for lost in [&[6_000][..], &[6_000, 6_600], &[6_000, 6_001, 6_100]] {
            let mut pair = long_path([(config, true); 2]);
            send(&mut pair, 16_000);
            assert!(largest(&pair) > 1_200);
            pair.restart_log();
            let lost: Vec<usize> = lost.to_vec();
            pair.rule(move |from, n, _| match from == A && lost.contains(&n) {
                true => Fate::Lose,
                false => Fate::Pass,
            });
            let took = send(&mut pair, 12_000);
            let pause = longest_pause(&pair);
            assert!(pause < 5 * MS, "{selective}: nothing for {pause} ns");
            // A round trip for each loss, and some.
            assert!(took < 12_000 * PACKET + 20 * MS, "{selective}: {took} ns");
            let again = pair.sides[A].conn().stats.pkt_rtx;
            assert!((1..6_000).contains(&again), "{again} packets again");
            pair.assert_intact();
        }
    }
}

#[test]
fn a_lost_retransmission_in_a_wide_window_costs_a_probe_at_most() {
    for selective in [false, true] {
        let config = with_selective(selective);
        let mut pair = long_path([(config, true); 2]);
        send(&mut pair, 16_000);
        pair.restart_log();
        // The packet is lost twice.
        let (mut seq, mut left) = (None, 2);
        pair.rule(move |from, n, header| {
            if from == A && n == 6_000 {
                seq = Some(header.seq);
            }
            if from == A && header.takes_number() && Some(header.seq) == seq && left > 0 {
                left -= 1;
                return Fate::Lose;
            }
            Fate::Pass
        });
        let took = send(&mut pair, 12_000);
        let pause = longest_pause(&pair);
        // A named packet is missed after a round trip. A request for all packets leads to a probe.
        let most = if selective { 7 * MS } else { 11 * MS };
        assert!(pause < most, "{selective}: nothing for {pause} ns");
        assert!(took < 12_000 * PACKET + 30 * MS, "{selective}: {took} ns");
        pair.assert_intact();
    }
}

/// Forgets what was sent before, then sends packets from A, with room for `room` packets in its
/// write queue.
fn send_by(pair: &mut Pair, room: usize, packets: usize) -> Nanos {
    for side in &mut pair.sides {
        side.sent.clear();
        side.received.clear();
    }
    pair.sides[A].send_room = room;
    let since = pair.now;
    let message = bytes(100 * packets, 1);
    let mut sent = 0;
    while pair.sides[B].received.len() < message.len() {
        if sent < message.len() {
            // The call copies a part, and would sleep then.
            sent += pair.send(A, &message[sent..]);
        }
        assert!(pair.step());
    }
    pair.now - since
}

#[test]
fn a_sender_with_less_room_than_its_window_fills_its_room() {
    for room in [50, 300, 900] {
        let [took, before] = [DEFAULT, OLD].map(|config| {
            let mut pair = long_path([(config, true); 2]);
            send(&mut pair, 14_000);
            assert!(config == OLD || largest(&pair) > 1_200);
            let took = send_by(&mut pair, room, 4_000);
            pair.assert_intact();
            took
        });
        assert!(took <= before, "{room} packets: {took} ns, before {before}");
    }
}

/// Lets B wait for its turn within a transmission with a wide window, with data to send. Returns
/// the headers that leave once B has its turn.
fn turn_beside_others(pair: &mut Pair, loses: bool) -> Vec<Header> {
    send(pair, 24_000);
    assert!(largest(pair) > 1_600);
    pair.restart_log();
    pair.send(A, &bytes(100 * 24_000, 1));
    pair.run_for(14 * MS);
    pair.sides[B].device.held = true;
    let mut left = u8::from(loses);
    pair.rule(
        move |from, _, header| match from == A && header.takes_number() && left > 0 {
            true => {
                left = 0;
                Fate::Lose
            }
            false => Fate::Pass,
        },
    );
    pair.run_for(6 * MS);
    let mut message = bytes(100, 2).into_iter().collect();
    assert!(pair.sides[B].queue_one(&mut message));
    pair.restart_log();
    pair.sides[B].conn().take_turn();
    pair.transmit(B);
    let sent = pair.sent_by(B, |_| true);
    pair.sides[B].device.held = false;
    sent
}

#[test]
fn the_window_narrows_before_data_uses_the_turn() {
    let mut pair = long_path([(DEFAULT, true); 2]);
    let sent = turn_beside_others(&mut pair, false);
    assert_eq!(sent[0].grant(true).map(|grant| grant.window), Some(255));
    assert!(sent[1..].iter().any(|header| header.payload() > 0));
}

#[test]
fn the_window_narrows_before_a_request_uses_the_turn() {
    let mut pair = long_path([(DEFAULT, true); 2]);
    let sent = turn_beside_others(&mut pair, true);
    assert_eq!(sent[0].grant(true).map(|grant| grant.window), Some(255));
    let asks = |header: &Header| header.has(flags::RRQ) && !header.is_grant();
    assert!(sent[1..].iter().any(asks), "{sent:?}");
}

#[test]
fn a_rare_loss_bounds_a_wide_window_for_as_long_as_a_narrow_one() {
    let mut pair = long_path([(with_selective(false), true); 2]);
    send(&mut pair, 24_000);
    assert!(largest(&pair) > 1_600);
    pair.restart_log();
    pair.lose(A, 2_000);
    send(&mut pair, 30_000);
    let bounded = grants(&pair).last().map(|grant| grant.window);
    assert!(bounded.is_some_and(|window| window < 1_500), "{bounded:?}");
    send(&mut pair, 32_000);
    send(&mut pair, 32_000);
    pair.restart_log();
    send(&mut pair, 32_000);
    assert!(largest(&pair) > 1_600, "{}", largest(&pair));
    pair.assert_intact();
}

#[test]
fn a_sender_that_uses_little_of_a_wide_window_repeats_only_the_lost_packet() {
    let mut pair = long_path([(with_selective(true), true); 2]);
    send(&mut pair, 24_000);
    assert!(largest(&pair) > 1_600);
    pair.restart_log();
    pair.lose(A, 100);
    // At most 200 packets are in flight.
    send_by(&mut pair, 200, 4_000);
    assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 1);
    pair.assert_intact();
}

#[test]
fn losses_of_a_wide_window_that_requests_can_name_make_it_smaller() {
    let mut pair = long_path([(with_selective(true), true); 2]);
    send(&mut pair, 24_000);
    let before = largest(&pair);
    assert!(before > 1_600);
    pair.restart_log();
    // Of 250 packets, every second one is lost.
    pair.rule(
        |from, n, _| match from == A && (4_000..4_250).contains(&n) && n % 2 == 0 {
            true => Fate::Lose,
            false => Fate::Pass,
        },
    );
    send(&mut pair, 12_000);
    let after = grants(&pair).last().map(|grant| grant.window);
    assert!(after < Some(before / 5 * 4), "{after:?} of {before}");
    pair.assert_intact();
}

#[test]
fn a_transmission_begins_with_255_packets_and_soon_has_its_wide_window_again() {
    let mut pair = long_path([(DEFAULT, true); 2]);
    send(&mut pair, 24_000);
    let before = largest(&pair);
    assert!(before > 1_600);
    pair.restart_log();
    let since = pair.now;
    send(&mut pair, 24_000);
    let all = grants(&pair);
    assert_eq!(all[0].window, 255);
    let grant = |sent: &&Sent| sent.header.grant(true).is_some_and(|g| g.window >= 1_600);
    let again = pair.log.iter().find(grant).expect("it grows").at - since;
    // A round trip for the announcement, and one for each doubling.
    assert!(again < 5 * 2 * MS, "{again} ns");
    // No grant opens more than twice the packets that have arrived.
    let steps = all
        .windows(2)
        .map(|two| two[1].window.saturating_sub(two[0].window));
    assert!(steps.max() <= Some(128));
    pair.assert_intact();
}

#[test]
fn a_lost_grant_that_narrows_the_window_is_repeated_while_data_uses_the_turns() {
    let mut pair = long_path([(DEFAULT, true); 2]);
    send(&mut pair, 24_000);
    pair.send(A, &bytes(100 * 24_000, 1));
    pair.run_for(14 * MS);
    pair.sides[B].device.held = true;
    let mut narrow = 0;
    for _ in 0..3 {
        pair.run_for(MS / 5);
        let mut message = bytes(100, 2).into_iter().collect();
        assert!(pair.sides[B].queue_one(&mut message));
        pair.restart_log();
        pair.sides[B].conn().take_turn();
        pair.transmit(B);
        let sent = pair.sent_by(B, |_| true);
        let grant = sent[0].grant(true).map(|grant| grant.window);
        narrow += usize::from(grant.is_some_and(|window| window <= 255));
        assert!(sent[1..].iter().any(|header| header.payload() > 0));
    }
    assert_eq!(narrow, 3);
}

#[test]
fn a_late_wide_window_is_sent_again_once() {
    for selective in [false, true] {
        let config = with_selective(selective);
        let mut pair = long_path([(config, true); 2]);
        send(&mut pair, 24_000);
        pair.restart_log();
        // The last 1,500 packets and their acknowledgements are late by more than a timeout.
        pair.rule(
            |from, n, header| match from == A && n >= 22_500 && header.takes_number() {
                true if n < 24_000 => Fate::Late(40 * MS),
                _ => Fate::Pass,
            },
        );
        send(&mut pair, 24_000);
        let again = pair.sides[A].conn().stats.pkt_rtx;
        assert!((1..2 * 1_500).contains(&again), "{selective}: {again}");
        pair.assert_intact();
    }
}

#[test]
fn a_sender_takes_no_larger_window_than_it_told() {
    let told = Config {
        burst_length_max: 1_000,
        ..DEFAULT
    };
    let mut pair = long_path([(told, true), (DEFAULT, true)]);
    pair.sides[A].config = DEFAULT;
    pair.sides[A].conn().set_config(DEFAULT);
    assert_eq!(after_wide_grant(&mut pair), 1_000);
}

/// A round trip of 16 us holds 130 packets at 100 Gbit/s.
#[test]
fn missing_packets_let_a_window_hold_what_the_receiver_keeps_for_a_while() {
    for (selective, most) in [(false, 255), (true, 380)] {
        let mut pair = path(8 * US, 123, [(with_selective(selective), true); 2]);
        send(&mut pair, 8_000);
        pair.lose(A, 1_000);
        send(&mut pair, 8_000);
        assert_eq!(largest(&pair), 255, "{selective}");
        for nth in 0..5 {
            pair.lose(A, 1_000 + 300 * nth);
        }
        send(&mut pair, 8_000);
        assert_eq!(largest(&pair), most, "{selective}");
        pair.restart_log();
        send(&mut pair, 8_000);
        let last = grants(&pair).last().map(|grant| grant.window);
        assert!(last <= Some(255), "{selective}: {last:?}");
    }
}
