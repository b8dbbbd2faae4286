// SPDX-License-Identifier: GPL-2.0

//! Tests of the options of SYN and SYN|ACK.

use esp::options::{InternetEnd, Mapped, Options, Window, MAPPED_LEN, OPTIONS_LEN, OPTIONS_MAX};
use esp::{flags, Config, Header, Seq, State};
use esp_testkit::pair::*;
use proptest::prelude::*;

fn config(burst_length: u16, initial_ack_burst_length: u16) -> Config {
    Config {
        burst_length,
        initial_ack_burst_length,
        ..Config::default()
    }
}

#[test]
fn options_are_as_documented() {
    let bytes = Options::emit(1489, &config(21, 1));
    assert_eq!(
        bytes,
        [1, 1, 1, 4, 2, 0x05, 0xd1, 5, 4, 0, 21, 0, 1, 7, 1, 255, 10, 2, 255, 5]
    );
    assert_eq!(bytes.len(), OPTIONS_LEN);
}

#[test]
fn an_empty_payload_has_no_options() {
    assert_eq!(Options::parse(&[]), Options::default());
    assert_eq!(Options::parse(&[4]), Options::default());
}

#[test]
fn the_ends_of_a_mapped_connection_are_as_documented() {
    let end = |last: u8, port| InternetEnd {
        address: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last],
        port,
    };
    let mapped = Mapped {
        source: end(1, 0x1234),
        destination: end(2, 80),
    };
    let bytes = mapped.emit();
    assert_eq!(bytes[..2], [8, 36]);
    assert_eq!(bytes[12..20], [0xff, 0xff, 10, 0, 0, 1, 0x12, 0x34]);
    assert_eq!(bytes[30..], [0xff, 0xff, 10, 0, 0, 2, 0, 80]);
    assert_eq!(Options::parse(&bytes).mapped, Some(mapped));
    for cut in 0..MAPPED_LEN {
        assert_eq!(Options::parse(&bytes[..cut]).mapped, None, "{cut} bytes");
    }
    let mut longer = [&bytes[..], &[0]].concat();
    longer[1] = 37;
    assert_eq!(Options::parse(&longer).mapped, None);
    // In a SYN the ends of the mapped connection follow the other options.
    let all = [&Options::emit(1489, &Config::default())[..], &bytes].concat();
    assert!(all.len() <= OPTIONS_MAX);
    let told = Options::parse(&all);
    assert_eq!(
        (told.mapped, told.largest_payload),
        (Some(mapped), Some(1489))
    );
}

#[test]
fn a_syn_with_fewer_tries_gives_up_sooner() {
    let failed_after = |tries: Option<u8>| {
        let mut connection = esp::Connection::new(1, 2, Config::default());
        if let Some(tries) = tries {
            connection.set_syn_tries(tries);
        }
        connection.connect(Seq(7), 0);
        let mut none = |_: Seq| 0;
        let mut now = 0;
        loop {
            while connection.poll_transmit(now, &mut none).is_some() {}
            now = connection.deadline().expect("it waits for an answer");
            if connection.on_deadline(now, now).failed.is_some() {
                return now / 1_000_000;
            }
        }
    };
    assert_eq!(failed_after(None), 12_600);
    assert_eq!(failed_after(Some(2)), 600);
}

#[test]
fn unknown_types_are_skipped() {
    let mut bytes = vec![200, 3, 1, 2, 3, 0, 0, 6, 2, 0, 10];
    bytes.extend_from_slice(&Options::emit(8989, &config(32, 2)));
    bytes.extend_from_slice(&[255, 0]);
    let told = Options::parse(&bytes);
    assert_eq!(told.largest_payload, Some(8989));
    let window = Window {
        burst_length: 32,
        initial_ack_burst_length: 2,
    };
    assert_eq!(told.window, Some(window));
    assert_eq!(told.version, Some(1));
}

#[test]
fn an_option_of_another_length_ends_the_list() {
    for wrong in [
        &[4, 0][..],
        &[4, 1, 5],
        &[4, 3, 5, 5, 5],
        &[5, 2, 5, 5],
        &[1, 2, 1, 1],
        &[7, 9, 1],
    ] {
        let bytes = [wrong, &Options::emit(1489, &config(21, 1))].concat();
        assert_eq!(Options::parse(&bytes), Options::default(), "{wrong:?}");
        let bytes = [&Options::emit(1489, &config(21, 1))[..7], wrong].concat();
        assert_eq!(
            Options::parse(&bytes).largest_payload,
            Some(1489),
            "{wrong:?}"
        );
    }
}

#[test]
fn the_last_of_repeated_options_counts() {
    let bytes = [4, 2, 0x05, 0xd1, 4, 2, 0x23, 0x1d];
    assert_eq!(Options::parse(&bytes).largest_payload, Some(8989));
}

#[test]
fn no_peer_can_ask_for_packets_smaller_than_any_devices() {
    assert_eq!(Options::parse(&[4, 2, 0, 0]).largest_payload, Some(57));
    let window = |bytes: &[u8]| Options::parse(bytes).window.unwrap();
    assert_eq!(window(&[5, 4, 0, 0, 0xff, 0xff]).burst_length, 1);
    assert_eq!(
        window(&[5, 4, 0, 0, 0xff, 0xff]).initial_ack_burst_length,
        1
    );
    assert_eq!(window(&[5, 4, 0xff, 0xff, 0xff, 0xff]).burst_length, 0x7fff);
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let told = Options::parse(&bytes);
        prop_assert!(told.largest_payload.is_none_or(|payload| payload >= 57));
    }

    #[test]
    fn what_is_written_is_read(payload in 57u32..=65535, burst in 1u16..=0x7fff, initial in 0u16..=0x7fff) {
        let told = Options::parse(&Options::emit(payload, &config(burst, initial.min(burst))));
        prop_assert_eq!(told.largest_payload.map(u32::from), Some(payload));
        let window = told.window.unwrap();
        prop_assert_eq!(window.burst_length, burst);
        prop_assert_eq!(window.initial_ack_burst_length, initial.min(burst));
    }
}

#[test]
fn a_syn_may_have_options_and_a_fin_or_reset_no_payload() {
    let mut pair = Pair::new();
    pair.connect();
    let mut syn = pair.log[0].header;
    syn.len = OPTIONS_LEN as u16;
    assert!(syn.opens());
    pair.settle();
    assert_eq!(pair.sides[A].state(), State::Established);
    for wrong in [flags::FIN | flags::ACK, flags::RST, flags::SYN | flags::RRQ] {
        let next = pair.sides[A].conn().next_number();
        let header = Header {
            src: syn.src,
            dst: syn.dst,
            len: 4,
            seq: next,
            ack: Seq(0),
            flags: wrong,
        };
        let outcome = pair.receive(B, &header, &[0; 4]);
        assert!(outcome.drop.is_some(), "{wrong:#x}");
        assert_eq!(pair.sides[B].state(), State::Established);
    }
}

/// Returns how long a stream takes if its sender has a window of 8 and its receiver acknowledges
/// every 32 packets.
fn unequal(tells: bool) -> u64 {
    let mut pair = Pair::new();
    pair.sides[A].sends_options = tells;
    pair.sides[A].config = config(8, 1);
    pair.sides[B].config = Config {
        burst_length: 40,
        packets_to_ack: 32,
        ..Config::default()
    };
    let mut pair = pair.establish();
    let start = pair.now;
    pair.send(A, &bytes(4000, 1));
    pair.run_until(|pair| pair.sides[B].received.len() == 4000);
    pair.assert_intact();
    pair.now - start
}

#[test]
fn an_advertised_window_is_acknowledged_in_time() {
    let [told, learned] = [true, false].map(unequal);
    assert!(told < MS, "{told} ns");
    assert!(
        learned > told + 200 * US,
        "{learned} ns: nothing was waited for"
    );
}
