// SPDX-License-Identifier: GPL-2.0

//! The datagram protocol's wire format and its decisions.

use std::cell::Cell;
use std::collections::HashSet;

use edp::{echo, ports, wire};
use proptest::prelude::*;

fn header() -> impl Strategy<Value = wire::Header> {
    any::<(u16, u16, u16)>().prop_map(|(src, dst, len)| wire::Header { src, dst, len })
}

#[test]
fn every_field_has_its_place() {
    let header = wire::Header {
        src: 0x0102,
        dst: 0x0304,
        len: 0x0506,
    };
    assert_eq!(header.emit(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(wire::Header::parse(&[1, 2, 3, 4, 5, 6]), Some(header));
}

#[test]
fn the_largest_datagram_is_what_the_device_and_the_length_field_allow() {
    assert_eq!(wire::mtu(1_500), 1_494);
    assert_eq!(wire::mtu(9_000), 8_994);
    assert_eq!(wire::mtu(6), 0);
    assert_eq!(wire::mtu(0), 0);
    assert_eq!(wire::mtu(65_541), 65_535);
    assert_eq!(wire::mtu(u32::MAX), 65_535);
}

#[test]
fn a_request_is_answered_to_its_asker() {
    let asked = wire::Header {
        src: 700,
        dst: 0,
        len: 12,
    };
    let answer = wire::Header {
        src: 0,
        dst: 700,
        len: 12,
    };
    assert_eq!(echo::reply_to(&asked, Some(echo::REQUEST)), Some(answer));
    assert_eq!(echo::reply_to(&asked, Some(echo::REPLY)), None);
    assert_eq!(echo::reply_to(&asked, Some(0)), None);
    assert_eq!(echo::reply_to(&asked, None), None);
    let to_a_socket = wire::Header { dst: 1, ..asked };
    assert_eq!(echo::reply_to(&to_a_socket, Some(echo::REQUEST)), None);
    let from_port_0 = wire::Header { src: 0, ..asked };
    assert_eq!(echo::reply_to(&from_port_0, Some(echo::REQUEST)), None);
}

#[test]
fn only_sockets_that_share_an_interface_exclude_each_other() {
    assert!(ports::conflicts(0, 0));
    assert!(ports::conflicts(0, 3));
    assert!(ports::conflicts(3, 0));
    assert!(ports::conflicts(3, 3));
    assert!(!ports::conflicts(3, 4));
}

/// A table of sockets as the caller of [`ports::pick`] keeps it.
struct Table {
    buckets: usize,
    taken: HashSet<u16>,
}

impl Table {
    fn new(buckets: usize, taken: impl IntoIterator<Item = u16>) -> Self {
        Self {
            buckets,
            taken: taken.into_iter().collect(),
        }
    }

    fn load(&self, bucket: usize) -> u32 {
        let held = |p: &&u16| usize::from(**p) % self.buckets == bucket;
        self.taken.iter().filter(held).count() as u32
    }

    fn pick(&self, rover: u16) -> Option<u16> {
        ports::pick(
            self.buckets,
            rover,
            |b| self.load(b),
            |p| self.taken.contains(&p),
        )
    }
}

#[test]
fn the_rover_chooses_among_equally_full_buckets() {
    let table = Table::new(64, []);
    assert_eq!(table.pick(0), Some(49_152));
    assert_eq!(table.pick(5), Some(49_157));
    assert_eq!(table.pick(64 + 5), Some(49_157));
}

#[test]
fn the_emptiest_bucket_is_taken_first() {
    // Every bucket holds one but the 17th.
    let table = Table::new(64, (0..64).filter(|p| *p != 17));
    assert_eq!(table.pick(30), Some(49_152 + 17));
}

#[test]
fn a_full_bucket_gives_way_to_the_next_emptiest() {
    // Bucket 3 is the emptiest by its count and yet has no port left.
    let picked = ports::pick(4, 0, |b| [5, 3, 4, 0][b], |p| p % 4 == 3);
    assert_eq!(picked, Some(49_153));
    let picked = ports::pick(4, 0, |b| [5, 3, 4, 0][b], |p| p % 4 == 3 || p % 4 == 1);
    assert_eq!(picked, Some(49_154));
}

#[test]
fn the_registered_ports_follow_the_dynamic_ones() {
    let table = Table::new(16, 49_152..=65_535);
    assert_eq!(table.pick(0), Some(1_024));
    let table = Table::new(16, 1_024..=65_535);
    assert_eq!(table.pick(0), None);
    let table = Table::new(16, (1_024..=65_535).filter(|p| *p != 30_001));
    assert_eq!(table.pick(9), Some(30_001));
}

#[test]
fn the_usual_choice_asks_for_one_port() {
    let asked = Cell::new(0);
    let picked = ports::pick(
        256,
        77,
        |_| 0,
        |_| {
            asked.set(asked.get() + 1);
            false
        },
    );
    assert_eq!(picked, Some(49_152 + 77));
    assert_eq!(asked.get(), 1);
}

#[test]
fn odd_tables_are_no_reason_to_panic() {
    assert_eq!(ports::pick(0, 1, |_| 0, |_| false), None);
    assert_eq!(ports::pick(1, 1, |_| 0, |_| false), Some(49_152));
    assert!(ports::pick(1 << 17, 40_000, |_| 0, |_| false).is_some());
    assert_eq!(ports::pick(3, 2, |_| u32::MAX, |_| false), Some(49_154));
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
            None => prop_assert!(usize::from(header.len) > following),
            Some(len) => prop_assert!(len <= following && len == usize::from(header.len)),
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

    /// Against a model that sorts all buckets.
    #[test]
    fn the_choice_is_the_documented_one(
        bits in 0u32..7,
        rover in any::<u16>(),
        taken in prop::collection::hash_set(49_152u16..49_300, 0..140),
    ) {
        let table = Table::new(1 << bits, taken);
        let n = table.buckets;
        let start = usize::from(rover) % n;
        let best = (0..n)
            .map(|d| (table.load((start + d) % n), d, (start + d) % n))
            .min()
            .map(|(_, _, bucket)| bucket);
        let port = (49_152..=65_535u16)
            .find(|p| Some(usize::from(*p) % n) == best && !table.taken.contains(p));
        prop_assert_eq!(table.pick(rover), port);
    }
}
