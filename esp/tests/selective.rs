// SPDX-License-Identifier: GPL-2.0

//! Tests of selective retransmission: packets that are kept because earlier ones are missing,
//! requests that name the missing packets, and retransmissions of only these packets.

use esp::records::Kind;
use esp::{
    flags, Config, DropReason, Failure, Header, Options, Room, Selective, Seq, State, MISSING_MOST,
};
use esp_testkit::pair::{bytes, Fate, Pair, A, B, MS, PORTS, S, US};
use esp_testkit::Host;

/// Number of payload bytes of a packet.
const MSS: usize = 100;

fn config() -> Config {
    Config {
        selective: true.into(),
        ..Config::default()
    }
}

/// Returns two ends that send options. `selective` says for each end whether it supports selective
/// retransmission.
fn pair_of(selective: [bool; 2]) -> Pair {
    pair_with(selective.map(Selective::from), [false; 2])
}

/// Returns an open connection between two ends of [`pair_of`], with the default window.
fn established(selective: [bool; 2]) -> Pair {
    pair_of(selective).establish()
}

fn selective() -> Pair {
    established([true; 2])
}

/// Sends a message from A. `fate` returns the fate of each packet's first transmission. Its
/// argument is the packet's index, counted from 0.
fn send_with(pair: &mut Pair, packets: usize, fate: impl Fn(usize) -> Fate + 'static) {
    let first = pair.sides[A].conn().next_number();
    let mut left = vec![false; packets];
    pair.rule(move |from, _, header| {
        let number = usize::from(first.distance(header.seq));
        if from != A || header.payload() == 0 || number >= packets || left[number] {
            return Fate::Pass;
        }
        left[number] = true;
        fate(number)
    });
    pair.send(A, &bytes(packets * MSS, 7));
    pair.settle();
    pair.assert_intact();
}

/// Returns the requests of B that name packets.
fn requests(pair: &Pair) -> Vec<Header> {
    pair.sent_by(B, |sent| sent.header.is_request())
}

fn resent(pair: &Pair) -> u32 {
    pair.sides[A].conn.as_ref().unwrap().stats.pkt_rtx
}

#[test]
fn options_tell_whether_requests_may_name_packets() {
    let told = |config: &Config| Options::parse(&Options::emit(1489, config));
    assert!(told(&config()).selective && told(&config()).takes_skips);
    assert!(!told(&Config::default()).selective && told(&Config::default()).takes_skips);
    assert!(!Options::forgotten().selective);
}

/// Returns two ends that send options and have these parameters. An end of `sums` has checksums and
/// a nonce.
fn pair_with(selective: [Selective; 2], sums: [bool; 2]) -> Pair {
    let mut pair = Pair::new();
    for ((side, selective), sums) in pair.sides.iter_mut().zip(selective).zip(sums) {
        side.sends_options = true;
        side.config.selective = selective;
        side.nonce = sums.then_some(7);
    }
    pair
}

#[test]
fn by_default_connections_with_masks_keep_packets_that_others_drop() {
    use Selective::{Always, Never, WithMasks};
    assert_eq!(Config::default().selective, WithMasks);
    for (selective, sums, keeps) in [
        ([WithMasks; 2], [true; 2], true),
        ([WithMasks; 2], [false; 2], false),
        ([WithMasks, Always], [true; 2], true),
        ([WithMasks, Always], [false; 2], false),
        ([Always, WithMasks], [false; 2], false),
        // The peer's SYN|ACK offers such requests, but has no nonce.
        ([WithMasks, Always], [true, false], false),
        ([Always, Always], [true, false], true),
        ([WithMasks, Never], [true; 2], false),
        ([Never, Always], [true; 2], false),
    ] {
        for from in [A, B] {
            let mut pair = pair_with(selective, sums).establish();
            pair.lose(from, 3);
            let sent = pair.send(from, &bytes(20 * MSS, 1));
            assert_eq!(sent, 20 * MSS);
            pair.run_until(|pair| pair.sides[1 - from].received.len() == 20 * MSS);
            let resent = pair.sides[from].conn().stats.pkt_rtx;
            let what = format!("{selective:?}, checksums {sums:?}: {resent}");
            assert_eq!(resent == 1, keeps, "{what}");
        }
    }
}

#[test]
fn a_packet_overtaken_by_three_others_costs_nothing() {
    for places in 1..=3 {
        let mut pair = selective();
        // A packet takes a microsecond on the wire.
        let late = places * US + US / 2;
        send_with(&mut pair, 60, move |n| match n % 10 {
            5 => Fate::Late(late),
            _ => Fate::Pass,
        });
        let stats = [A, B].map(|side| pair.sides[side].conn().stats);
        assert_eq!(stats[A].pkt_rtx, 0, "{places} places");
        assert_eq!((stats[B].arq_tx, stats[B].seq_lost), (0, 0));
        assert!(stats[B].pkt_rx_oos >= places as u32);
    }
}

#[test]
fn spurious_requests_make_the_receiver_wait_longer() {
    let mut pair = selective();
    pair.spacing = US / 4;
    // Twenty packets overtake each late packet, which arrives before a retransmission could.
    let needless = |pair: &mut Pair, seed| {
        let before = pair.sides[B].conn().stats.arq_tx;
        let mut n = 0;
        pair.rule(move |from, _, header| {
            n += usize::from(from == A && header.payload() > 0);
            if n % 50 == 25 && n < 2_000 {
                Fate::Late(5 * US)
            } else {
                Fate::Pass
            }
        });
        pair.send(A, &bytes(1_000 * MSS, seed));
        pair.settle();
        pair.assert_intact();
        pair.sides[B].conn().stats.arq_tx - before
    };
    let first = needless(&mut pair, 1);
    assert!(
        (1..8).contains(&first),
        "{first} requests for 20 late packets"
    );
    assert_eq!(needless(&mut pair, 2), 0);
}

#[test]
fn without_the_option_an_overtaken_packet_is_requested() {
    let mut pair = established([true, false]);
    send_with(&mut pair, 60, |n| match n {
        25 => Fate::Late(US + US / 2),
        _ => Fate::Pass,
    });
    assert!(resent(&pair) > 1, "it goes back");
}

#[test]
fn a_lost_packet_costs_one_retransmission() {
    let mut pair = selective();
    send_with(&mut pair, 60, |n| match n {
        25 => Fate::Lose,
        _ => Fate::Pass,
    });
    assert_eq!(resent(&pair), 1);
    let [request] = requests(&pair)[..] else {
        panic!("one request: {:?}", requests(&pair));
    };
    assert!(request.names_missing());
    assert_eq!(request.len, 1, "it names the expected packet");
    assert_eq!(pair.sides[B].conn().stats.seq_lost, 1);
}

#[test]
fn each_of_many_lost_packets_is_retransmitted_once() {
    let mut pair = selective();
    send_with(&mut pair, 200, |n| match n % 7 {
        3 | 4 => Fate::Lose,
        _ => Fate::Pass,
    });
    let lost = (0..200).filter(|n| matches!(n % 7, 3 | 4)).count();
    assert_eq!(resent(&pair) as usize, lost);
    assert_eq!(pair.sides[B].conn().stats.seq_lost as usize, lost);
}

#[test]
fn a_retransmission_that_is_lost_is_requested_again() {
    let mut pair = selective();
    let first = pair.sides[A].conn().next_number();
    let mut left = 0;
    pair.rule(move |from, _, header| {
        if from == A && header.payload() > 0 && header.seq == first.add(25) {
            left += 1;
            if left <= 3 {
                return Fate::Lose;
            }
        }
        Fate::Pass
    });
    let began = pair.now;
    pair.send(A, &bytes(60 * MSS, 1));
    pair.run_until(|p| p.sides[B].received.len() == 60 * MSS);
    assert_eq!(resent(&pair), 3);
    assert_eq!(requests(&pair).len(), 3);
    assert!(pair.now - began < MS, "no timer of milliseconds was needed");
}

#[test]
fn a_request_that_is_lost_is_repeated() {
    let mut pair = selective();
    pair.lose_matching(B, 2, Header::is_request);
    send_with(&mut pair, 60, |n| match n {
        25 | 27 => Fate::Lose,
        _ => Fate::Pass,
    });
    assert_eq!(resent(&pair), 2);
}

#[test]
fn a_missing_packet_is_requested_after_a_quarter_of_the_round_trip() {
    let mut pair = selective();
    // Two packets arrive after the lost one. These are too few to show the loss at once.
    send_with(&mut pair, 21, |n| match n {
        18 => Fate::Lose,
        _ => Fate::Pass,
    });
    assert_eq!(resent(&pair), 1);
    let lost = pair.log.iter().find(|s| s.fate == Fate::Lose).unwrap().at;
    let requested = pair.log.iter().find(|s| s.header.names_missing());
    let waited = requested.unwrap().at - lost;
    assert!((20 * US..60 * US).contains(&waited), "{waited}");
}

#[test]
fn both_ends_must_support_named_requests() {
    for ends in [[false, false], [false, true], [true, false]] {
        let mut pair = established(ends);
        send_with(&mut pair, 60, |n| match n {
            25 => Fate::Lose,
            _ => Fate::Pass,
        });
        assert!(requests(&pair)
            .iter()
            .all(|request| !request.names_missing()));
        assert!(resent(&pair) > 1, "{ends:?}");
        let conn = pair.sides[B].conn();
        assert!(!conn.keeps());
    }
}

#[test]
fn the_end_of_a_stream_is_kept_behind_a_hole() {
    let mut pair = selective();
    let first = pair.sides[A].conn().next_number();
    let mut lost = false;
    pair.rule(move |from, _, header| {
        let loses = from == A && header.payload() > 0 && header.seq == first.add(3) && !lost;
        lost |= loses;
        if loses {
            Fate::Lose
        } else {
            Fate::Pass
        }
    });
    pair.send(A, &bytes(6 * MSS, 1));
    pair.close(A);
    pair.run_until(|p| p.sides[B].eof);
    pair.assert_intact();
    assert_eq!(resent(&pair), 1);
    pair.close(B);
    pair.run_until(|p| p.sides.iter().all(|s| s.state() == State::Closed));
    assert!(pair.sides.iter().all(|s| s.failed.is_none()));
}

#[test]
fn records_keep_their_bounds_behind_a_hole() {
    let mut pair = pair_of([true; 2]);
    for side in &mut pair.sides {
        side.records = Some(Kind::plain(65_536));
        side.reads = false;
    }
    let mut pair = pair.establish();
    pair.rule({
        let mut n = 0;
        move |from, _, header| {
            if from == A && header.payload() > 0 {
                n += 1;
                if n % 5 == 3 {
                    return Fate::Lose;
                }
            }
            Fate::Pass
        }
    });
    let now = pair.now;
    let lengths = [250, 40, 700, 100, 320];
    for (i, len) in lengths.into_iter().enumerate() {
        assert!(Host::send_record(
            &mut pair,
            A,
            bytes(len, i as u64).into(),
            now
        ));
    }
    pair.run_until(|p| p.sides[B].records_to_read() == lengths.len());
    for (i, len) in lengths.into_iter().enumerate() {
        let now = pair.now;
        let record = pair.sides[B].read_record(false, now);
        assert_eq!(record.unwrap(), bytes(len, i as u64), "record {i}");
    }
}

#[test]
fn data_with_an_older_acknowledgement_is_taken() {
    let mut pair = selective();
    // B sends as well, so each of A's packets acknowledges more than A's previous packet.
    pair.rule(|from, n, header| {
        if from == A && header.payload() > 0 && n % 6 == 0 {
            Fate::Late(2 * US + US / 2)
        } else {
            Fate::Pass
        }
    });
    for n in 0..200 {
        pair.send(A, &bytes(MSS, n));
        pair.send(B, &bytes(MSS, n + 1000));
        pair.run_for(US);
    }
    pair.settle();
    pair.assert_intact();
    let drops = |side: usize| pair.sides[side].drops.iter();
    assert!(!drops(B).any(|drop| *drop == DropReason::BadAck));
    assert_eq!(resent(&pair), 0);
}

#[test]
fn a_receiver_without_room_keeps_nothing() {
    let mut pair = pair_of([true; 2]);
    // There is room for 20 packets.
    pair.sides[B].limit = 20 * 200;
    let mut pair = pair.establish();
    pair.sides[B].reads = false;
    let first = pair.sides[A].conn().next_number();
    let mut lost = 0;
    pair.rule(move |from, _, header| {
        let loses = from == A && header.payload() > 0 && header.seq == first.add(1) && lost < 2;
        lost += usize::from(loses);
        if loses {
            Fate::Lose
        } else {
            Fate::Pass
        }
    });
    pair.send(A, &bytes(200 * MSS, 1));
    let mut most = 0;
    while pair.sides[B].received.len() < 200 * MSS {
        assert!(pair.step());
        most = most.max(pair.sides[B].to_hand() + pair.sides[B].to_read());
        if pair.sides[B].to_hand() == 0 {
            pair.read(B);
        }
    }
    pair.assert_intact();
    assert!(most <= 20 + 64, "{most} packets were held");
}

#[test]
fn packets_that_are_skipped_are_not_kept() {
    let mut pair = selective();
    let first = pair.sides[A].conn().next_number();
    pair.rule(move |from, _, header| {
        // All packets but the second one arrive.
        if from == A && header.payload() == MSS as u16 && header.seq == first.add(1) {
            Fate::Lose
        } else {
            Fate::Pass
        }
    });
    pair.send(A, &bytes(12 * MSS, 3));
    pair.run_until(|p| p.sides[B].to_hand() > 0);
    pair.shrink(A, 60);
    pair.settle();
    pair.assert_intact();
    assert_eq!(pair.sides[B].to_hand(), 0);
}

#[test]
fn an_aborted_connection_keeps_nothing() {
    let mut pair = selective();
    pair.rule(|from, n, header| {
        if from == A && header.payload() > 0 && n % 4 == 1 {
            Fate::Lose
        } else {
            Fate::Pass
        }
    });
    pair.send(A, &bytes(20 * MSS, 3));
    pair.run_until(|p| p.sides[B].to_hand() > 0);
    pair.abort(B);
    assert!(!pair.sides[B].conn().keeps());
}

/// Returns a pair whose sender A has packets in flight. Tests send unprovoked requests to A.
fn sender() -> Pair {
    let mut pair = selective();
    pair.cut(A);
    pair.cut(B);
    pair.sides[A].conn().hold_last(false);
    pair.send(A, &bytes(200 * MSS, 1));
    pair.restart_log();
    pair
}

fn request(pair: &mut Pair, seq: u16, named: [u8; MISSING_MOST]) {
    let conn = pair.sides[A].conn();
    let header = Header {
        src: PORTS[B],
        dst: PORTS[A],
        len: MISSING_MOST as u16,
        seq: Seq(seq),
        ack: conn.first_unacked(),
        flags: flags::ACK | flags::RRQ | flags::TXS,
    };
    let _ = pair.receive(A, &header, &named);
}

#[test]
fn unsent_numbers_are_ignored() {
    let mut pair = sender();
    let seq = pair.sides[B].conn().next_number().0;
    pair.run_for(MS);
    request(&mut pair, seq, [0xff; MISSING_MOST]);
    let left = pair.data_sent(A);
    let una = pair.sides[A].conn().first_unacked();
    let high = pair.sides[A].conn().window();
    assert!(!left.is_empty(), "what is in flight leaves again");
    assert!(left.iter().all(|h| una.distance(h.seq) < high), "{left:?}");
    let mut numbers: Vec<_> = left.iter().map(|h| h.seq.0).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), left.len(), "each once");
}

#[test]
fn forged_requests_cost_a_retransmission_a_round_trip_at_most() {
    let mut pair = sender();
    let seq = pair.sides[B].conn().next_number().0;
    pair.run_for(MS);
    pair.restart_log();
    let before = pair.now;
    for _ in 0..1000 {
        request(&mut pair, seq, [0xff; MISSING_MOST]);
        pair.run_for(US);
    }
    let left = pair.data_sent(A);
    let round_trip = pair.sides[A].conn().times().0;
    let trips = (pair.now - before).div_ceil(round_trip / 2).max(1) as usize;
    let most = trips * usize::from(pair.sides[A].conn().window());
    assert!(left.len() <= most, "{} of {most}", left.len());
    assert!(left.len() < 1000);
}

#[test]
fn a_request_with_names_is_an_ordinary_one_without_the_capability() {
    let mut pair = established([false; 2]);
    pair.cut(A);
    pair.cut(B);
    pair.send(A, &bytes(200 * MSS, 1));
    let seq = pair.sides[B].conn().next_number().0;
    pair.run_for(MS);
    pair.restart_log();
    let mut named = [0; MISSING_MOST];
    named[0] = 0b10;
    request(&mut pair, seq, named);
    let left = pair.data_sent(A);
    let una = pair.sides[A].conn().first_unacked();
    assert_eq!(left.first().map(|h| h.seq), Some(una), "it goes back");
    assert!(left.len() > 1);
    assert_eq!(pair.sides[A].to_read(), 0, "no byte of it is data");
}

#[test]
fn losses_of_single_packets_leave_the_window_as_it_is() {
    let granted = |every: usize| {
        let mut pair = selective();
        pair.latency = 20 * US;
        pair.spacing = US / 4;
        let mut n = 0;
        pair.rule(move |from, _, header| {
            if from == A && header.payload() > 0 {
                n += 1;
                if n % every == 0 {
                    return Fate::Lose;
                }
            }
            Fate::Pass
        });
        for n in 0..20 {
            pair.send(A, &bytes(1000 * MSS, n));
            pair.settle();
        }
        pair.assert_intact();
        pair.sides[A].conn().window()
    };
    let clean = granted(usize::MAX);
    assert!(clean > 100, "{clean}");
    assert_eq!(granted(97), clean);
    assert!(granted(3) < clean, "a third of all is too much for the way");
}

#[test]
fn an_empty_request_names_nothing() {
    let mut pair = sender();
    let seq = pair.sides[B].conn().next_number();
    pair.run_for(MS);
    pair.restart_log();
    let conn = pair.sides[A].conn();
    let header = Header {
        src: PORTS[B],
        dst: PORTS[A],
        len: 1,
        seq,
        ack: conn.first_unacked(),
        flags: flags::ACK | flags::RRQ | flags::TXS,
    };
    let room = Room {
        queued: 0,
        limit: 1 << 20,
        arriving: 100,
        packet: 100,
    };
    let now = pair.now;
    let conn = pair.sides[A].conn();
    let without = conn.without_names(&header);
    let outcome = conn.on_packet(&without, room, now);
    assert_eq!(outcome.drop, None);
    conn.on_named(&header, &[], &outcome, now);
    assert_eq!(
        pair.sides[A].conn().on_packet(&header, room, now).drop,
        Some(DropReason::Malformed)
    );
    pair.transmit(A);
    assert_eq!(pair.data_sent(A).len(), 0);
}

/// Runs one random schedule: parameters, messages, and a wire that loses, repeats and delays
/// packets.
fn run(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    // A third of the schedules has masks, and so windows of up to 2,040 packets.
    let masks = seed % 3 == 0;
    let mut wide = fastrand::Rng::with_seed(!seed);
    let mut pair = Pair::new();
    let records = rng.u8(..4) == 0;
    for side in &mut pair.sides {
        let burst = *rng.choice(&[1, 2, 3, 5, 8, 21, 40, 300]).unwrap();
        side.config = Config {
            burst_length: burst,
            burst_length_max: if rng.bool() { 255 } else { 0 },
            initial_ack_burst_length: rng.u16(0..=burst),
            packets_to_ack: rng.u16(1..=burst),
            selective: (rng.u8(..4) > 0).into(),
            ..Config::default()
        };
        if masks {
            side.nonce = Some(wide.u32(..));
            if wide.bool() {
                side.config.burst_length = burst.min(255);
                side.config.burst_length_max = 2040;
                side.config.initial_ack_burst_length = side.config.initial_ack_burst_length.min(60);
                side.config.packets_to_ack = side.config.packets_to_ack.min(255);
            }
            if wide.bool() {
                side.config.selective = Selective::WithMasks;
            }
        }
        side.sends_options = records || rng.u8(..8) > 0;
        side.isn = Seq(rng.u16(..));
        side.records = records.then_some(Kind::plain(65_536));
        side.reads = records || rng.u8(..4) > 0;
        if rng.u8(..4) == 0 {
            side.limit = rng.u32(2_000..20_000);
        }
    }
    pair.latency = rng.u64(1..40) * US;
    pair.spacing = rng.u64(50..2_000);
    let mut pair = pair.establish();
    // Ends that send no options do not support skips.
    let told = pair.sides.iter().all(|side| side.sends_options);
    let (lose, late, twice) = (rng.f64() * 0.2, rng.f64() * 0.3, rng.f64() * 0.1);
    let most_late = *rng.choice(&[3 * US, 20 * US, 500 * US]).unwrap();
    let mut fates = rng.fork();
    pair.rule(move |_, _, _| {
        let lot = fates.f64();
        if lot < lose {
            Fate::Lose
        } else if lot < lose + late {
            Fate::Late(fates.u64(..most_late))
        } else if lot < lose + late + twice {
            Fate::Twice
        } else {
            Fate::Pass
        }
    });
    let mut sent = [Vec::new(), Vec::new()];
    for n in 0..rng.u64(1..8) {
        let from = usize::from(rng.bool());
        let mut message = bytes(rng.usize(1..60) * rng.usize(1..150), seed ^ n);
        let burst = pair.sides[from].config.burst_length;
        if masks && !records && burst > 8 && wide.u8(..4) == 0 {
            message = bytes(wide.usize(1..200_000), seed ^ n);
        }
        if records {
            let now = pair.now;
            let message = message[..message.len().min(4_000)].to_vec();
            if Host::send_record(&mut pair, from, message.clone().into(), now) {
                sent[from].extend(message);
            }
        } else {
            let queued = pair.send(from, &message);
            sent[from].extend(&message[..queued]);
        }
        pair.run_for(rng.u64(..300) * US);
        if told && rng.u8(..20) == 0 {
            pair.shrink(from, rng.usize(57..100));
        }
    }
    let limit = pair.now + 300 * S;
    while (0..2).any(|at| pair.sides[at].received.len() < sent[1 - at].len()) {
        assert!(pair.now < limit, "seed {seed}: not all arrives\n{pair:?}");
        let idle = pair.next_event().is_none_or(|at| at > pair.now + S);
        assert!(
            idle || pair.step(),
            "seed {seed}: nothing is left to happen\n{pair:?}"
        );
        let unread = |side: &esp_testkit::pair::Side| side.to_read() > 0;
        assert!(
            !idle || pair.sides.iter().any(unread),
            "seed {seed}: it stands still\n{pair:?}"
        );
        for at in 0..2 {
            let whole = !records || pair.sides[at].records_to_read() > 0;
            if whole && !pair.sides[at].reads && (idle || rng.u8(..8) == 0) {
                pair.read(at);
            }
        }
    }
    for at in 0..2 {
        assert!(
            pair.sides[at].received == sent[1 - at],
            "seed {seed}: bytes differ"
        );
    }
    pair.close(A);
    pair.close(B);
    let limit = pair.now + 600 * S;
    while pair.sides.iter().any(|s| s.state() != State::Closed) {
        assert!(pair.now < limit, "seed {seed}: it does not end\n{pair:?}");
        assert!(pair.step(), "seed {seed}: it stands still\n{pair:?}");
    }
    for side in &pair.sides {
        let ended = matches!(side.failed, None | Some(Failure::Reset));
        assert!(ended, "seed {seed}: {:?}", side.failed);
        assert!(!side.conn.as_ref().unwrap().keeps(), "seed {seed}");
    }
}

#[test]
fn random_schedules_alter_no_byte() {
    for seed in 0..1_500 {
        run(seed);
    }
}

#[test]
fn skipped_numbers_are_not_acknowledged_by_data_of_a_congested_receiver() {
    run(65_215);
}

/// Runs half a million schedules. The environment variable `SCHEDULES` sets a different number of
/// schedules, and `FIRST` sets the first seed.
#[test]
#[ignore = "takes minutes"]
fn many_random_schedules_alter_no_byte() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse().ok())
    };
    let first: u64 = number("FIRST").unwrap_or(10_000);
    let count: u64 = number("SCHEDULES").unwrap_or(500_000);
    for seed in first..first + count {
        run(seed);
    }
    println!("{count} schedules");
}

/// In this test, the reverse path is down for longer than the receiver repeats requests. Then the
/// answer to a probe shows that all of the named packets are missing.
#[test]
fn a_stream_survives_an_outage_of_the_reverse_path() {
    for silent in [10, 20, 40] {
        let mut pair = selective();
        let first = pair.sides[A].conn().next_number();
        let (mut left, mut back) = (false, 0);
        pair.rule(move |from, _, header| {
            let lost = from == A && header.payload() > 0 && first.distance(header.seq) == 20;
            if lost && !left {
                left = true;
                return Fate::Lose;
            }
            if from == B && left && back < silent {
                back += 1;
                return Fate::Lose;
            }
            Fate::Pass
        });
        pair.send(A, &bytes(200 * MSS, 7));
        pair.settle();
        pair.assert_intact();
    }
}
