// SPDX-License-Identifier: GPL-2.0

//! Tests of SYN cookies. A listener without state accepts certain packets as an answer to its
//! SYN|ACK, and makes connections from them.

use std::hash::{DefaultHasher, Hash, Hasher};

use esp::cookie::{answer_to, suits, Answer, Client, LIFE, MARKS};
use esp::{flags, Config, Connection, Header, Options, Room, Seq, State, Transmit};

const CLIENT: Client = Client {
    mac: 0x0200_0000_0001,
    ifindex: 3,
};
const NOW: u64 = 1_000_000_000_000;
const ISN: u16 = 0xfffe;

/// Hashes without a key, which suffices for these tests. The kernel module has a secret key.
fn hash(words: [u64; 3]) -> u64 {
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    hasher.finish()
}

fn room() -> Room {
    Room {
        queued: 0,
        limit: 1 << 20,
        arriving: 1600,
        packet: 1600,
    }
}

fn syn() -> Header {
    Header {
        src: 50_000,
        dst: 2_805,
        len: 0,
        seq: Seq(ISN),
        ack: Seq(0),
        flags: flags::SYN,
    }
}

/// Returns the client's first packet after the SYN. The packet acknowledges a SYN|ACK with the
/// number `cookie`, and has `len` bytes.
fn first(cookie: Seq, len: u16) -> Header {
    Header {
        len,
        seq: Seq(ISN).add(1),
        ack: cookie.add(1),
        flags: flags::ACK,
        ..syn()
    }
}

fn cookie() -> Seq {
    CLIENT.cookie(&syn(), NOW, hash)
}

#[test]
fn the_first_packet_names_the_syn() {
    for len in [0, 1000] {
        let packet = first(cookie(), len);
        assert_eq!(
            CLIENT.answered(&packet, NOW, hash),
            Some(Answer::First(syn()))
        );
    }
    let fin = Header {
        flags: flags::FIN | flags::ACK,
        ..first(cookie(), 0)
    };
    assert_eq!(CLIENT.answered(&fin, NOW, hash), Some(Answer::First(syn())));
}

#[test]
fn a_probe_names_the_syn() {
    let probe = Header {
        seq: Seq(ISN),
        ..first(cookie(), 0)
    };
    assert_eq!(
        CLIENT.answered(&probe, NOW, hash),
        Some(Answer::First(syn()))
    );
    // Data never has the SYN's number.
    let data = Header { len: 1, ..probe };
    assert_eq!(CLIENT.answered(&data, NOW, hash), None);
}

#[test]
fn a_cookie_lasts_for_an_epoch_at_least_and_two_at_most() {
    let packet = first(cookie(), 1000);
    assert!(CLIENT.answered(&packet, NOW + LIFE / 2, hash).is_some());
    assert!(CLIENT.answered(&packet, NOW + LIFE, hash).is_none());
}

#[test]
fn a_retransmitted_syn_gets_the_same_number() {
    assert_eq!(cookie(), CLIENT.cookie(&syn(), NOW + 1_000_000, hash));
}

#[test]
fn a_cookie_depends_on_all_that_identifies_the_connection() {
    let packet = first(cookie(), 1000);
    let others = [
        (
            Client {
                mac: 0x0200_0000_0002,
                ..CLIENT
            },
            packet,
        ),
        (
            Client {
                ifindex: 4,
                ..CLIENT
            },
            packet,
        ),
        (
            CLIENT,
            Header {
                src: 50_001,
                ..packet
            },
        ),
        (
            CLIENT,
            Header {
                dst: 2_806,
                ..packet
            },
        ),
        (
            CLIENT,
            Header {
                seq: packet.seq.add(33),
                ..packet
            },
        ),
        (
            CLIENT,
            Header {
                ack: packet.ack.add(1),
                ..packet
            },
        ),
    ];
    for (client, packet) in others {
        assert_eq!(client.answered(&packet, NOW, hash), None, "{packet:?}");
    }
    let other_secret = |words: [u64; 3]| !hash(words);
    assert_eq!(CLIENT.answered(&packet, NOW, other_secret), None);
}

#[test]
fn packets_without_a_cookie_are_no_answers() {
    let packet = first(cookie(), 0);
    for bits in [
        flags::SYN,
        flags::SYN | flags::ACK,
        flags::RST | flags::ACK,
        flags::FIN,
        0,
    ] {
        let packet = Header {
            flags: bits,
            ..packet
        };
        assert_eq!(CLIENT.answered(&packet, NOW, hash), None, "{bits:#x}");
    }
}

#[test]
fn a_guess_is_right_once_in_2_to_the_15_times_or_14() {
    for (len, most) in [(1000, 2), (0, 4)] {
        let right = (0..=u16::MAX)
            .filter(|ack| {
                let packet = Header {
                    ack: Seq(*ack),
                    ..first(Seq(0), len)
                };
                matches!(CLIENT.answered(&packet, NOW, hash), Some(Answer::First(_)))
            })
            .count();
        assert!((1..=most).contains(&right), "{right} of 65536 guesses");
    }
}

#[test]
fn packets_after_a_lost_first_one_are_recognised() {
    for lost in 1..32 {
        let packet = first(cookie(), 1000);
        let seq = packet.seq.add(lost);
        let packet = Header { seq, ..packet };
        assert_eq!(CLIENT.answered(&packet, NOW, hash), Some(Answer::Later));
    }
}

#[test]
fn the_ends_of_short_connections_match_no_cookie() {
    // The client's FIN acknowledges the server's data and FIN, so the acknowledgement number is
    // beyond the cookie.
    let mut known = 0;
    for sent in 0..30 {
        for received in 1..1_000 {
            let packet = first(cookie(), 0);
            let fin = Header {
                seq: packet.seq.add(sent),
                ack: packet.ack.add(received),
                flags: flags::FIN | flags::ACK,
                ..packet
            };
            known += usize::from(CLIENT.answered(&fin, NOW, hash).is_some());
        }
    }
    assert!(
        known < 60,
        "{known} of 30,000: 64 of 65,536 are taken for others"
    );
}

#[test]
fn a_cookies_mark_is_its_own() {
    let mark = CLIENT.mark(&syn(), cookie(), hash);
    assert!(mark.index < MARKS && mark.tag != 0);
    assert_eq!(CLIENT.mark(&syn(), cookie(), hash), mark);
    assert_ne!(CLIENT.mark(&syn(), cookie().add(1), hash), mark);
    let next = Header {
        seq: Seq(ISN).add(2),
        ..syn()
    };
    assert_ne!(CLIENT.mark(&next, cookie(), hash), mark);
}

#[test]
fn only_clients_that_tell_version_and_window_get_cookies() {
    let told = |config: &Config| suits(&Options::parse(&Options::emit(1489, config)));
    assert!(told(&Config::default()));
    let wide = |burst_length| Config {
        burst_length,
        ..Config::default()
    };
    assert!(told(&wide(256)) && !told(&wide(257)));
    assert!(!suits(&Options::default()));
}

/// A client gets a cookie, and the client's data makes the connection.
#[test]
fn data_after_a_cookie_makes_the_connection() {
    let mut client = Connection::new(50_000, 2_805, Config::default());
    client.connect(Seq(ISN), NOW);
    let Some(Transmit::Control { header: syn, .. }) = client.poll_transmit(NOW, &mut |_| 0) else {
        panic!("no SYN");
    };
    let answer = answer_to(&syn, CLIENT.cookie(&syn, NOW, hash));
    assert!(client.on_packet(&answer, room(), NOW).established);
    // The acknowledgement of the handshake is lost.
    client.enqueue(1);
    let mut sent = Vec::new();
    while let Some(transmit) = client.poll_transmit(NOW, &mut |_| 0) {
        sent.push(transmit);
    }
    let data = sent.iter().find_map(|transmit| match transmit {
        Transmit::Data { header, .. } => Some(Header {
            len: 100,
            ..*header
        }),
        _ => None,
    });
    let data = data.expect("data");

    let named = CLIENT.answered(&data, NOW, hash);
    assert_eq!(named, Some(Answer::First(syn)));
    let isn = data.ack.sub(1);
    let mut server = Connection::accept_forgotten(2_805, &syn, isn, Config::default(), NOW);
    assert_eq!(server.state(), State::SynReceived);
    let outcome = server.on_packet(&data, room(), NOW);
    assert!(outcome.established && outcome.deliver, "{outcome:?}");
    assert_eq!(server.state(), State::Established);
    // The server's SYN|ACK counts as sent; the data is acknowledged.
    server.flush_ack();
    let mut acknowledged = false;
    while let Some(transmit) = server.poll_transmit(NOW, &mut |_| 0) {
        let Transmit::Control { header, .. } = transmit else {
            panic!("{transmit:?}");
        };
        assert!(!header.has(flags::SYN));
        acknowledged |= header.ack == data.seq.add(1);
        let _ = client.on_packet(&header, room(), NOW);
    }
    assert!(acknowledged);
    assert_eq!(client.unacked(), 0);
}
