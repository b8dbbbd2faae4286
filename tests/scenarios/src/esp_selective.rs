// SPDX-License-Identifier: GPL-2.0-only

//! Tests selective retransmission: the receiver keeps the packets that follow a missing packet, and
//! charges them to the socket. Its requests name the missing packets.

use guest::prelude::*;
use guest::socket::meminfo::RMEM_ALLOC;
use guest::station::Station;

scenarios! {
    direct esp_request_names_the_packet_that_is_missing = named;
    direct esp_packets_behind_a_hole_are_charged_until_they_are_read = charged;
    direct esp_packets_behind_a_hole_take_no_more_than_the_receive_buffer = bounded;
    direct esp_packets_behind_a_hole_go_with_their_connection = forgotten;
    direct esp_overtaken_packets_are_not_requested = overtaken;
    direct esp_hosts_with_and_without_selective_retransmission = mixed, within(180);
}

/// Options of a station with a window of 200 packets, which accepts requests that name packets.
const OPTIONS: [u8; 17] = [1, 1, 1, 4, 2, 0x05, 0xd1, 5, 4, 0, 200, 0, 1, 10, 2, 0, 3];

/// The flags of a request that names packets.
const NAMING: u8 = flag::ACK | flag::RRQ | flag::TXS;

/// Returns the receive memory that is charged to a socket, in bytes.
fn charge(socket: &Socket) -> Result<usize> {
    Ok(socket.meminfo()?[RMEM_ALLOC] as usize)
}

/// Enables selective retransmission on host a, and connects a socket there to a station. Returns
/// the socket and the station.
fn connect(lab: &Lab, port: u16) -> Result<(Station, Socket)> {
    Knobs(&lab.a.namespace).set("selective", 1)?;
    Station::connect_telling(lab, port, &OPTIONS)
}

/// Connects like [`connect`]. The station then sends a packet of 1000 bytes, leaves one packet out,
/// and sends `count` more packets.
fn behind_a_hole(lab: &Lab, port: u16, count: u16) -> Result<(Station, Socket)> {
    let (mut station, socket) = connect(lab, port)?;
    station.send_data(flag::TXS, &[0; 1000])?;
    station.next = station.next.wrapping_add(1);
    for number in 0..count {
        station.send_data(0, &[number as u8; 1000])?;
    }
    Ok((station, socket))
}

/// Sends the missing packet, which precedes the last `count` packets.
fn fill(station: &mut Station, count: u16) -> Result<()> {
    let next = station.next;
    station.next = next.wrapping_sub(count + 1);
    station.send_data(0, &[0xff; 1000])?;
    station.next = next;
    Ok(())
}

fn named(lab: &Lab) -> Outcome {
    let (mut station, socket) = behind_a_hole(lab, 960, 10)?;
    let missing = station.next.wrapping_sub(11);
    let request = station.wait_for(|header| header.flags & 0x7f == NAMING && header.length > 0)?;
    same(request.acknowledgement, missing, "the request's number")?;
    same(request.length, 1, "bytes that name packets")?;
    // The host repeats the request, since the missing packet does not arrive.
    station.wait_for(|header| header.flags & 0x7f == NAMING && header.length > 0)?;
    fill(&mut station, 10)?;
    let bytes = socket.receive_all(12_000)?;
    ensure!(
        bytes[1000..2000] == [0xff; 1000],
        "the missing packet is first"
    );
    for (number, part) in bytes[2000..].chunks(1000).enumerate() {
        ensure!(
            part == [number as u8; 1000],
            "packet {number} is out of order"
        );
    }
    Ok(())
}

fn charged(lab: &Lab) -> Outcome {
    let (mut station, socket) = behind_a_hole(lab, 961, 60)?;
    station.sent_so_far()?;
    let held = charge(&socket)?;
    ensure!(held >= 61_000, "{held} bytes are charged for 61 packets");
    fill(&mut station, 60)?;
    let bytes = socket.receive_all(62_000)?;
    same(bytes.len(), 62_000, "bytes")?;
    same(charge(&socket)?, 0, "bytes charged")
}

fn bounded(lab: &Lab) -> Outcome {
    let (mut station, socket) = connect(lab, 962)?;
    socket.set_so(libc::SO_RCVBUF, 20_000)?;
    let limit = socket.so(libc::SO_RCVBUF)? as usize;
    station.send_data(flag::TXS, &[0; 1000])?;
    let first = station.next;
    station.next = first.wrapping_add(1);
    for _ in 0..180 {
        station.send_data(0, &[1; 1000])?;
    }
    station.sent_so_far()?;
    let held = charge(&socket)?;
    ensure!(held > limit / 2, "{held} of {limit} bytes are charged");
    ensure!(
        held < limit + 10_000,
        "{held} bytes are charged, the limit is {limit}"
    );
    // The station retransmits all packets, beginning with the missing one.
    station.next = first;
    for number in 0..181_u32 {
        station.next = first.wrapping_add(number as u16);
        station.send_data(0, &[1; 1000])?;
        if number % 8 == 0 {
            station.sent_so_far()?;
            socket.set_nonblocking(true)?;
            while socket
                .receive(&mut [0; 8000], 0)
                .is_ok_and(|bytes| bytes > 0)
            {}
            socket.set_nonblocking(false)?;
        }
    }
    station.sent_so_far()?;
    socket.set_nonblocking(true)?;
    while socket
        .receive(&mut [0; 8000], 0)
        .is_ok_and(|bytes| bytes > 0)
    {}
    same(charge(&socket)?, 0, "bytes charged")
}

/// When the peer resets a connection, or the socket's descriptor is closed, the connection frees
/// its kept packets. Otherwise the module would not unload at the lab's end.
fn forgotten(lab: &Lab) -> Outcome {
    let (station, socket) = behind_a_hole(lab, 963, 40)?;
    station.send(flag::RST | flag::ACK, &[])?;
    eventually("the packets are freed", || Ok(charge(&socket)? < 4_000))?;
    let (mut station, socket) = behind_a_hole(lab, 964, 40)?;
    station.sent_so_far()?;
    ensure!(charge(&socket)? >= 40_000, "packets are kept");
    drop(socket);
    station.wait_for(|header| header.flags & flag::RST != 0)?;
    Ok(())
}

/// If three packets overtake a fourth one, the fourth one is not requested, as long as all four
/// arrive well within a quarter of the round trip.
fn overtaken(lab: &Lab) -> Outcome {
    Knobs(&lab.a.namespace).set("selective", 1)?;
    const ROUNDS: u16 = 15;
    let far = Duration::from_millis(100);
    let (mut station, socket) = Station::connect_far(lab, 965, &OPTIONS, far)?;
    station.send_data(flag::TXS, &[0; 1000])?;
    let start = station.next;
    for round in 0..ROUNDS {
        for place in [1, 2, 3, 0] {
            station.next = start.wrapping_add(4 * round + place);
            station.send_data(0, &[place as u8; 1000])?;
        }
    }
    station.next = start.wrapping_add(4 * ROUNDS);
    let bytes = socket.receive_all(1000 + 4000 * usize::from(ROUNDS))?;
    for (number, part) in bytes[1000..].chunks(1000).enumerate() {
        ensure!(
            part[0] == (number % 4) as u8,
            "packet {number} is out of order"
        );
    }
    let stats = socket.esp_counters()?;
    ensure!(stats.pkt_rx_oos >= 3 * u32::from(ROUNDS), "{stats:?}");
    // On a busy machine, the last of four packets may be sent late, which causes a request.
    ensure!(stats.arq_tx < 4, "{stats:?}");
    Ok(())
}

fn mixed(lab: &Lab) -> Outcome {
    lab.netem(&[
        "limit",
        "10000",
        "loss",
        "1%",
        "duplicate",
        "1%",
        "delay",
        "100us",
        "50us",
    ])?;
    let load = Load::of(1 << 20, 1 << 16, 17);
    let mut port = 966;
    for [a, b] in [[0, 0], [0, 1], [1, 0], [1, 1], [2, 2], [1, 2], [2, 1]] {
        Knobs(&lab.a.namespace).set("selective", a)?;
        Knobs(&lab.b.namespace).set("selective", b)?;
        for checksum in [0, 1] {
            Knobs(&lab.a.namespace).set("checksum", checksum)?;
            let (client, server) = lab.esp_pair(port)?;
            port += 1;
            transfer_both_ways(&client, &server, load)
                .with_context(|| format!("selective {a} and {b}, checksum {checksum}"))?;
            let stats = client.esp_counters()?;
            note(&format!(
                "selective {a} and {b}, checksum {checksum}: {stats:?}"
            ));
        }
    }
    Ok(())
}
