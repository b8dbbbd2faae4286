// SPDX-License-Identifier: GPL-2.0-only

//! Headers: what is read is what is written, and what is answered.

use edp::echo;
use edp::ports::{self, DYNAMIC, REGISTERED};
use esp::flags;

/// EDP's header, its echo, and the choice of a port.
///
/// # Panics
/// When something does not hold, as all targets.
pub fn edp_wire(data: &[u8]) {
    let Some(header) = edp::wire::Header::parse(data) else {
        assert!(data.len() < edp::wire::HEADER_LEN);
        return;
    };
    let following = &data[edp::wire::HEADER_LEN..];
    assert_eq!(header.emit(), data[..edp::wire::HEADER_LEN]);
    match header.payload_len(following.len()) {
        Some(len) => assert!(len == usize::from(header.len) && len <= following.len()),
        None => assert!(usize::from(header.len) > following.len()),
    }
    if let Some(reply) = echo::reply_to(&header, following.first().copied()) {
        assert_eq!(following.first(), Some(&echo::REQUEST));
        assert_eq!(
            (reply.src, reply.dst, reply.len),
            (0, header.src, header.len)
        );
        // Not even a host that takes the reply for a request answers it.
        assert_eq!(echo::reply_to(&reply, Some(echo::REQUEST)), None);
    }
    assert!(edp::wire::mtu(u32::from(header.src)) <= u32::from(header.src));
    free_port(header.src, following);
}

/// Ports are taken by runs, each of two bytes: so many are free, then so many are not.
fn free_port(rover: u16, runs: &[u8]) {
    let mut taken = vec![false; 1 << 16];
    let mut at = usize::from(rover);
    for run in runs.chunks_exact(2) {
        at += usize::from(run[0]) * 64;
        for _ in 0..usize::from(run[1]) * 256 {
            taken[at % (1 << 16)] = true;
            at += 1;
        }
    }
    let next_free = |from: u16| (from..=u16::MAX).find(|port| !taken[usize::from(*port)]);
    let is_free = |port: &u16| !taken[usize::from(*port)];
    match ports::pick(rover, next_free) {
        Some(port) => {
            assert!(is_free(&port));
            assert!(DYNAMIC.contains(&port) || !DYNAMIC.clone().any(|port| is_free(&port)));
            assert!(port >= *REGISTERED.start());
        }
        None => assert!(!REGISTERED.chain(DYNAMIC).any(|port| is_free(&port))),
    }
}

/// ESP's header, the RST that answers it, and the options of a SYN.
///
/// # Panics
/// When something does not hold, as all targets.
pub fn esp_wire(data: &[u8]) {
    let Some(header) = esp::Header::parse(data) else {
        assert!(data.len() < esp::HEADER_LEN);
        return;
    };
    let following = data.len() - esp::HEADER_LEN;
    assert_eq!(header.emit(), data[..esp::HEADER_LEN]);
    match header.payload_len(following) {
        Some(len) => assert!(len == usize::from(header.len) && len <= following),
        None => assert!(usize::from(header.len) > following),
    }
    if header.opens() {
        assert!(header.has(flags::SYN) && header.takes_number());
        assert!(!header.has(flags::ACK | flags::FIN | flags::RST));
        options(&data[esp::HEADER_LEN..]);
    }
    match esp::reset_for(&header) {
        None => assert!(header.has(flags::RST)),
        Some(reset) => {
            assert!(reset.has(flags::RST) && !reset.takes_number());
            assert_eq!((reset.src, reset.dst), (header.dst, header.src));
            assert_eq!(reset.is_summed(), header.is_summed());
            assert_eq!(esp::reset_for(&reset), None, "no reset is answered");
            // One of the two numbers is what the other side believes it by.
            if header.has(flags::ACK) {
                assert_eq!(reset.seq, header.ack);
            } else {
                assert!(reset.has(flags::ACK));
                let behind = u16::from(header.takes_number());
                assert_eq!(reset.ack, header.seq.add(behind));
            }
        }
    }
    assert!(esp::mss(u32::from(header.src)) <= u32::from(header.src));
}

/// What is read is in its range, and what is written of it is read again.
fn options(data: &[u8]) {
    let told = esp::Options::parse(data);
    assert!(told.largest_payload.is_none_or(|payload| payload >= 57));
    let (Some(payload), Some(window)) = (told.largest_payload, told.window) else {
        return;
    };
    assert!((1..=0x7fff).contains(&window.burst_length));
    assert!(window.initial_ack_burst_length <= window.burst_length);
    let config = esp::Config {
        burst_length: window.burst_length,
        initial_ack_burst_length: window.initial_ack_burst_length,
        ..esp::Config::default()
    };
    let again = esp::Options::parse(&esp::Options::emit(payload.into(), &config));
    assert_eq!(
        (again.largest_payload, again.window),
        (told.largest_payload, told.window)
    );
}
