// SPDX-License-Identifier: GPL-2.0

//! Tests of queries, of their answers, and of the rate limit of answers.

use edp::query::{self, flags, Capabilities, Host};
use edp::{echo, rate, wire};
use proptest::prelude::*;

const HOST: Host = Host {
    largest_datagram: 8_994,
    largest_payload: 8_989,
    burst_length: 21,
    initial_ack_burst_length: 1,
    packets_to_ack: 10,
    mapped: true,
    mapped_v6: false,
};

const NONCE: query::Nonce = [0xaa, 0xbb, 0xcc, 0xdd];

#[test]
fn the_answer_has_every_option_in_its_place() {
    let answer = HOST.answer(NONCE);
    let expected = [
        &[4, 0xaa, 0xbb, 0xcc, 0xdd][..],
        &[1, 1, 1],
        &[2, 2, 0, 7],
        &[3, 2, 0x23, 0x22],
        &[4, 2, 0x23, 0x1d],
        &[5, 4, 0, 21, 0, 1],
        &[6, 2, 0, 10],
    ]
    .concat();
    assert_eq!(answer[..], expected);
    let told = Capabilities {
        version: Some(1),
        flags: Some(flags::ESP | flags::SUMS | flags::MAPPED),
        largest_datagram: Some(8_994),
        largest_payload: Some(8_989),
        window: Some((21, 1)),
        packets_to_ack: Some(10),
    };
    assert_eq!(Capabilities::of_answer(&answer), Some((NONCE, told)));
}

#[test]
fn a_query_is_its_type_and_a_nonce_and_whatever_follows() {
    let bytes = query::query(NONCE);
    assert_eq!(bytes, [3, 0xaa, 0xbb, 0xcc, 0xdd]);
    assert_eq!(query::nonce_of_query(&bytes), Some(NONCE));
    assert_eq!(query::nonce_of_query(&bytes[..4]), None);
    assert_eq!(query::nonce_of_query(&[]), None);
    let longer = [&bytes[..], &[1, 2, 3]].concat();
    assert_eq!(query::nonce_of_query(&longer), Some(NONCE));
    assert_eq!(query::nonce_of_query(&HOST.answer(NONCE)), None);
}

#[test]
fn an_answer_is_no_longer_than_its_query_on_the_wire() {
    // Ethernet pads a shorter payload, such as the query, to 46 bytes.
    let asked = wire::Header {
        src: 0,
        dst: 0,
        len: query::QUERY_LEN as u16,
        has_checksum: true,
    };
    let answer = query::answer_to(&asked);
    assert_eq!(usize::from(answer.len), HOST.answer(NONCE).len());
    let whole =
        wire::HEADER_LEN + usize::from(answer.len) + wire::checksum_len(answer.has_checksum);
    assert!(whole <= 46, "{whole} bytes");
    assert_eq!(wire::HEADER_LEN + query::ANSWER_MAX, 46);
}

#[test]
fn an_answer_goes_back_to_the_port_of_its_query() {
    for (src, has_checksum) in [(0, false), (700, true)] {
        let asked = wire::Header {
            src,
            dst: 0,
            len: 5,
            has_checksum,
        };
        let answer = query::answer_to(&asked);
        assert_eq!(
            (answer.src, answer.dst, answer.has_checksum),
            (0, src, has_checksum),
            "{answer:?}"
        );
        assert_eq!(echo::reply_to(&answer, Some(query::ANSWER)), None);
    }
}

#[test]
fn unknown_options_are_skipped_and_broken_ones_end_the_list() {
    let told = |options: &[u8]| {
        let answer = [&[query::ANSWER, 1, 2, 3, 4], options].concat();
        Capabilities::of_answer(&answer).unwrap().1
    };
    let version = |version| Capabilities {
        version: Some(version),
        ..Capabilities::default()
    };
    assert_eq!(told(&[]), Capabilities::default());
    assert_eq!(told(&[99, 3, 1, 2, 3, 1, 1, 7]), version(7));
    assert_eq!(told(&[1, 1, 7, 1, 1, 8]), version(8));
    assert_eq!(told(&[1, 1, 7, 3, 2, 9]), version(7));
    assert_eq!(told(&[1, 1, 7, 3, 3, 9, 9, 9, 1, 1, 8]), version(7));
    assert_eq!(told(&[1, 1, 7, 99, 200, 1, 1, 8]), version(7));
    assert_eq!(told(&[1, 1, 7, 1]), version(7));
    assert_eq!(told(&[3, 2, 0, 0]).largest_datagram, Some(62));
    assert_eq!(Capabilities::of_answer(&[query::ANSWER, 1, 2, 3]), None);
    assert_eq!(Capabilities::of_answer(&[echo::REPLY, 1, 2, 3, 4]), None);
}

#[test]
fn a_burst_is_answered_at_once_and_then_one_per_interval() {
    let (mut due, mut left) = (0, 0);
    let now = 7 * rate::INTERVAL;
    for _ in 0..5_000 {
        if let Some(next) = rate::admit(due, now) {
            due = next;
            left += 1;
        }
    }
    assert_eq!(left, rate::BURST);
    assert_eq!(rate::admit(due, now + rate::INTERVAL - 1), None);
    let next = rate::admit(due, now + rate::INTERVAL).unwrap();
    assert_eq!(rate::admit(next, now + rate::INTERVAL), None);
    // However long the pause, the next burst is no longer than the first.
    let later = now + 100 * rate::BURST * rate::INTERVAL;
    let again = rate::admit(due, later).unwrap();
    assert_eq!(again, later + rate::INTERVAL);
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(18),
        failure_persistence: None,
        ..ProptestConfig::with_cases(300)
    })]

    #[test]
    fn an_answer_is_read_as_it_was_written(
        numbers in any::<(u16, u16, u16, u16, u16)>(),
        nonce in any::<[u8; 4]>(),
    ) {
        let (datagram, payload, burst_length, initial, packets_to_ack) = numbers;
        let host = Host {
            largest_datagram: datagram.into(),
            largest_payload: payload.into(),
            burst_length,
            initial_ack_burst_length: initial,
            packets_to_ack,
            mapped: false,
            mapped_v6: false,
        };
        let (answered, told) = Capabilities::of_answer(&host.answer(nonce)).unwrap();
        prop_assert_eq!(answered, nonce);
        prop_assert_eq!(told.largest_datagram, Some(datagram.max(62)));
        prop_assert_eq!(told.largest_payload, Some(payload));
        prop_assert_eq!(told.window, Some((burst_length, initial)));
        prop_assert_eq!(told.packets_to_ack, Some(packets_to_ack));
    }

    /// Options keep their meaning if more bytes follow them.
    #[test]
    fn any_bytes_are_options(front in prop::collection::vec(any::<u8>(), 0..40)) {
        let answer = [&[query::ANSWER, 1, 2, 3, 4], &front[..]].concat();
        prop_assert!(Capabilities::of_answer(&answer).is_some());
        let known = [&[query::ANSWER, 1, 2, 3, 4, 6, 2, 0, 9, 200, 0], &front[..]].concat();
        let (_, told) = Capabilities::of_answer(&known).unwrap();
        prop_assert!(told.packets_to_ack.is_some());
    }

    /// In any interval, at most a burst of answers is sent, plus the number of answers that the
    /// rate permits in this interval.
    #[test]
    fn the_rate_holds_over_any_time(steps in prop::collection::vec(0u64..5_000_000, 1..400)) {
        let (mut due, mut now, mut left) = (0, 1, 0);
        for step in &steps {
            now += step;
            if let Some(next) = rate::admit(due, now) {
                due = next;
                left += 1;
            }
        }
        let most = rate::BURST + steps.iter().sum::<u64>() / rate::INTERVAL;
        prop_assert!(left <= most, "{} left, of {}", left, most);
    }
}
