// SPDX-License-Identifier: GPL-2.0

//! Tests of granted windows: their wire format, how they follow the rate, and unscheduled packets.

use esp::ack_queue::{LAPSE, UNSCHEDULED};
use esp::{flags, AckQueue, Config, Header, Nanos, Slot};
use esp_testkit::pair::*;
use esp_testkit::Device;
use proptest::prelude::*;

/// The flags of an acknowledgement with a grant.
const GRANT: u8 = flags::ACK | flags::RRQ | flags::TXF;

/// Returns a pair whose sides accept grants. Each packet occupies the wire for `spacing`.
fn with_grants(spacing: Nanos, config: Config) -> Pair {
    let mut pair = Pair::with_config(config);
    pair.spacing = spacing;
    for side in &mut pair.sides {
        side.sends_options = true;
    }
    pair.establish()
}

/// Returns the `start` and the `window` of each grant that B has sent so far.
fn grants(pair: &Pair) -> Vec<[u8; 2]> {
    let all = pair.sent_by(B, |sent| sent.header.is_grant());
    all.iter().map(|header| header.len.to_be_bytes()).collect()
}

/// Sends packets from A until all have arrived.
fn send(pair: &mut Pair, packets: usize) {
    let before = pair.sides[B].received.len();
    pair.send(A, &bytes(100 * packets, 1));
    pair.run_until(|p| p.sides[B].received.len() == before + 100 * packets);
    pair.settle();
}

/// Returns the maximum number of packets that A had in flight between two acknowledgements.
fn largest_burst(pair: &Pair) -> usize {
    let (mut most, mut burst) = (0, 0);
    for sent in &pair.log {
        burst = match sent.from {
            A if sent.is_data() => burst + 1,
            B if sent.header.has(flags::ACK) => 0,
            _ => burst,
        };
        most = most.max(burst);
    }
    most
}

#[test]
fn a_grant_is_an_empty_packet() {
    let header = Header {
        src: 1,
        dst: 2,
        len: 0x2a51,
        seq: esp::Seq(3),
        ack: esp::Seq(4),
        flags: GRANT,
    };
    assert!(header.is_grant() && !header.takes_number() && !header.is_request());
    assert_eq!((header.payload(), header.payload_len(0)), (0, Some(0)));
    let with_checksum = header.with_checksum(true);
    assert!(with_checksum.is_grant() && !with_checksum.takes_number());
    let request = Header { len: 0, ..header };
    assert!(!request.is_grant() && request.is_request());
}

#[test]
fn windows_follow_the_rate_within_their_bounds() {
    for (spacing, least, most) in [(50 * US, 21, 21), (2 * US, 40, 60), (US / 10, 255, 255)] {
        let mut pair = with_grants(spacing, Config::default());
        send(&mut pair, 20_000);
        let windows: Vec<_> = grants(&pair).iter().map(|[_, window]| *window).collect();
        let later = &windows[windows.len() / 2..];
        assert!(
            later.iter().all(|window| (least..=most).contains(window)),
            "a packet in {spacing} ns: {later:?}"
        );
        pair.assert_intact();
        assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
    }
}

#[test]
fn a_window_fits_the_receive_buffer() {
    let mut pair = with_grants(US / 10, Config::default());
    // The buffer holds 90 packets of 200 bytes.
    pair.sides[B].limit = 200 * 90;
    send(&mut pair, 5_000);
    let most = grants(&pair).iter().map(|[_, window]| *window).max();
    assert_eq!(most, Some(45));
    pair.assert_intact();
}

#[test]
fn a_loss_bounds_the_windows_that_follow() {
    let mut pair = with_grants(US / 10, Config::default());
    // The ring of a device on the path has room for this many packets between two acknowledgements.
    let (room, mut queued) = (200, 0);
    pair.rule(move |from, _, header| {
        queued = match (from, header.has(flags::ACK)) {
            (A, _) if header.takes_number() => queued + 1,
            (B, true) => 0,
            _ => queued,
        };
        if queued > room {
            Fate::Lose
        } else {
            Fate::Pass
        }
    });
    send(&mut pair, 20_000);
    let windows: Vec<_> = grants(&pair).iter().map(|[_, window]| *window).collect();
    let large = windows.iter().filter(|window| **window > 200).count();
    assert!((1..windows.len() / 20).contains(&large), "{windows:?}");
    let again = pair.sides[A].conn().stats.pkt_rtx;
    assert!((1..1_000).contains(&again), "{again} packets again");
    pair.assert_intact();
}

#[test]
fn a_peer_without_the_option_gets_no_grant() {
    for side in [A, B] {
        let mut pair = Pair::new();
        pair.sides[side].sends_options = true;
        let mut pair = pair.establish();
        if side == A {
            // B may grant, but its own settings are fixed.
            let mut config = pair.sides[B].config;
            config.burst_length_max = config.burst_length;
            pair.sides[B].conn().set_config(config);
        }
        send(&mut pair, 2_000);
        assert!(grants(&pair).is_empty());
        assert!(largest_burst(&pair) <= 21);
    }
}

/// Makes the windows grow, and then gives the receiver B the parameters `fixed`. The first grant
/// that would carry these parameters to A is lost.
fn fix(pair: &mut Pair, fixed: Config) {
    send(pair, 5_000);
    assert!(largest_burst(pair) > 100);
    assert_eq!(grants(pair).last(), Some(&[42, 255]));
    pair.restart_log();
    pair.sides[B].set_config(fixed);
    pair.lose_matching(B, 1, Header::is_grant);
    send(pair, 600);
    pair.restart_log();
}

#[test]
fn a_receiver_with_fixed_windows_grants_the_sender_its_own() {
    let mut pair = with_grants(US / 10, Config::default());
    let fixed = Config {
        burst_length_max: 21,
        ..Config::default()
    };
    fix(&mut pair, fixed);
    pair.send(A, &bytes(20_000, 2));
    assert_eq!(pair.data_sent(A).len(), 2, "unscheduled");
    pair.settle();
    send(&mut pair, 2_000);
    assert!(largest_burst(&pair) <= 21);
    let granted = grants(&pair);
    assert!(granted.iter().all(|grant| *grant == [1, 21]), "{granted:?}");

    pair.sides[B].set_config(Config::default());
    send(&mut pair, 5_000);
    assert_eq!(grants(&pair).last(), Some(&[42, 255]));
    pair.assert_intact();
    assert_eq!(pair.sides[A].conn().stats.pkt_rtx, 0);
}

#[test]
fn a_receiver_with_fixed_windows_acknowledges_as_without_grants() {
    let fixed = Config {
        burst_length: 64,
        burst_length_max: 64,
        packets_to_ack: 32,
        ..Config::default()
    };
    let mut never = with_grants(US / 10, Config::default());
    never.sides[B].set_config(fixed);
    let mut pair = with_grants(US / 10, Config::default());
    fix(&mut pair, fixed);
    let [acks, as_never] = [&mut pair, &mut never].map(|pair| {
        send(pair, 2_000);
        pair.sent_by(B, |sent| sent.header.has(flags::ACK)).len()
    });
    assert_eq!(acks, as_never);
}

#[test]
fn a_lone_sender_begins_with_a_whole_burst_once_it_was_granted_that() {
    let mut pair = with_grants(US, Config::default());
    send(&mut pair, 30);
    assert_eq!(grants(&pair).last().map(|[start, _]| *start), Some(42));
    pair.restart_log();
    pair.send(A, &bytes(4_000, 2));
    assert_eq!(pair.data_sent(A).len(), 40);
    pair.settle();
    pair.assert_intact();
}

#[test]
fn a_lost_announcement_halves_the_unscheduled_packets() {
    let mut pair = with_grants(US, Config::default());
    send(&mut pair, 30);
    pair.restart_log();
    let mut left = 15;
    pair.rule(move |from, _, header| {
        if from == A && header.takes_number() && left > 0 {
            left -= 1;
            return Fate::Lose;
        }
        Fate::Pass
    });
    pair.send(A, &bytes(1_500, 2));
    pair.run_for(MS);
    assert_eq!(pair.data_sent(A).len(), 15);
    pair.settle();
    pair.restart_log();
    pair.send(A, &bytes(4_000, 3));
    let unscheduled = pair.data_sent(A).len();
    // After the loss, 21 packets may follow an announcement. Each later grant allows one more.
    assert!((21..30).contains(&unscheduled), "{unscheduled}");
    pair.settle();
    pair.assert_intact();
}

#[test]
fn unscheduled_packets_are_shared() {
    let mut queue = AckQueue::default();
    let mut slots = [Slot::default(); 6];
    let now = 5 * S;
    assert_eq!(queue.share(&mut slots[0], now), 42);
    // The other connections get a share once the first connection has had one more turn.
    assert_eq!(queue.share(&mut slots[1], now), 0);
    assert_eq!(queue.share(&mut slots[0], now), 21);
    assert_eq!(queue.share(&mut slots[1], now), 21);
    for round in 0..2 {
        let shares: Vec<_> = slots
            .iter_mut()
            .map(|slot| queue.share(slot, now))
            .collect();
        assert!(round == 0 || shares == [7; 6], "{shares:?}");
    }
    for slot in &mut slots[1..] {
        queue.release(slot);
    }
    assert_eq!(queue.share(&mut slots[0], now), 42);
}

#[test]
fn idle_connections_keep_no_share_from_a_new_one() {
    // All these connections are at host B and use one device.
    let mut device = Device::default();
    let mut now = 5 * S;
    let mut begin = |wait: Nanos| {
        let mut pair = Pair::new();
        now += wait;
        pair.now = now;
        for side in &mut pair.sides {
            side.sends_options = true;
        }
        pair.sides[B].device = std::mem::take(&mut device);
        let mut pair = pair.establish();
        send(&mut pair, 30);
        device = std::mem::take(&mut pair.sides[B].device);
        now = pair.now;
        grants(&pair).last().map_or(0, |[start, _]| *start)
    };
    assert_eq!(begin(0), 42);
    for _ in 0..42 {
        begin(0);
    }
    assert_eq!(begin(0), 0, "the first ones have it all");
    assert_eq!(begin(2 * S), 42);
}

#[test]
fn a_share_lapses_after_a_second_or_two() {
    let mut queue = AckQueue::default();
    let [mut idle, mut busy, mut new] = [Slot::default(); 3];
    let begin = 7 * LAPSE;
    assert_eq!(queue.share(&mut idle, begin), 42);
    assert_eq!(queue.share(&mut busy, begin + LAPSE), 0);
    assert_eq!(queue.share(&mut busy, begin + 2 * LAPSE - 1), 0);
    assert_eq!(queue.share(&mut busy, begin + 2 * LAPSE), 42);
    // The idle connection's share has lapsed, so the connection has no share to return.
    let before = queue.clone();
    queue.release(&mut idle);
    assert_eq!(queue, before);
    assert_eq!(queue.share(&mut idle, begin + 2 * LAPSE), 0);
    assert_eq!(queue.share(&mut busy, begin + 3 * LAPSE), 21);
    assert_eq!(queue.share(&mut new, begin + 3 * LAPSE), 14);
    // A call on a processor whose clock is behind does not change the generation.
    assert_eq!(queue.share(&mut idle, begin + 2 * LAPSE), 7);
    queue.release(&mut busy);
    queue.release(&mut new);
    assert_eq!(queue.share(&mut idle, begin + 3 * LAPSE), 42);
}

proptest! {
    #[test]
    fn shares_of_two_generations_never_exceed_what_a_port_takes(
        steps in prop::collection::vec((0usize..64, any::<bool>(), 0u64..300), 1..500),
    ) {
        let mut queue = AckQueue::default();
        let mut slots = [(Slot::default(), 0, 0); 64];
        let mut now = 5 * S;
        for (id, ends, wait) in steps {
            now += wait * MS;
            let (slot, share, given) = &mut slots[id];
            *given = now / LAPSE;
            *share = if ends {
                queue.release(slot);
                0
            } else {
                queue.share(slot, now)
            };
            let counted = slots.iter().filter(|(.., given)| given + 1 >= now / LAPSE);
            let sum: u32 = counted.map(|(_, share, _)| u32::from(*share)).sum();
            prop_assert!(sum <= UNSCHEDULED.into());
        }
        // Shares that were returned or lapsed are free again.
        for (id, (slot, ..)) in slots.iter_mut().enumerate() {
            if id % 2 == 0 {
                queue.release(slot);
            }
        }
        now += 2 * LAPSE;
        prop_assert_eq!(queue.share(&mut slots[0].0, now), UNSCHEDULED);
        for (slot, ..) in &mut slots {
            queue.release(slot);
        }
        prop_assert_eq!(queue.share(&mut slots[1].0, now), UNSCHEDULED);
    }
}
