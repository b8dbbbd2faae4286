// SPDX-License-Identifier: GPL-2.0

//! Tests of records. Each record arrives whole, once and in order. Both ends must support records,
//! and a peer that breaks the rules ends the connection.

use esp::options::{Options, OPTIONS_LEN, OPTIONS_MAX, RECORDS_LEN};
use esp::records::{largest_record, Kind, LEAST_RECORD};
use esp::{flags, Config, Failure, Header, Seq, State};
use esp_testkit::pair::*;
use proptest::prelude::*;

const DATA: u8 = flags::ACK;
const STARTS: u8 = flags::ACK | flags::TXS;
const ENDS: u8 = flags::ACK | flags::TXF;
const WHOLE: u8 = flags::ACK | flags::TXS | flags::TXF;

/// Returns a pair whose sides have records and do not read on their own.
fn pair() -> Pair {
    let mut pair = Pair::new();
    for side in &mut pair.sides {
        side.sends_options = true;
        side.records = Some(Kind::plain(LEAST_RECORD));
        side.reads = false;
    }
    pair
}

fn established() -> Pair {
    pair().establish()
}

fn send(pair: &mut Pair, from: usize, record: &[u8]) -> bool {
    use esp_testkit::Host;
    let now = pair.now;
    pair.send_record(from, record.to_vec().into(), now)
}

/// Reads all queued records.
fn read(pair: &mut Pair, at: usize) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let now = pair.now;
    while let Some(record) = pair.sides[at].read_record(false, now) {
        records.push(record.into());
    }
    pair.transmit(at);
    records
}

/// Sends records of these lengths from A to B while the pair runs, and fails unless they arrive
/// unchanged.
fn converse(pair: &mut Pair, lengths: &[usize], pause: u64) {
    let sent: Vec<_> = (0u64..)
        .zip(lengths)
        .map(|(seed, len)| bytes(*len, seed))
        .collect();
    let (mut begun, mut got) = (0, Vec::new());
    let limit = pair.now + 600 * S;
    while got.len() < sent.len() {
        while begun < sent.len() && pair.sides[A].conn().unacked() < 200 {
            assert!(send(pair, A, &sent[begun]));
            begun += 1;
        }
        pair.run_for(pause);
        got.extend(read(pair, B));
        assert!(pair.now < limit, "not done in bounded time: {pair:?}");
    }
    assert!(got == sent, "other records than were sent");
    pair.close(A);
    pair.close(B);
    pair.settle();
    for side in &pair.sides {
        assert!(side.eof);
        assert_eq!((side.failed, side.to_read()), (None, 0));
    }
}

#[test]
fn the_option_is_as_documented() {
    let bytes = Options::emit_records(Kind::plain(0x0102_0304));
    assert_eq!(bytes, [9, 4, 1, 2, 3, 4]);
    assert_eq!(
        Options::parse(&bytes).records,
        Some(Kind::plain(0x0102_0304))
    );
    for cut in 0..RECORDS_LEN {
        assert_eq!(Options::parse(&bytes[..cut]).records, None);
    }
    assert_eq!(Options::parse(&[9, 3, 1, 2, 3]).records, None);
    assert_eq!(Options::parse(&[9, 5, 1, 2, 3, 4, 5]).records, None);
    // Every host accepts records of `LEAST_RECORD` bytes, so a shorter length in the option is
    // raised to `LEAST_RECORD`.
    let short = Options::emit_records(Kind::plain(7));
    assert_eq!(
        Options::parse(&short).records,
        Some(Kind::plain(LEAST_RECORD))
    );
    assert_eq!(largest_record(0), LEAST_RECORD);
    assert_eq!(largest_record(1_000_000), 1_000_000);
    assert!(largest_record(u32::MAX) < u32::MAX);
    let channel = Kind {
        largest: 0x0102_0304,
        is_channel: true,
    };
    let bytes = Options::emit_records(channel);
    assert_eq!(bytes, [9, 4, 0x81, 2, 3, 4]);
    assert_eq!(Options::parse(&bytes).records, Some(channel));
    let bytes = Options::emit_records(Kind::plain(0x0102_0304));
    let all = [&Options::emit(1489, &Config::default())[..], &bytes].concat();
    assert_eq!(all.len(), OPTIONS_LEN + RECORDS_LEN);
    assert!(all.len() <= OPTIONS_MAX);
    let told = Options::parse(&all);
    assert_eq!(
        (told.records, told.largest_payload),
        (Some(Kind::plain(0x0102_0304)), Some(1489))
    );
}

#[test]
fn both_ends_learn_the_others_longest_record() {
    let mut pair = pair();
    pair.sides[A].records = Some(Kind::plain(100_000));
    pair.sides[B].records = Some(Kind::plain(70_000));
    let mut pair = pair.establish();
    assert_eq!(pair.sides[A].conn().largest_record(), 70_000);
    assert_eq!(pair.sides[B].conn().largest_record(), 100_000);
    assert!(!send(&mut pair, A, &bytes(70_001, 1)));
    assert!(send(&mut pair, A, &bytes(70_000, 1)));
    pair.settle();
    assert_eq!(read(&mut pair, B), [bytes(70_000, 1)]);
}

#[test]
fn a_records_first_packet_has_txs_and_its_last_one_txf() {
    let mut pair = established();
    for len in [1, 100, 101, 250, 99] {
        assert!(send(&mut pair, A, &bytes(len, 1)));
    }
    pair.settle();
    let flags: Vec<_> = pair
        .data_sent(A)
        .iter()
        .map(|header| header.flags)
        .collect();
    assert_eq!(
        flags,
        [WHOLE, WHOLE, STARTS, ENDS, STARTS, DATA, ENDS, WHOLE]
    );
    let lengths: Vec<_> = read(&mut pair, B).iter().map(Vec::len).collect();
    assert_eq!(lengths, [1, 100, 101, 250, 99]);
}

#[test]
fn an_incomplete_record_cannot_be_read() {
    let mut pair = established();
    pair.lose_matching(A, 1, |header| header.flags == ENDS);
    assert!(send(&mut pair, A, &bytes(200, 1)));
    pair.run_for(500 * US);
    assert_eq!(pair.sides[B].to_read(), 1);
    assert_eq!(read(&mut pair, B), Vec::<Vec<u8>>::new());
    pair.settle();
    assert_eq!(read(&mut pair, B), [bytes(200, 1)]);
}

#[test]
fn a_record_longer_than_the_receive_buffer_arrives() {
    for lose in [false, true] {
        let mut pair = pair();
        for side in &mut pair.sides {
            side.limit = 3_000;
        }
        let mut pair = pair.establish();
        if lose {
            let mut n = 0;
            pair.rule(move |from, _, header| {
                n += 1;
                if from == A && header.payload() > 0 && n % 7 == 0 {
                    Fate::Lose
                } else {
                    Fate::Pass
                }
            });
        }
        // The second record is sent only after the first was read, because only then is there room
        // for it.
        let records = [bytes(60_000, 1), bytes(50_000, 2)];
        for record in &records {
            assert!(send(&mut pair, A, record));
        }
        pair.run_for(2 * S);
        assert_eq!(read(&mut pair, B), [records[0].clone()]);
        pair.run_for(2 * S);
        assert_eq!(read(&mut pair, B), [records[1].clone()]);
        assert_eq!(pair.sides[A].failed, None);
    }
}

#[test]
fn packets_of_a_smaller_size_keep_the_bounds() {
    let mut pair = established();
    pair.lose_matching(A, 3, |header| header.payload() > 0);
    let records = [bytes(450, 1), bytes(20, 2), bytes(100, 3)];
    for record in &records {
        assert!(send(&mut pair, A, record));
    }
    pair.run_for(100 * US);
    pair.shrink(A, 33);
    pair.settle();
    assert_eq!(read(&mut pair, B), records);
}

#[test]
fn ends_with_records_of_different_kinds_refuse_each_other() {
    let plain = Kind::plain(LEAST_RECORD);
    let channel = Kind {
        is_channel: true,
        ..plain
    };
    for (connects, listens) in [
        (None, Some(plain)),
        (Some(plain), None),
        (Some(channel), Some(plain)),
        (Some(plain), Some(channel)),
        (Some(channel), None),
    ] {
        let mut pair = pair();
        pair.sides[A].records = connects;
        pair.sides[B].records = listens;
        pair.connect();
        pair.run_for(S);
        assert_eq!(pair.sides[A].failed, Some(Failure::Refused));
        assert!(!pair.sides[A].established && pair.sides[B].conn.is_none());
    }
}

#[test]
fn syns_of_both_kinds_that_cross_refuse_each_other() {
    let mut pair = pair();
    pair.sides[A].records = None;
    pair.sides[B].listens = false;
    pair.connect_from(A);
    pair.connect_from(B);
    pair.run_for(S);
    for side in &pair.sides {
        assert!(!side.established);
        assert_eq!(side.failed, Some(Failure::Refused));
    }
}

#[test]
fn syns_with_records_that_cross_open_a_connection() {
    let mut pair = pair();
    pair.sides[B].listens = false;
    pair.connect_from(A);
    pair.connect_from(B);
    pair.run_until(|pair| pair.sides.iter().all(|side| side.established));
    pair.settle();
    converse(&mut pair, &[300, 1, 70], MS);
}

/// A host that does not know the option for records answers without it.
#[test]
fn a_peer_that_does_not_know_records_is_refused() {
    let mut pair = pair();
    pair.sides[B].listens = false;
    pair.connect();
    let answer = Header {
        src: PORTS[B],
        dst: PORTS[A],
        len: 0,
        seq: Seq(7),
        ack: pair.sides[A].isn.add(1),
        flags: flags::SYN | flags::ACK,
    };
    pair.restart_log();
    let outcome = pair.receive(A, &answer, &[]);
    assert_eq!(outcome.failed, Some(Failure::Refused));
    assert_eq!(pair.sides[A].state(), State::Closed);
    let sent = pair.sent_by(A, |_| true);
    assert_eq!(sent.len(), 1, "a RST leaves: {sent:?}");
    assert!(sent[0].has(flags::RST));
    assert_eq!((sent[0].seq, sent[0].ack), (answer.ack, Seq(8)));
}

/// Sends these packets to B in a row, with the right numbers. Each packet is given by its flags and
/// its number of bytes.
fn hostile(packets: &[(u8, usize)]) -> Pair {
    let mut pair = established();
    let seq = pair.sides[A].conn().cursor();
    let ack = pair.sides[B].conn().first_unacked();
    for (i, (flags, len)) in packets.iter().enumerate() {
        let header = Header {
            src: PORTS[A],
            dst: PORTS[B],
            len: *len as u16,
            seq: seq.add(i as u16),
            ack,
            flags: *flags,
        };
        if pair.sides[B].state() != State::Closed {
            let _ = pair.receive(B, &header, &bytes(*len, 1));
        }
    }
    pair
}

#[test]
fn a_peer_that_breaks_a_record_ends_the_connection() {
    let broken: [(&str, &[(u8, usize)]); 5] = [
        ("a record within a record", &[(STARTS, 10), (STARTS, 10)]),
        ("the same, of one packet", &[(STARTS, 10), (WHOLE, 10)]),
        ("data without a record", &[(DATA, 10)]),
        ("the end of no record", &[(WHOLE, 10), (ENDS, 10)]),
        (
            "the end within a record",
            &[(STARTS, 10), (DATA, 10), (flags::FIN | flags::ACK, 0)],
        ),
    ];
    for (what, packets) in broken {
        let mut pair = hostile(packets);
        assert_eq!(pair.sides[B].failed, Some(Failure::Reset), "{what}");
        assert!(pair
            .log
            .iter()
            .any(|s| s.from == B && s.header.has(flags::RST)));
        let whole = usize::from(packets[0].0 == WHOLE);
        assert_eq!(
            read(&mut pair, B).len(),
            whole,
            "{what}: whole records are read"
        );
        assert!(!pair.sides[B].eof, "{what}");
    }
}

#[test]
fn a_record_that_never_ends_ends_at_the_longest_one() {
    let mut endless = vec![(STARTS, 100)];
    endless.extend([(DATA, 100); 2_000]);
    let mut pair = hostile(&endless);
    assert_eq!(pair.sides[B].failed, Some(Failure::Reset));
    assert_eq!(pair.sides[B].to_read(), LEAST_RECORD as usize / 100);
    assert_eq!(read(&mut pair, B), Vec::<Vec<u8>>::new());
}

#[test]
fn a_flood_of_short_records_is_held_up_by_a_full_buffer() {
    let mut pair = pair();
    pair.sides[B].limit = 20_000;
    let mut pair = pair.establish();
    for _ in 0..2_000 {
        assert!(send(&mut pair, A, &[1]));
    }
    pair.run_for(5 * S);
    let burst = Config::default().burst_length;
    assert!(
        pair.sides[B].to_read() <= 100 + usize::from(burst),
        "{}",
        pair.sides[B].to_read()
    );
    let mut got = 0;
    while got < 2_000 {
        got += read(&mut pair, B).len();
        pair.run_for(MS);
    }
    assert_eq!(pair.sides[A].failed, None);
}

#[test]
fn an_empty_record_is_not_sent() {
    let mut pair = established();
    assert!(!send(&mut pair, A, &[]));
    assert_eq!(pair.sides[A].to_send(), 0);
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Pass),
        2 => Just(Fate::Lose),
        1 => Just(Fate::Twice),
        1 => (1u64..3_000).prop_map(|us| Fate::Late(us * US)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn records_arrive_whole_once_and_in_order(
        lengths in prop::collection::vec(prop_oneof![1..250_usize, 1..6_000_usize], 1..40),
        fates in prop::collection::vec(fate(), 1..400),
        limit in prop_oneof![Just(1_000_u32), Just(20_000), Just(1 << 20)],
        pause in 1..3_000_u64,
    ) {
        let mut pair = pair();
        pair.sides[B].limit = limit;
        let mut pair = pair.establish();
        let mut fates = fates.into_iter();
        pair.rule(move |_, _, _| fates.next().unwrap_or(Fate::Pass));
        converse(&mut pair, &lengths, pause * US);
    }

    /// Any packets with the right numbers cause no panic, and only whole records can be read.
    #[test]
    fn a_hostile_peer_cannot_have_a_part_of_a_record_read(
        packets in prop::collection::vec(
            (prop_oneof![Just(DATA), Just(STARTS), Just(ENDS), Just(WHOLE), any::<u8>()], 0..100_usize),
            1..60),
    ) {
        let mut open = None;
        let mut whole = Vec::new();
        for (flags, len) in &packets {
            let data = *len > 0 && flags & !(flags::TXS | flags::TXF) == flags::ACK;
            if !data {
                break;
            }
            if (flags & flags::TXS != 0) == open.is_some() {
                break;
            }
            let length = open.unwrap_or(0) + len;
            open = Some(length);
            if flags & flags::TXF != 0 {
                whole.push(length);
                open = None;
            }
        }
        let mut pair = hostile(&packets);
        let lengths: Vec<_> = read(&mut pair, B).iter().map(Vec::len).collect();
        prop_assert!(lengths.starts_with(&whole), "{lengths:?}, expected {whole:?}");
    }
}
