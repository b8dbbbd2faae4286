// SPDX-License-Identifier: GPL-2.0

//! Tests with the vectors of `docs/edp-vectors.txt`: for given bytes of input, the bytes of output.

use edp::query::{self, Host};
use edp::wire::{Header, CHECKSUM_LEN, HEADER_LEN};
use edp::{echo, wire};

const VECTORS: &str = include_str!("../../docs/edp-vectors.txt");

const HOST: Host = Host {
    largest_datagram: wire::mtu(9000, false),
    largest_payload: 8989,
    burst_length: 21,
    initial_ack_burst_length: 1,
    packets_to_ack: 10,
    mapped: true,
    mapped_v6: false,
};

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
    digits
        .map(|pair| byte(pair).expect("hexadecimal"))
        .collect()
}

/// Returns the packet that a host sends when `packet` arrives.
fn answer(packet: &[u8]) -> Option<Vec<u8>> {
    let header = Header::parse(packet)?;
    let len = header.payload_len(packet.len() - HEADER_LEN)?;
    let (before, behind) = packet.split_at(HEADER_LEN + len);
    if header.has_checksum && behind[..CHECKSUM_LEN] != crc32c::crc32c(before).to_be_bytes() {
        return None;
    }
    let payload = &before[HEADER_LEN..];
    let (header, payload) = match query::nonce_of_query(payload) {
        Some(nonce) => (query::answer_to(&header), HOST.answer(nonce).to_vec()),
        None => {
            let reply = echo::reply_to(&header, payload.first().copied())?;
            (reply, [&[echo::REPLY], &payload[1..]].concat())
        }
    };
    assert_eq!(usize::from(header.len), payload.len());
    let mut packet = [&header.emit()[..], &payload].concat();
    if header.has_checksum {
        packet.extend_from_slice(&crc32c::crc32c(&packet).to_be_bytes());
    }
    Some(packet)
}

#[test]
fn the_documented_exchanges_take_place() {
    let mut out = None;
    let mut answers = 0;
    for (number, line) in (1..).zip(VECTORS.lines()) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "" | "#" | "=" => {}
            "in" => out = answer(&bytes(rest)),
            "out" => {
                assert_eq!(out.take(), Some(bytes(rest)), "line {number}");
                answers += 1;
            }
            "nothing" => assert_eq!(out, None, "line {number}"),
            _ => panic!("line {number}: a verb is expected"),
        }
    }
    assert!(answers > 6);
}
