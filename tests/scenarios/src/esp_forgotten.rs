// SPDX-License-Identifier: GPL-2.0-only

//! Tests connections of which only one end is left: the other host was restarted, or has closed its
//! end.

use guest::address::ESP_SO_CHECKSUM;
use guest::prelude::*;
use guest::station::Station;

scenarios! {
    direct esp_data_after_the_peer_forgot_the_connection_is_an_error = lost_data;
    direct esp_a_closed_connections_bytes_never_reach_the_next_one = left_behind;
    direct esp_restarted_client_connects_again = restarted;
    direct esp_restarted_client_connects_again_whichever_end_had_checksums = restarted_with_checksums;
}

/// Makes `host` forget a connection that `peer` keeps: sends `host` a forged reset in the name of
/// `peer`. The reset answers `last`, a packet of `host`, with the mask of its checksum if it has
/// one.
fn forget(
    wire: &PacketSocket,
    peer: &Host,
    host: &Host,
    (last, mask): (&EspHeader, Option<u32>),
) -> Result<()> {
    let reset = EspHeader {
        sequence: last.acknowledgement,
        // The reset answers a packet that has data or a FIN. The acknowledgement number of the
        // reset is one higher than the sequence number of that packet.
        acknowledgement: last.sequence.wrapping_add(1),
        ..EspHeader::new(last.destination, last.source, flag::RST)
    };
    let packet = match mask {
        Some(mask) => reset.masked_packet(&[], mask),
        None => reset.packet(&[]),
    };
    let frame = ethernet(host.mac, peer.mac, ETH_P_ESP, &packet);
    wire.send(&frame).context("a reset in another's name")
}

/// In this test data and a FIN reach a host that has forgotten the connection. The data are lost,
/// so the sender must get an error instead of a clean end.
fn lost_data(lab: &Lab) -> Outcome {
    let wire = lab.a.packets(ETH_P_ESP)?;
    let (client, server) = lab.esp_pair(640)?;
    drop(server);
    let end = wire.wait_for_esp(|header| header.flags & flag::FIN != 0)?;
    ensure!(client.receive(&mut [0; 8], 0)? == 0, "bytes from nowhere");
    lab.b
        .await_proc("esp", |text| text.contains("fin-wait-2"))?;
    forget(&wire, &lab.a, &lab.b, (&end, None))?;
    lab.b.await_no_sockets()?;

    // The data and the FIN leave together, so the client's half has already ended when the reset
    // answers the data.
    client.send(b"never read", libc::MSG_MORE)?;
    client.shutdown(libc::SHUT_WR)?;
    lab.a.await_proc("esp", |text| !text.contains("last-ack"))?;
    failed_with(&client, libc::ECONNRESET)
}

/// A reset that answers a retransmission ends a connection without an error. The unacknowledged
/// bytes of this connection must not stay queued for the socket's next connection.
fn left_behind(lab: &Lab) -> Outcome {
    let (mut station, client) = Station::connect(lab, 641)?;
    station.send(flag::FIN | flag::ACK, &[])?;
    station.next = station.next.wrapping_add(1);
    ensure!(client.receive(&mut [0; 8], 0)? == 0, "bytes from nowhere");
    client.send_all(&[0x41; 1000])?;
    client.shutdown(libc::SHUT_WR)?;
    let first = station.expected;
    for time in ["first", "second"] {
        station
            .wait_for(|header| header.length > 0 && header.sequence == first)
            .with_context(|| format!("the bytes, for the {time} time"))?;
    }
    station.send(flag::RST, &[])?;
    lab.a.await_proc("esp", |text| !text.contains("last-ack"))?;
    let error = client.pending_error()?;
    ensure!(error == 0, "SO_ERROR {error} after a clean end");
    let left = client.queued(libc::TIOCOUTQ)?;
    ensure!(left == 1000, "{left} bytes were not acknowledged");

    client
        .connect_bytes(&[0; 16])
        .context("connect to AF_UNSPEC")?;
    let listener = lab.b.esp_listener(642, 1)?;
    client.connect(&lab.a.to(&lab.b, 642))?;
    let (server, _) = listener.accept(0)?;
    let left = client.queued(libc::TIOCOUTQ)?;
    ensure!(left == 0, "{left} bytes of the earlier connection");
    for _ in 0..3 {
        exchange(&client, &server).context("the next connection")?;
    }
    eventually("every byte acknowledged", || {
        Ok(client.queued(libc::TIOCOUTQ)? == 0)
    })
}

fn restarted(lab: &Lab) -> Outcome {
    connects_again(lab, 643, [false; 3])
}

/// The old connection may have checksums and the new one not, or the other way round.
fn restarted_with_checksums(lab: &Lab) -> Outcome {
    let cases = [
        [true, false, false],
        [false, true, true],
        [false, false, true],
    ];
    for (port, asks) in [645, 647, 649].into_iter().zip(cases) {
        connects_again(lab, port, asks).with_context(|| format!("checksums {asks:?}"))?;
    }
    Ok(())
}

/// In this test a client's host is restarted. Then the client connects again from the same port,
/// while the server still has the old connection. `asks` says whether the listener, the first
/// client and the second one ask for checksums.
fn connects_again(lab: &Lab, port: u16, asks: [bool; 3]) -> Outcome {
    let [of_listener, of_first, of_second] = asks.map(i32::from);
    let client_of = |asks: i32| -> Result<Socket> {
        let client = lab.a.esp()?;
        client.set_int_option(SOL_EP, ESP_SO_CHECKSUM, asks)?;
        client.bind(&lab.a.here(port + 1))?;
        Ok(client)
    };
    let listener = lab.b.esp_listener(port, 4)?;
    listener.set_int_option(SOL_EP, ESP_SO_CHECKSUM, of_listener)?;
    let client = client_of(of_first)?;
    client.connect(&lab.a.to(&lab.b, port))?;
    let (server, _) = listener.accept(0)?;
    exchange(&client, &server)?;
    let wire = lab.b.packets(ETH_P_ESP)?;
    client.send_all(b"last words")?;
    server.receive_exact(&mut [0; 10])?;
    let data = |frame: &[u8]| {
        EspHeader::of_frame(frame).filter(|last| last.length > 0 && last.destination == port)
    };
    let frame = wire.wait_for(patience(), |frame| data(frame).is_some())?;
    let last = data(&frame).context("no data")?;
    // Wait until the server's host has acknowledged every byte. Then no acknowledgement is in
    // flight that could arrive after the restart, and that the restarted host would answer with a
    // reset.
    eventually("every byte acknowledged", || {
        Ok(client.queued(libc::TIOCOUTQ)? == 0)
    })?;
    forget(&wire, &lab.b, &lab.a, (&last, last.mask_in(&frame)))?;
    refused(client.receive(&mut [0; 8], 0), libc::ECONNRESET, "recv")?;
    drop(client);
    lab.a.await_no_sockets()?;
    let events = server.poll(libc::POLLIN, std::time::Duration::ZERO)?;
    ensure!(events == 0, "the server has events {events:#x}");

    let client = client_of(of_second)?;
    client
        .connect(&lab.a.to(&lab.b, port))
        .context("connecting again from the same port")?;
    refused(server.receive(&mut [0; 8], 0), libc::ECONNRESET, "old recv")?;
    let (server, _) = listener.accept(0)?;
    exchange(&client, &server)
}
