// SPDX-License-Identifier: GPL-2.0-only

//! Plays a short exchange of both protocols, with every kind of frame, and prints its frames for
//! tests of dissectors.

use crate::address::{EDP_SO_CHECKSUM, ESP_SO_CHECKSUM};
use crate::frame::{edp, ETH_P_ALL};
use crate::prelude::*;
use crate::station::{self, Station};

/// Minimum payload of an Ethernet frame; network cards pad shorter ones.
const LEAST: usize = 46;

/// Plays the exchange of frames, and prints these frames in the order in which they pass host `b`'s
/// device. Each frame is printed on a line of its own: the word `frame` and the frame's bytes in
/// hexadecimal.
///
/// # Errors
/// If a step fails.
pub fn run() -> Result<()> {
    module::ensure_loaded()?;
    let lab = Lab::new(Wiring::Direct)?;
    let wire = PacketSocket::open_both_ways(&lab.b.namespace, DEVICE, ETH_P_ALL)?;
    play(&lab)?;
    lab.await_no_sockets()?;
    // Frames stay in order, so all frames of the exchange come before this one.
    let end = ethernet(lab.a.mac, lab.b.mac, 0x88b7, b"the end");
    lab.b.packets(ETH_P_ALL)?.send(&end)?;
    let ours = [ETH_P_EDP.to_be_bytes(), ETH_P_ESP.to_be_bytes()];
    loop {
        let frame = wire.wait_for(patience(), |_| true)?;
        if frame == end {
            return Ok(());
        }
        if ours.iter().any(|kind| frame.get(12..14) == Some(&kind[..])) {
            print!("frame ");
            for byte in frame {
                print!("{byte:02x}");
            }
            println!();
        }
    }
}

fn play(lab: &Lab) -> Result<()> {
    datagrams(lab)?;
    stream(lab)?;
    summed_stream(lab)?;
    by_hand(lab)?;
    malformed(&lab.a, &lab.b)
}

fn datagrams(lab: &Lab) -> Result<()> {
    let (a, b) = lab.edp_pair(2805)?;
    a.send(b"datagram", 0)?;
    b.receive(&mut [0; 8], 0)?;
    b.send(b"", 0)?;
    await_events(&a, libc::POLLIN)?;
    let asker = lab.a.edp_bound(7)?;
    asker.send_to(&[1, b'?'], 0, &lab.a.to(&lab.b, 0))?;
    await_events(&asker, libc::POLLIN)?;
    asker.receive(&mut [0; 2], 0)?;
    asker.set_int_option(SOL_EP, EDP_SO_CHECKSUM, 1)?;
    asker.send_to(&[3, 1, 2, 3, 4], 0, &lab.a.to(&lab.b, 0))?;
    await_events(&asker, libc::POLLIN)?;
    Ok(())
}

/// Plays a dialogue that both ends close, and an attempt to connect to an unused port.
fn stream(lab: &Lab) -> Result<()> {
    let (client, server) = lab.esp_pair(2805)?;
    client.send_all(&[0x55; 4000])?;
    server.receive_exact(&mut [0; 4000])?;
    server.send_all(b"thanks")?;
    client.receive_exact(&mut [0; 6])?;
    drop(client);
    server.receive(&mut [0], 0).context("the end")?;
    drop(server);
    refused(
        lab.a.esp()?.connect(&lab.a.to(&lab.b, 2806)),
        libc::ECONNREFUSED,
        "connecting where nobody listens",
    )
}

/// Plays a stream with checksums: first several packets, then a single one.
fn summed_stream(lab: &Lab) -> Result<()> {
    let listener = lab.b.esp_listener(2808, 1)?;
    let client = lab.a.esp()?;
    client.set_int_option(SOL_EP, ESP_SO_CHECKSUM, 1)?;
    client.connect(&lab.a.to(&lab.b, 2808))?;
    let (server, _) = listener.accept(0)?;
    for length in [4000, 10] {
        client.send_all(&vec![0x66; length])?;
        server.receive_exact(&mut vec![0; length])?;
    }
    drop(client);
    server.receive(&mut [0], 0).context("the end")?;
    Ok(())
}

/// Plays a connection in which a packet is lost, requested and retransmitted; then aborts it.
fn by_hand(lab: &Lab) -> Result<()> {
    let (mut station, client) = Station::connect(lab, 2807)?;
    station.send_data(flag::TXS, b"first")?;
    station.sent_so_far()?;
    let missing = station.next;
    station.next = station.next.wrapping_add(1);
    station.send_data(flag::TXF, b"third")?;
    station.wait_for(|header| header.flags & flag::RRQ != 0)?;
    station.next = missing;
    station.send_data(0, b"second")?;
    station.send_data(flag::TXF, b"third")?;
    client.receive_exact(&mut [0; 16])?;
    station.reset()?;
    await_events(&client, libc::POLLHUP)?;
    Ok(())
}

/// Sends malformed frames, and correct frames that are padded to the minimum length.
fn malformed(a: &Host, b: &Host) -> Result<()> {
    let wire = a.packets(ETH_P_ALL)?;
    let esp = EspHeader {
        source: 1,
        destination: 2,
        length: 3,
        sequence: 0xffff,
        acknowledgement: 4,
        flags: flag::ACK | flag::TXS | flag::TXF,
    };
    let hold = EspHeader {
        length: 0,
        flags: flag::ACK | flag::TXS,
        ..esp
    };
    let unsummed = EspHeader {
        flags: flag::ACK | flag::CRC,
        ..hold
    };
    let wild = EspHeader {
        flags: flag::SYN | flag::FIN,
        ..hold
    };
    let padded = |mut packet: Vec<u8>| {
        packet.resize(LEAST, 0);
        packet
    };
    for (kind, packet) in [
        (ETH_P_EDP, padded(edp(1, 2, 3, b"abc"))),
        (ETH_P_EDP, edp(1, 2, 300, b"short")),
        (ETH_P_EDP, padded(edp(1, 2, 0x8003, b"abcdefg"))),
        (ETH_P_ESP, padded(esp.packet(b"abc"))),
        (ETH_P_ESP, esp.packet(b"a")),
        (ETH_P_ESP, hold.packet(&[])),
        (ETH_P_ESP, wild.packet(&[])),
        (ETH_P_ESP, unsummed.packet(&[1; 4])),
    ] {
        wire.send(&ethernet(b.mac, station::MAC, kind, &packet))?;
    }
    Ok(())
}
