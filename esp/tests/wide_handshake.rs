// SPDX-License-Identifier: GPL-2.0

//! Tests of how a SYN or SYN|ACK tells the largest window that a grant can give. The two ends must
//! agree on it for the life of the connection, because it decides how grants are read.

use esp::{flags, Config, Connection, Header, Options, Room, Seq, State};
use esp_testkit::pair::*;

/// The flags of an acknowledgement with a grant.
const GRANT: u8 = flags::ACK | flags::RRQ | flags::TXF;

/// The length field of a wide grant of 42 and 2,000 packets. As two bytes it is 213 and 244.
const WIDE: u16 = 0xd5f4;

/// The length field of a grant of 200 and 81 packets. As a wide grant it is 36 and 324.
const NARROW: u16 = 0xc851;

const DEFAULT: Config = Config::DEFAULT;

/// The parameters of a host whose window is fixed. Its SYN tells that it takes no grants.
const FIXED: Config = Config {
    burst_length_max: 21,
    ..DEFAULT
};

/// The parameters of a host that has no room for wide grants.
const LONG_START: Config = Config {
    burst_length: 200,
    initial_ack_burst_length: 200,
    ..DEFAULT
};

/// The parameters while the first SYN or SYN|ACK leaves, the parameters while it is repeated, a
/// grant, and the window that the sender takes from it later, with the default parameters.
const CASES: [(Config, Config, u16, u16); 4] = [
    (DEFAULT, FIXED, WIDE, 2_000),
    (DEFAULT, LONG_START, WIDE, 2_000),
    (LONG_START, DEFAULT, NARROW, 81),
    (FIXED, DEFAULT, WIDE, 244),
];

/// Returns a pair with a round trip of 2 ms at 10 Gbit/s, whose side `at` has these parameters.
fn pair_with(at: usize, config: Config) -> Pair {
    let mut pair = Pair::new();
    pair.latency = MS;
    pair.spacing = 1_200;
    for side in &mut pair.sides {
        side.config = DEFAULT;
        side.sends_options = true;
        side.nonce = Some(7);
        side.limit = 1 << 21;
    }
    pair.sides[at].config = config;
    pair
}

/// Completes the handshake, and sets the default parameters again.
fn open(pair: &mut Pair, at: usize) {
    pair.run_until(|p| p.sides.iter().all(|side| side.established));
    pair.settle();
    pair.sides[at].set_config(DEFAULT);
}

/// Returns the window that `at` has after a packet with this length field grants one.
fn window_by(pair: &mut Pair, at: usize, len: u16) -> u16 {
    const NEXT: [Seq; 2] = [Seq(65_531), Seq(65_501)];
    let header = Header {
        src: PORTS[1 - at],
        dst: PORTS[at],
        len,
        seq: NEXT[1 - at],
        ack: NEXT[at],
        flags: GRANT,
    };
    let _ = pair.receive(at, &header, &[]);
    pair.sides[at].conn().window()
}

/// Sends packets from `at`, and returns the largest window that its peer grants. Both ends must
/// read each grant in the same way.
fn largest_granted(pair: &mut Pair, at: usize, wide: bool) -> u16 {
    let message = bytes(100 * 20_000, 1);
    assert_eq!(pair.send(at, &message), message.len());
    let mut largest = 0;
    while pair.sides[1 - at].received.len() < message.len() {
        assert!(pair.step());
    }
    pair.settle();
    let last = pair.sent_by(1 - at, |sent| sent.header.is_grant());
    for header in &last {
        largest = largest.max(header.grant(wide).expect("a grant").window);
    }
    if let Some(grant) = last.last().and_then(|header| header.grant(wide)) {
        assert_eq!(pair.sides[at].conn().window(), grant.window);
    }
    pair.assert_intact();
    largest
}

/// Checks that both ends of `opened` pairs read grants to `at` by the parameters `first`: `grant`
/// gives `window`, and the peer grants wide windows only if `first` tells them. Returns the largest
/// window that `first` tells, and the largest one that was granted.
fn agree(
    opened: impl Fn() -> Pair,
    at: usize,
    first: Config,
    grant: u16,
    window: u16,
) -> (u16, u16) {
    assert_eq!(window_by(&mut opened(), at, grant), window, "{first:?}");
    let told = Options::parse(&Options::emit(1489, &first)).largest_grant;
    let largest = largest_granted(&mut opened(), at, told > 255);
    assert_eq!(largest > 255, told > 255, "{first:?}: {largest}");
    (told, largest)
}

#[test]
fn a_repeated_syn_tells_what_the_first_one_told() {
    for (first, second, grant, window) in CASES {
        let opened = || {
            let mut pair = pair_with(A, first);
            pair.lose(B, 0);
            pair.connect();
            pair.run_until(|p| p.sides[B].state() == State::SynReceived);
            pair.sides[A].set_config(second);
            open(&mut pair, A);
            pair
        };
        let (told, largest) = agree(opened, A, first, grant, window);
        assert_eq!(largest > 0, told > 0, "{first:?}: {largest}");
    }
}

#[test]
fn a_repeated_syn_ack_tells_what_the_first_one_told() {
    for (first, second, grant, window) in CASES {
        let opened = || {
            let mut pair = pair_with(B, first);
            // The acknowledgement of the SYN|ACK is lost.
            pair.lose(A, 1);
            pair.connect();
            pair.run_until(|p| p.sides[A].established);
            assert_eq!(pair.sides[B].state(), State::SynReceived);
            pair.sides[B].set_config(second);
            open(&mut pair, B);
            pair
        };
        agree(opened, B, first, grant, window);
    }
}

#[test]
fn the_answer_to_a_crossed_syn_tells_what_our_syn_told() {
    for (first, second, grant, window) in CASES {
        for lost in [false, true] {
            let opened = || {
                let mut pair = pair_with(A, first);
                pair.sides[B].listens = false;
                if lost {
                    pair.lose(A, 1);
                }
                pair.connect_from(A);
                pair.connect_from(B);
                pair.sides[A].set_config(second);
                open(&mut pair, A);
                pair
            };
            agree(opened, A, first, grant, window);
        }
    }
}

#[test]
fn a_repeated_syn_tells_the_window_that_the_first_one_told() {
    for (first, second) in [(FIXED, 300), (LONG_START, 21)] {
        let mut pair = pair_with(A, first);
        pair.lose(B, 0);
        pair.connect();
        pair.run_until(|p| p.sides[B].state() == State::SynReceived);
        pair.sides[A].set_config(Config {
            burst_length: second,
            burst_length_max: second,
            ..DEFAULT
        });
        open(&mut pair, A);
        // The listener's child expects no more packets than the first SYN told.
        let most = Config {
            burst_length: 1_000,
            burst_length_max: 1_000,
            ..DEFAULT
        };
        pair.sides[A].set_config(most);
        assert_eq!(pair.sides[A].conn().window(), first.burst_length);
    }
}

/// Returns the window of `conn`, which expects `seq`, after a wide grant.
fn after_wide_grant(conn: &mut Connection, [src, dst]: [u16; 2], seq: Seq, ack: Seq) -> u16 {
    let header = Header {
        src,
        dst,
        len: WIDE,
        seq,
        ack,
        flags: GRANT,
    };
    let outcome = conn.on_packet(&header, ROOM, 0);
    assert_eq!(outcome.drop, None);
    conn.window()
}

const ROOM: Room = Room {
    queued: 0,
    limit: 1 << 20,
    arriving: 200,
    packet: 200,
};

/// Returns the window of a client with a nonce after a wide grant. Its SYN is answered with these
/// options.
fn client_window(checksums: bool, answer: &Options) -> u16 {
    let mut client = Connection::new(1, 2, DEFAULT);
    client.use_nonce(7);
    if checksums {
        client.use_checksums();
    }
    client.connect(Seq(10), 0);
    while client.poll_transmit(0, &mut |_| 0).is_some() {}
    let header = Header {
        src: 2,
        dst: 1,
        len: 0,
        seq: Seq(20),
        ack: Seq(11),
        flags: flags::SYN | flags::ACK,
    };
    let mut outcome = client.on_packet(&header, ROOM, 0);
    assert!(outcome.answered);
    client.take_answer(answer, &mut outcome);
    after_wide_grant(&mut client, [2, 1], Seq(21), Seq(11))
}

#[test]
fn a_connection_by_a_cookie_has_no_wide_grants() {
    let cookie = Options::parse(&Options::emit(1489, &DEFAULT));
    assert_eq!(client_window(true, &cookie), 244);
    let child = Options {
        nonce: Some(8),
        ..cookie
    };
    assert_eq!(client_window(true, &child), 2_000);

    let syn = Header {
        src: 1,
        dst: 2,
        len: 0,
        seq: Seq(10),
        ack: Seq(0),
        flags: flags::SYN,
    };
    let mut server = Connection::accept_forgotten(2, &syn, Seq(20), DEFAULT, 0);
    server.use_nonce(8);
    server.use_checksums();
    let window = after_wide_grant(&mut server, [1, 2], Seq(11), Seq(21));
    assert_eq!(window, 244);
}

#[test]
fn nonces_without_checksums_allow_no_wide_grants() {
    let child = Options {
        nonce: Some(8),
        ..Options::parse(&Options::emit(1489, &DEFAULT))
    };
    assert_eq!(client_window(false, &child), 244);
}
