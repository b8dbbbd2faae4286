// SPDX-License-Identifier: GPL-2.0-only

//! Tests the options of SYN and SYN|ACK: the largest payload and the window.

use std::process::Child;

use super::esp_cookies::await_cookies;
use guest::address::ESP_SO_CHECKSUM;
use guest::frame::ESP_HEADERS;
use guest::harness::ensure_largest_payload;
use guest::prelude::*;
use guest::program::{start, wait_for_word};
use guest::station::MAC as STRANGER;

scenarios! {
    direct mtu_of_9000_and_of_1500_talk_at_1500_both_ways = unequal_mtus;
    direct mtu_of_a_peer_is_known_behind_a_cookie = behind_a_cookie;
    direct esp_options_are_told_by_both_sides = on_the_wire;
    direct esp_options_offer_selective_retransmission_with_masks = selective;
    direct esp_options_of_any_form_open_a_connection = any_form;
    direct esp_options_of_windows_spare_the_first_wait = unequal_windows;
    direct esp_second_implementation_connects_both_ways = second_implementation, within(290);
}

/// The path of an implementation of ESP in Python, written from docs/protocol.md.
const SECOND: &str = "/usr/share/python/esp_second.py";

/// Moves bytes one way, and then the other.
fn both_ways(client: &Socket, server: &Socket) -> Outcome {
    let bytes = random(200_000, 17);
    for (from, to) in [(client, server), (server, client)] {
        let send = || from.send_all(&bytes).context("send");
        let receive = || comes_next(to, &bytes);
        beside(send, receive)?;
    }
    Ok(())
}

fn unequal_mtus(lab: &Lab) -> Outcome {
    lab.a.set_mtu(9000)?;
    for single in [false, true] {
        if single {
            // A veth pair would pass GSO packets whole, whatever the receiver's MTU.
            send_single_packets(&lab.a.namespace)?;
            send_single_packets(&lab.b.namespace)?;
        }
        for (client, server, port) in [(&lab.a, &lab.b, 870), (&lab.b, &lab.a, 871)] {
            let listener = server.esp_listener(port, 1)?;
            let connecting = client.esp()?;
            connecting
                .connect(&client.to(server, port))
                .context("connect")?;
            let (accepted, _) = listener.accept(0).context("accept")?;
            for end in [&connecting, &accepted] {
                ensure_largest_payload(end, 1489, "either end")?;
            }
            both_ways(&connecting, &accepted)?;
        }
    }
    Ok(())
}

/// A station that opens connections by frames of its own, without the module.
struct Station<'a> {
    lab: &'a Lab,
    wire: PacketSocket,
}

impl<'a> Station<'a> {
    fn new(lab: &'a Lab) -> Result<Self> {
        let wire = lab.b.packets(ETH_P_ESP)?;
        Ok(Self { lab, wire })
    }

    fn send(&self, header: &EspHeader, payload: &[u8]) -> Outcome {
        let packet = header.packet(payload);
        let frame = ethernet(self.lab.a.mac, STRANGER, ETH_P_ESP, &packet);
        Ok(self.wire.send(&frame)?)
    }

    /// Returns the next packet to `port` with one of `flags`.
    fn next(&self, port: u16, flags: u8) -> Result<EspHeader> {
        self.wire
            .wait_for_esp(|header| header.destination == port && header.flags & flags != 0)
    }

    /// Sends a SYN with `options` from `port`, waits for the answer and acknowledges it.
    fn open(&self, port: u16, to: u16, options: &[u8]) -> Result<EspHeader> {
        let syn = EspHeader::syn(port, to, options);
        self.send(&syn, options)?;
        let answer = self.next(port, flag::SYN).context("an answer to the SYN")?;
        ensure!(answer.acknowledgement == 8, "{answer:?}");
        let last = EspHeader {
            length: 0,
            sequence: 8,
            acknowledgement: answer.sequence.wrapping_add(1),
            flags: flag::ACK,
            ..syn
        };
        self.send(&last, &[])?;
        Ok(answer)
    }
}

/// A SYN is answered whatever options it has, and its valid options take effect.
fn any_form(lab: &Lab) -> Outcome {
    send_single_packets(&lab.a.namespace)?;
    let station = Station::new(lab)?;
    let listener = lab.a.esp_listener(872, 16)?;
    let long = [&[200, 250][..], &[0; 1400]].concat();
    let cases: [(&[u8], u16); 9] = [
        (&[], 1489),
        (&[4, 2, 0x01, 0x00], 256),
        (&[4, 2, 0, 0], 57),
        (&[4, 2, 0xff, 0xff], 1489),
        (&[99, 3, 1, 2, 3, 4, 2, 0x01, 0x00], 256),
        (&[4, 2, 0x01], 1489),
        (&[4, 200, 0x01, 0x00], 1489),
        (&[5, 4, 0, 0, 0xff, 0xff], 1489),
        (&long, 1489),
    ];
    for (port, (options, payload)) in (3000..).zip(cases) {
        let told = || format!("options {:02x?}", &options[..options.len().min(16)]);
        station.open(port, 872, options).with_context(told)?;
        let (accepted, _) = listener.accept(0).context("accept")?;
        accepted.send_all(&[5; 2000])?;
        let data = station.next(port, flag::TXS).with_context(told)?;
        ensure!(
            data.length == payload,
            "{}: packets of {} bytes, not of {payload}",
            told(),
            data.length
        );
        accepted.set_linger(Some(0))?;
    }
    Ok(())
}

/// A listener that answers with a cookie forgets the options, and assumes an MTU of 1500.
fn behind_a_cookie(lab: &Lab) -> Outcome {
    lab.set_mtu(9000)?;
    send_single_packets(&lab.a.namespace)?;
    let station = Station::new(lab)?;
    let listener = lab.a.esp_listener(873, 1)?;
    await_cookies(&lab.a, &station.wire, 873)?;
    let cookies = lab.a.counter("EspOutCookies")?;
    let told = [1, 1, 1, 4, 2, 0x10, 0, 5, 4, 0, 21, 0, 1, 10, 2, 0, 1];
    station.open(9000, 873, &told)?;
    ensure!(
        lab.a.counter("EspOutCookies")? > cookies,
        "no cookie answered"
    );
    let (accepted, _) = listener.accept(0).context("accept")?;
    accepted.send_all(&[5; 9000])?;
    let data = station.next(9000, flag::TXS)?;
    ensure!(data.length == 1489, "packets of {} bytes", data.length);
    Ok(accepted.set_linger(Some(0))?)
}

/// Waits for a packet with `flags`, and returns the options that follow its header.
fn told(wire: &PacketSocket, flags: u8) -> Result<Vec<u8>> {
    let frame = wire.wait_for(patience(), |frame| {
        EspHeader::of_frame(frame).is_some_and(|header| header.flags & 0x7f == flags)
    })?;
    let header = EspHeader::of_frame(&frame).context("no ESP")?;
    let end = ESP_HEADERS + usize::from(header.length);
    Ok(frame
        .get(ESP_HEADERS..end)
        .context("a short frame")?
        .to_vec())
}

fn on_the_wire(lab: &Lab) -> Outcome {
    lab.a.set_mtu(2000)?;
    Knobs(&lab.a.namespace).set("burst_length", 40)?;
    let [at_a, at_b] = [lab.a.packets(ETH_P_ESP)?, lab.b.packets(ETH_P_ESP)?];
    let _pair = lab.esp_pair(874)?;
    let syn = told(&at_b, flag::SYN)?;
    // A nonce follows the other options.
    let before = |told: &[u8], options: &[u8]| {
        told.strip_prefix(options)
            .is_some_and(|nonce| nonce.len() == 6 && nonce.starts_with(&[11, 4]))
    };
    ensure!(
        before(
            &syn,
            &[1, 1, 1, 4, 2, 0x07, 0xc5, 5, 4, 0, 40, 0, 1, 7, 1, 0, 10, 2, 0, 5]
        ),
        "SYN {syn:02x?}"
    );
    let answer = told(&at_a, flag::SYN | flag::ACK)?;
    ensure!(
        before(
            &answer,
            &[1, 1, 1, 4, 2, 0x05, 0xd1, 5, 4, 0, 21, 0, 1, 7, 1, 255, 10, 2, 255, 5]
        ),
        "SYN|ACK {answer:02x?}"
    );
    Ok(())
}

/// By default (`selective` 2) a host offers requests that name packets if the SYN has a checksum,
/// and answers such a SYN likewise. With 0 it never does, with 1 always.
fn selective(lab: &Lab) -> Outcome {
    let [at_a, at_b] = [lab.a.packets(ETH_P_ESP)?, lab.b.packets(ETH_P_ESP)?];
    let offers = |wire: &PacketSocket, flags: u8| -> Result<bool> {
        let told = told(wire, flags)?;
        let capabilities = told.windows(4).find(|option| option[..2] == [10, 2]);
        Ok(capabilities.context("no capabilities")?[3] & 2 != 0)
    };
    for (number, ([a, b], checksum, expected)) in (0..).zip([
        ([2, 2], [0, 0], [false, false]),
        ([2, 2], [1, 0], [true, true]),
        ([2, 2], [0, 1], [false, true]),
        ([2, 0], [1, 0], [true, false]),
        ([2, 1], [0, 0], [false, true]),
        ([1, 2], [0, 0], [true, false]),
        ([0, 2], [1, 0], [false, true]),
    ]) {
        let [here, there] = [&lab.a, &lab.b].map(|host| Knobs(&host.namespace));
        here.set("selective", a)?;
        there.set("selective", b)?;
        here.set("checksum", checksum[0])?;
        there.set("checksum", checksum[1])?;
        let _pair = lab.esp_pair(890 + number)?;
        let offered = [
            offers(&at_b, flag::SYN)?,
            offers(&at_a, flag::SYN | flag::ACK)?,
        ];
        let what = format!("selective {a} and {b}, checksum {checksum:?}");
        same(offered, expected, &what)?;
    }
    Ok(())
}

/// The receiver's host acknowledges every 32 packets, but the sender has announced that its window
/// is 8 packets. So the receiver must acknowledge earlier. Otherwise each connection would stall
/// twice until the receiver probes. On a slow machine the receiver may probe anyway, so some probes
/// are allowed, but fewer than one per connection.
fn unequal_windows(lab: &Lab) -> Outcome {
    const CONNECTIONS: u16 = 20;
    let (here, there) = (Knobs(&lab.a.namespace), Knobs(&lab.b.namespace));
    here.set("packets_to_ack", 1)?;
    here.set("burst_length", 8)?;
    there.set("burst_length", 64)?;
    there.set("packets_to_ack", 32)?;
    // These times are long compared with the pauses of a busy machine.
    there.set("round_trip_time", 200_000)?;
    here.set("retransmission_time_min", 1_000_000)?;
    let probes = lab.b.counter("EspOutProbes")?;
    for number in 0..CONNECTIONS {
        let (client, server) = lab.esp_pair(1000 + number)?;
        let load = Load::of(60_000, 60_000, number.into());
        transfer(&client, &server, load)?;
    }
    let more = lab.b.counter("EspOutProbes")? - probes;
    ensure!(
        more < CONNECTIONS.into(),
        "the receiver probed {more} times"
    );
    Ok(())
}

/// Starts the second implementation on host b's device, with an address of its own.
fn second(lab: &Lab, verb: &str, arguments: &[&str], words: &[&str]) -> Result<Child> {
    let mut command = Command::new("python3");
    command.args([SECOND, verb, DEVICE, &print_mac(STRANGER)]);
    command.args(arguments).args(words);
    start((&lab.b, command), Stdio::null(), Stdio::piped())
}

fn ended_well(child: Child) -> Outcome {
    let ended = child.wait_with_output()?;
    let told = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success(), "{}: {told}", ended.status);
    Ok(())
}

/// Reads to the stream's end.
fn read_all(socket: &Socket) -> Result<Vec<u8>> {
    let (mut all, mut part) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match socket.receive(&mut part, 0).context("receive")? {
            0 => return Ok(all),
            length => all.extend_from_slice(&part[..length]),
        }
    }
}

fn second_implementation(lab: &Lab) -> Outcome {
    // The packet socket of the second implementation must not get GSO packets.
    send_single_packets(&lab.a.namespace)?;
    for (ports, mtu, sums, words) in [
        ([876, 877], 9000, false, &[][..]),
        ([878, 879], 1500, false, &["no-options"]),
        ([880, 881], 9000, false, &["checksum"]),
        ([882, 883], 9000, true, &["want-checksum"]),
        ([884, 885], 9000, false, &["checksum", "masks", "wrap"]),
        ([886, 887], 1500, true, &["want-checksum", "masks", "wrap"]),
        ([888, 889], 1500, false, &["selective", "wrap"]),
    ] {
        lab.a.set_mtu(mtu)?;
        let selective = words.contains(&"selective");
        Knobs(&lab.a.namespace).set("selective", selective.into())?;
        second_connects(lab, ports[0], sums, words)
            .with_context(|| format!("connect {words:?}"))?;
        second_listens(lab, ports[1], sums, words).with_context(|| format!("listen {words:?}"))?;
    }
    Ok(())
}

/// Makes `socket` ask for checksums if `sums` is true. Otherwise the other side decides.
fn asking(socket: Socket, sums: bool) -> Result<Socket> {
    if sums {
        socket.set_int_option(SOL_EP, ESP_SO_CHECKSUM, 1)?;
    }
    Ok(socket)
}

fn second_connects(lab: &Lab, port: u16, sums: bool, words: &[&str]) -> Outcome {
    let listener = asking(lab.a.esp_listener(port, 1)?, sums)?;
    let arguments = [&print_mac(lab.a.mac), &port.to_string(), "100000"];
    let client = second(lab, "connect", &arguments, words)?;
    let (accepted, _) = listener.accept(0).context("accept")?;
    let question = read_all(&accepted)?;
    accepted.send_all(&question).context("the echo")?;
    accepted.shutdown(libc::SHUT_WR)?;
    ended_well(client)
}

fn second_listens(lab: &Lab, port: u16, sums: bool, words: &[&str]) -> Outcome {
    let mut server = second(lab, "listen", &[&port.to_string()], words)?;
    let said = wait_for_word(&mut server, "listening")?;
    let connecting = asking(lab.a.esp()?, sums)?;
    connecting.connect(&Address {
        mac: STRANGER,
        ..lab.a.to(&lab.b, port)
    })?;
    let question = random(100_000, 19);
    connecting.send_all(&question).context("the question")?;
    connecting.shutdown(libc::SHUT_WR)?;
    let answer = read_all(&connecting)?;
    ensure!(answer == question, "{} bytes came back", answer.len());
    let status = server.wait()?;
    let said = said.join().unwrap_or_default();
    ensure!(status.success(), "{status}: {said}");
    Ok(())
}
