// SPDX-License-Identifier: GPL-2.0

//! Tests of the datagram protocol's wire format and of its decisions.

use std::cell::Cell;
use std::collections::HashSet;

use edp::{echo, ports, wire};
use proptest::prelude::*;

fn header() -> impl Strategy<Value = wire::Header> {
    (any::<(u16, u16, bool)>(), 0..=wire::LARGEST).prop_map(|((src, dst, has_checksum), len)| {
        wire::Header {
            src,
            dst,
            len,
            has_checksum,
        }
    })
}

/// Returns the length of the payload together with the checksum, in bytes.
fn end(header: &wire::Header) -> usize {
    usize::from(header.len) + wire::checksum_len(header.has_checksum)
}

#[test]
fn every_field_has_its_place() {
    let header = wire::Header {
        src: 0x0102,
        dst: 0x0304,
        len: 0x0506,
        has_checksum: false,
    };
    assert_eq!(header.emit(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(wire::Header::parse(&[1, 2, 3, 4, 5, 6]), Some(header));
    let with_checksum = wire::Header {
        has_checksum: true,
        ..header
    };
    assert_eq!(with_checksum.emit(), [1, 2, 3, 4, 0x85, 6]);
    assert_eq!(
        wire::Header::parse(&[1, 2, 3, 4, 0x85, 6]),
        Some(with_checksum)
    );
}

#[test]
fn a_checksum_follows_the_payload() {
    let plain = wire::Header {
        src: 1,
        dst: 2,
        len: 10,
        has_checksum: false,
    };
    let with_checksum = wire::Header {
        has_checksum: true,
        ..plain
    };
    assert_eq!(plain.payload_len(10), Some(10));
    assert_eq!(with_checksum.payload_len(13), None);
    assert_eq!(with_checksum.payload_len(14), Some(10));
    assert_eq!(with_checksum.payload_len(46), Some(10));
}

#[test]
fn the_largest_datagram_is_what_the_device_and_the_length_field_allow() {
    assert_eq!(wire::mtu(1_500, false), 1_494);
    assert_eq!(wire::mtu(9_000, false), 8_994);
    assert_eq!(wire::mtu(6, false), 0);
    assert_eq!(wire::mtu(0, false), 0);
    assert_eq!(wire::mtu(32_772, false), 32_766);
    assert_eq!(wire::mtu(32_773, false), 32_767);
    assert_eq!(wire::mtu(32_774, false), 32_767);
    assert_eq!(wire::mtu(u32::MAX, false), 32_767);
    assert_eq!(wire::mtu(1_500, true), 1_490);
    assert_eq!(wire::mtu(10, true), 0);
    assert_eq!(wire::mtu(9, true), 0);
    assert_eq!(wire::mtu(u32::MAX, true), 32_763);
}

#[test]
fn an_echo_reply_goes_to_the_requester() {
    let asked = wire::Header {
        src: 700,
        dst: 0,
        len: 12,
        has_checksum: false,
    };
    let answer = wire::Header {
        src: 0,
        dst: 700,
        ..asked
    };
    assert_eq!(echo::reply_to(&asked, Some(echo::REQUEST)), Some(answer));
    let with_checksum = |header| wire::Header {
        has_checksum: true,
        ..header
    };
    assert_eq!(
        echo::reply_to(&with_checksum(asked), Some(echo::REQUEST)),
        Some(with_checksum(answer))
    );
    assert_eq!(echo::reply_to(&asked, Some(echo::REPLY)), None);
    assert_eq!(echo::reply_to(&asked, Some(0)), None);
    assert_eq!(echo::reply_to(&asked, None), None);
    let to_a_socket = wire::Header { dst: 1, ..asked };
    assert_eq!(echo::reply_to(&to_a_socket, Some(echo::REQUEST)), None);
    let from_port_0 = wire::Header { src: 0, ..asked };
    assert_eq!(echo::reply_to(&from_port_0, Some(echo::REQUEST)), None);
}

fn claim(ifindex: u32, shares: bool, listens: bool) -> ports::Claim {
    ports::Claim {
        ifindex,
        shares,
        listens,
    }
}

#[test]
fn only_sockets_that_share_an_interface_exclude_each_other() {
    let plain = |ifindex| claim(ifindex, false, false);
    assert!(ports::conflicts(plain(0), plain(0)));
    assert!(ports::conflicts(plain(0), plain(3)));
    assert!(ports::conflicts(plain(3), plain(0)));
    assert!(ports::conflicts(plain(3), plain(3)));
    assert!(!ports::conflicts(plain(3), plain(4)));
}

#[test]
fn a_port_is_shared_if_both_agree_and_neither_listens() {
    let (shy, free) = (claim(0, false, false), claim(0, true, false));
    assert!(ports::conflicts(shy, free));
    assert!(ports::conflicts(free, shy));
    assert!(!ports::conflicts(free, free));
    assert!(ports::conflicts(claim(0, true, true), free));
    assert!(!ports::conflicts(
        claim(3, true, true),
        claim(4, true, false)
    ));
}

/// Picks a port while the ports in `taken` are in use.
fn pick(offset: u16, taken: &HashSet<u16>) -> Option<u16> {
    ports::pick(offset, |from| {
        (from..=u16::MAX).find(|p| !taken.contains(p))
    })
}

fn ports_in(range: impl IntoIterator<Item = u16>) -> HashSet<u16> {
    range.into_iter().collect()
}

#[test]
fn the_offset_counts_around_the_dynamic_ports() {
    let none = HashSet::new();
    assert_eq!(pick(0, &none), Some(49_152));
    assert_eq!(pick(848, &none), Some(50_000));
    assert_eq!(pick(16_384 + 848, &none), Some(50_000));
    assert_eq!(pick(848, &ports_in(50_000..=50_009)), Some(50_010));
    assert_eq!(pick(16_383, &ports_in([65_535])), Some(49_152));
    assert_eq!(pick(15_848, &ports_in(49_160..=65_535)), Some(49_152));
}

#[test]
fn the_registered_ports_follow_the_dynamic_ones() {
    let dynamic = ports_in(49_152..=65_535);
    assert_eq!(pick(0, &dynamic), Some(1_024));
    assert_eq!(pick(28_976, &dynamic), Some(30_000));
    assert_eq!(pick(48_128 + 5, &dynamic), Some(1_029));
    let all = ports_in(1_024..=65_535);
    assert_eq!(pick(0, &all), None);
    let all_but_one = ports_in((1_024..=65_535).filter(|p| *p != 30_001));
    assert_eq!(pick(40_000, &all_but_one), Some(30_001));
}

#[test]
fn candidates_are_all_ports_once_the_dynamic_ones_first() {
    for offset in [0, 1, 848, 16_383, 16_384, 48_127, 48_128, u16::MAX] {
        let candidates: Vec<u16> = ports::candidates(offset).collect();
        assert_eq!(candidates[0], 49_152 + offset % 16_384);
        assert_eq!(candidates[16_384], 1_024 + offset % 48_128);
        assert!(candidates[..16_384].iter().all(|p| *p >= 49_152));
        let mut sorted = candidates;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(1_024..=65_535));
    }
}

#[test]
fn a_candidate_comes_again_after_all_other_dynamic_ports() {
    let first = |offset| ports::candidates(offset).next().unwrap();
    let given: HashSet<u16> = (60_000..=u16::MAX).chain(0..10_848).map(first).collect();
    assert_eq!(given.len(), 16_384);
    assert_eq!(first(10_848), first(60_000));
}

#[test]
fn the_usual_choice_asks_once() {
    let asked = Cell::new(0);
    let picked = ports::pick(77, |from| {
        asked.set(asked.get() + 1);
        Some(from)
    });
    assert_eq!(picked, Some(49_229));
    assert_eq!(asked.get(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(17),
        failure_persistence: None,
        ..ProptestConfig::with_cases(300)
    })]

    #[test]
    fn what_is_emitted_is_parsed(header in header(), tail in any::<Vec<u8>>()) {
        let mut bytes = header.emit().to_vec();
        bytes.extend(tail);
        prop_assert_eq!(wire::Header::parse(&bytes), Some(header));
    }

    #[test]
    fn any_bytes_are_a_header_or_too_short(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
        match wire::Header::parse(&bytes) {
            None => prop_assert!(bytes.len() < wire::HEADER_LEN),
            Some(header) => prop_assert_eq!(&header.emit()[..], &bytes[..wire::HEADER_LEN]),
        }
    }

    #[test]
    fn a_length_never_reaches_behind_the_frame(header in header(), following in 0usize..70_000) {
        match header.payload_len(following) {
            None => prop_assert!(end(&header) > following),
            Some(len) => {
                prop_assert!(end(&header) <= following);
                prop_assert_eq!(len, usize::from(header.len));
            }
        }
    }

    #[test]
    fn an_answer_is_never_answered(header in header(), first in any::<Option<u8>>()) {
        if let Some(answer) = echo::reply_to(&header, first) {
            prop_assert_eq!(answer.src, 0);
            prop_assert_ne!(answer.dst, 0);
            prop_assert_eq!(echo::reply_to(&answer, Some(echo::REPLY)), None);
        }
    }

    /// The search finds a free port from any offset.
    #[test]
    fn a_free_port_is_found_from_everywhere(
        offset in any::<u16>(),
        free in prop::collection::hash_set(49_152u16..=65_535, 1..40),
    ) {
        let next_free = |from| free.iter().copied().filter(|p| *p >= from).min();
        let port = ports::pick(offset, next_free).unwrap();
        prop_assert!(free.contains(&port));
    }
}
