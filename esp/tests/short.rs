// SPDX-License-Identifier: GPL-2.0

//! Tests of short announcements, to a receiver with many senders.

use esp::ack_queue::SHORT;
use esp::{flags, Config};
use esp_testkit::pair::*;

/// Returns a pair. If `crowded` is set, side B advertises that it has many senders.
fn pair(crowded: bool, config: Config) -> Pair {
    let mut pair = Pair::with_config(config);
    for side in &mut pair.sides {
        side.sends_options = true;
    }
    pair.sides[B].crowded = crowded;
    pair.establish()
}

/// Sends a message of `packets` packets from A. Returns the number of bytes of each packet that A
/// sends before B answers.
fn before_an_answer(pair: &mut Pair, packets: usize) -> Vec<u16> {
    pair.restart_log();
    pair.cut(B);
    pair.send(A, &bytes(100 * packets, 1));
    pair.data_sent(A).iter().map(|header| header.len).collect()
}

#[test]
fn a_first_announcement_to_a_crowded_host_is_short_and_nothing_follows_it() {
    for (crowded, packets, expected) in [
        (true, 20, vec![SHORT as u16]),
        (true, 1, vec![100]),
        (false, 20, vec![100, 100]),
    ] {
        let mut pair = pair(crowded, Config::default());
        assert_eq!(
            before_an_answer(&mut pair, packets),
            expected,
            "crowded: {crowded}, packets: {packets}"
        );
    }
}

#[test]
fn a_sender_with_fixed_windows_has_no_short_announcements() {
    let fixed = Config {
        burst_length_max: 21,
        ..Config::default()
    };
    let mut pair = pair(true, fixed);
    assert_eq!(before_an_answer(&mut pair, 20), [100, 100]);
}

#[test]
fn a_transmission_with_a_short_announcement_arrives_whole_without_a_request() {
    for packets in [2, 3, 21, 2_000] {
        let mut pair = pair(true, Config::default());
        pair.send(A, &bytes(100 * packets, 1));
        pair.settle();
        pair.assert_intact();
        assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
        let requests = pair.sent_by(B, |sent| sent.header.is_request());
        assert!(requests.is_empty(), "{packets}: {requests:?}");
        let first = pair.data_sent(A)[0];
        assert!(first.has(flags::TXS) && !first.has(flags::TXF));
    }
}

#[test]
fn a_lost_short_announcement_is_retransmitted() {
    let mut pair = pair(true, Config::default());
    pair.lose_matching(A, 1, |header| header.has(flags::TXS));
    pair.send(A, &bytes(2_000, 1));
    pair.settle();
    pair.assert_intact();
}
