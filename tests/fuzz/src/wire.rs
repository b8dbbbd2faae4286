// SPDX-License-Identifier: GPL-2.0-only

//! Fuzzes the wire formats. The targets check that parsing headers, queries and options returns the
//! values that were encoded. They also check the answers on port 0 and the RST that answers a
//! packet.

use edp::peers::{Bucket, Known, Peer, QUERY_INTERVAL};
use edp::ports::{self, DYNAMIC, REGISTERED};
use edp::query::{self, Capabilities, Host};
use edp::{echo, rate, wire};
use esp::flags;

/// Fuzzes EDP's header, echo packets, queries with their answers, and the choice of a port.
///
/// # Panics
/// If a property does not hold.
pub fn edp_wire(data: &[u8]) {
    let Some(header) = edp::wire::Header::parse(data) else {
        assert!(data.len() < edp::wire::HEADER_LEN);
        return;
    };
    let following = &data[edp::wire::HEADER_LEN..];
    assert_eq!(header.emit(), data[..edp::wire::HEADER_LEN]);
    match header.payload_len(following.len()) {
        Some(len) => {
            assert_eq!(len, usize::from(header.len));
            assert!(len + wire::checksum_len(header.has_checksum) <= following.len());
        }
        None => {
            assert!(
                usize::from(header.len) + wire::checksum_len(header.has_checksum) > following.len()
            );
        }
    }
    if let Some(reply) = echo::reply_to(&header, following.first().copied()) {
        assert_eq!(following.first(), Some(&echo::REQUEST));
        assert_eq!(
            (reply.src, reply.dst, reply.len, reply.has_checksum),
            (0, header.src, header.len, header.has_checksum)
        );
        // A reply does not cause another reply, even if its payload says that it is a request.
        assert_eq!(echo::reply_to(&reply, Some(echo::REQUEST)), None);
    }
    let room = u32::from(header.src);
    assert!(wire::mtu(room, false) <= room);
    assert!(wire::mtu(room, true) <= wire::mtu(room, false));
    control_message(&header, following);
    peers(following);
    rates(following);
    free_port(header.src, following);
}

/// Checks that the answer to a query is no query, and that parsing an answer returns the values
/// that were encoded.
fn control_message(header: &wire::Header, payload: &[u8]) {
    if let Some(nonce) = query::nonce_of_query(payload) {
        assert!(payload.len() >= query::QUERY_LEN && query::query(nonce) == payload[..5]);
        let answer = query::answer_to(header);
        assert_eq!((answer.src, answer.dst), (0, header.src));
        assert_eq!(Capabilities::of_answer(payload), None);
    }
    let Some((nonce, capabilities)) = Capabilities::of_answer(payload) else {
        return;
    };
    let (burst_length, initial_ack_burst_length) = capabilities.window.unwrap_or_default();
    let host = Host {
        largest_datagram: capabilities.largest_datagram.unwrap_or(62).into(),
        largest_payload: capabilities.largest_payload.unwrap_or_default().into(),
        burst_length,
        initial_ack_burst_length,
        packets_to_ack: capabilities.packets_to_ack.unwrap_or_default(),
        mapped: capabilities.flags.unwrap_or_default() & query::flags::MAPPED != 0,
        mapped_v6: capabilities.flags.unwrap_or_default() & query::flags::MAPPED_V6 != 0,
    };
    let answer = host.answer(nonce);
    assert_eq!(query::nonce_of_query(&answer), None);
    assert_eq!(echo::reply_to(header, answer.first().copied()), None);
    let (again, same) = Capabilities::of_answer(&answer).expect("an answer");
    assert_eq!(again, nonce);
    assert_eq!(
        same.largest_datagram.map(u32::from),
        Some(host.largest_datagram)
    );
    assert_eq!(same.window, Some((burst_length, initial_ack_burst_length)));
}

/// Sends datagrams to peers, which answer correctly or not. Each group of three bytes in `steps` is
/// one step.
fn peers(steps: &[u8]) {
    let mut bucket = Bucket::default();
    let mut asked = [(0, [0; 4]); 8];
    let mut now = 1 << 40;
    for (count, step) in steps.chunks_exact(3).enumerate() {
        now += u64::from(step[1]) * 50_000_000;
        let number = usize::from(step[0] % 8);
        let peer = Peer {
            mac: [2, 0, 0, 0, 0, step[0] % 8],
            ifindex: 1,
        };
        let nonce = (count as u32 + 1).to_be_bytes();
        if let Known::Query(nonce) = bucket.look_up(&peer, now, || nonce) {
            let (before, _) = std::mem::replace(&mut asked[number], (now, nonce));
            assert!(before == 0 || now - before >= QUERY_INTERVAL);
        }
        let (_, right) = asked[number];
        let largest = u16::from(step[2]);
        let answer = Capabilities {
            largest_datagram: Some(largest),
            ..Capabilities::default()
        };
        assert!(!bucket.on_answer(&peer, now, [0xff; 4], &answer));
        if step[0] >= 128 && bucket.on_answer(&peer, now, right, &answer) {
            assert_eq!(bucket.largest(&peer, now), Some(largest));
        }
    }
}

/// Checks the rate limit of answers. Each byte of `pauses` is the time before a query, in tenths of
/// a millisecond.
fn rates(pauses: &[u8]) {
    let (mut due, mut now, mut left) = (0, 1, 0);
    for pause in pauses {
        now += u64::from(*pause) * 100_000;
        if let Some(next) = rate::admit(due, now) {
            due = next;
            left += 1;
        }
    }
    assert!(left <= rate::BURST + now / rate::INTERVAL);
}

/// Checks the choice of a port. In each pair of bytes of `runs`, the first byte gives the length of
/// a run of free ports, in units of 64 ports. The second byte gives the length of the run of taken
/// ports that follows, in units of 256 ports.
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

/// Fuzzes ESP's header, the RST that answers a packet, and the options of a SYN.
///
/// # Panics
/// If a property does not hold.
pub fn esp_wire(data: &[u8]) {
    let Some(header) = esp::Header::parse(data) else {
        assert!(data.len() < esp::HEADER_LEN);
        return;
    };
    let following = data.len() - esp::HEADER_LEN;
    assert_eq!(header.emit(), data[..esp::HEADER_LEN]);
    match header.payload_len(following) {
        Some(len) => assert!(len == usize::from(header.payload()) && len <= following),
        None => assert!(usize::from(header.payload()) > following),
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
            assert_eq!(reset.has_checksum(), header.has_checksum());
            assert_eq!(esp::reset_for(&reset), None, "no reset is answered");
            // The peer accepts the RST by one of its two numbers: the sequence number answers a
            // packet with ACK, and the acknowledgement number answers any other packet.
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

/// Checks that parsed options are in range, and that they do not change if they are written and
/// parsed again.
fn options(data: &[u8]) {
    let options = esp::Options::parse(data);
    assert!(options.largest_payload.is_none_or(|payload| payload >= 57));
    let (Some(payload), Some(window)) = (options.largest_payload, options.window) else {
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
        (options.largest_payload, options.window)
    );
}
