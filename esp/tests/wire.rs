// SPDX-License-Identifier: GPL-2.0

//! Tests of the wire format, byte for byte and with hostile bytes.

use esp::{flags, mss, reset_for, Header, Seq, HEADER_LEN};
use proptest::prelude::*;

fn header() -> impl Strategy<Value = Header> {
    any::<(u16, u16, u16, u16, u16, u8)>().prop_map(|(src, dst, len, seq, ack, flags)| Header {
        src,
        dst,
        len,
        seq: Seq(seq),
        ack: Seq(ack),
        flags,
    })
}

#[test]
fn every_field_has_its_place() {
    let header = Header {
        src: 0x0102,
        dst: 0x0304,
        len: 0x0506,
        seq: Seq(0x0708),
        ack: Seq(0x090a),
        flags: 0x0b,
    };
    let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
    assert_eq!(header.emit(), bytes);
    assert_eq!(Header::parse(&bytes), Some(header));
}

#[test]
fn flags_have_the_documented_bits() {
    use flags::*;
    assert_eq!([SYN, ACK, FIN, RST], [1, 2, 4, 8]);
    assert_eq!([RRQ, TXS, TXF], [0x10, 0x20, 0x40]);
}

#[test]
fn the_largest_packet_is_what_the_device_and_the_length_field_allow() {
    assert_eq!(mss(1_500), 1_489);
    assert_eq!(mss(9_000), 8_989);
    assert_eq!(mss(11), 0);
    assert_eq!(mss(0), 0);
    assert_eq!(mss(65_546), 65_535);
    assert_eq!(mss(u32::MAX), 65_535);
}

#[test]
fn serial_numbers_wrap() {
    let (old, new) = (Seq(65_535), Seq(2));
    assert!(old.before(new) && new.after(old));
    assert!(!new.before(old) && !old.after(new));
    assert!(!old.before(old) && !old.after(old));
    assert_eq!(old.add(3), new);
    assert_eq!(new.sub(3), old);
    assert_eq!(old.distance(new), 3);
}

#[test]
fn a_syn_to_nobody_is_refused_as_its_sender_expects() {
    let syn = Header {
        src: 7,
        dst: 9,
        len: 0,
        seq: Seq(65_535),
        ack: Seq(0),
        flags: flags::SYN,
    };
    let reset = Header {
        src: 9,
        dst: 7,
        len: 0,
        seq: Seq(0),
        ack: Seq(0),
        flags: flags::RST | flags::ACK,
    };
    assert!(syn.opens());
    assert_eq!(reset_for(&syn), Some(reset));
    assert_eq!(reset_for(&reset), None);
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(11),
        failure_persistence: None,
        ..ProptestConfig::with_cases(500)
    })]

    #[test]
    fn what_is_emitted_is_parsed(header in header(), tail in any::<Vec<u8>>()) {
        let mut bytes = header.emit().to_vec();
        bytes.extend(tail);
        prop_assert_eq!(Header::parse(&bytes), Some(header));
    }

    #[test]
    fn any_bytes_are_a_header_or_too_short(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        match Header::parse(&bytes) {
            None => prop_assert!(bytes.len() < HEADER_LEN),
            Some(header) => prop_assert_eq!(&header.emit()[..], &bytes[..HEADER_LEN]),
        }
    }

    #[test]
    fn a_length_never_reaches_behind_the_frame(header in header(), following in 0usize..70_000) {
        match header.payload_len(following) {
            None => prop_assert!(usize::from(header.len) > following),
            Some(len) => {
                prop_assert!(len <= following);
                let empty = header.is_grant() || header.is_skip();
                let told = if empty { 0 } else { header.len };
                prop_assert_eq!(len, usize::from(told));
            }
        }
    }

    #[test]
    fn a_reset_is_never_answered_and_all_else_once(header in header()) {
        match reset_for(&header) {
            None => prop_assert!(header.has(flags::RST)),
            Some(reset) => {
                prop_assert_eq!((reset.src, reset.dst), (header.dst, header.src));
                prop_assert_eq!(reset.len, 0);
                let (seq, bits) = if header.has(flags::ACK) {
                    (header.ack, flags::RST)
                } else {
                    (Seq(0), flags::RST | flags::ACK)
                };
                let bits = bits | (header.flags & flags::CRC);
                prop_assert_eq!((reset.seq, reset.flags), (seq, bits));
                let empty = header.is_grant() || header.is_skip() || header.names_missing();
                let takes = (header.len > 0 && !empty) || header.has(flags::SYN | flags::FIN);
                prop_assert_eq!(reset.ack, header.seq.add(u16::from(takes)));
                prop_assert_eq!(reset_for(&reset), None);
            }
        }
    }

    #[test]
    fn order_follows_distance(a in any::<u16>(), n in 1u16..1 << 15) {
        let (a, b) = (Seq(a), Seq(a).add(n));
        prop_assert!(a.before(b) && b.after(a) && !b.before(a));
        prop_assert_eq!(a.distance(b), n);
        prop_assert_eq!(b.sub(n), a);
    }
}
