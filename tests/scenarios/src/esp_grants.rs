// SPDX-License-Identifier: GPL-2.0-only

//! Tests windows that receivers grant to senders. A host whose window is set to a fixed value
//! neither grants windows nor uses granted ones.

use guest::lab::ESP_MSS;
use guest::prelude::*;
use guest::station::Station;

scenarios! {
    direct esp_grants_are_made_use_of = sender, needs_icount;
    direct esp_grants_are_not_for_a_sender_with_a_fixed_window = fixed;
    direct esp_grants_follow_the_rate = receiver, needs_icount;
    direct esp_buffers_grow_with_the_window = buffers, needs_icount;
    direct esp_grants_follow_a_long_way = long_way, needs_icount, within(120);
}

/// The options of a station with the module's defaults.
const OPTIONS: [u8; 16] = [1, 1, 1, 4, 2, 0x05, 0xd1, 5, 4, 0, 21, 0, 1, 7, 1, 255];

fn connect(lab: &Lab, port: u16) -> Result<(Station, Socket)> {
    let (station, client) = Station::connect_telling(lab, port, &OPTIONS)?;
    client.set_so(libc::SO_SNDBUFFORCE, 4 << 20)?;
    Ok((station, client))
}

fn expect(station: &mut Station, count: u16, what: &str) -> Outcome {
    let found = station.new_packets()?;
    ensure!(found == count, "{what}: {found} packets, not {count}");
    Ok(())
}

/// In this test a station (a peer that writes its own frames) grants windows, and counts the
/// packets that arrive.
fn sender(lab: &Lab) -> Outcome {
    let (mut station, client) = connect(lab, 890)?;
    client.send(&vec![1; 400 * ESP_MSS], 0)?;
    expect(&mut station, 2, "an announcement")?;
    station.grant(30, 60)?;
    expect(&mut station, 60, "a larger window")?;
    station.acknowledge()?;
    expect(&mut station, 60, "the same window, not repeated")?;
    station.grant(30, 5)?;
    expect(&mut station, 5, "a smaller window")?;
    station.grant(30, 0)?;
    expect(&mut station, 21, "the sender's own window")?;
    station.grant(30, 255)?;
    expect(
        &mut station,
        252,
        "the largest window, to the message's end",
    )?;
    station.grant(30, 100)?;
    client.send(&vec![2; 100 * ESP_MSS], 0)?;
    expect(&mut station, 31, "the next announcement")?;
    station.grant(0, 100)?;
    expect(&mut station, 69, "the rest")?;
    station.acknowledge()?;
    client.send(&vec![3; 100 * ESP_MSS], 0)?;
    expect(&mut station, 1, "a short announcement")?;
    station.reset()
}

/// If a host's window is set, the host uses this window, and ignores grants.
fn fixed(lab: &Lab) -> Outcome {
    Knobs(&lab.a.namespace).set("burst_length", 21)?;
    let (mut station, client) = connect(lab, 891)?;
    client.send(&vec![1; 100 * ESP_MSS], 0)?;
    expect(&mut station, 2, "an announcement")?;
    station.grant(30, 60)?;
    expect(&mut station, 21, "the window")?;
    station.reset()
}

/// Returns the grants of the server with the port `server` that arrived since the last call. Each
/// has a number of unscheduled packets (packets that may be sent before a window is granted) and a
/// window.
fn grants(wire: &PacketSocket, server: u16) -> Result<Vec<[u16; 2]>> {
    wire.socket().set_nonblocking(true)?;
    let (mut grants, mut frame) = (Vec::new(), [0; 2048]);
    while let Ok(length) = wire.take(&mut frame) {
        // Packets of an earlier connection may be among the frames.
        let header = EspHeader::of_frame(&frame[..length]).filter(|h| h.source == server);
        grants.extend(header.and_then(|header| header.granted()));
    }
    Ok(grants)
}

/// A buffer grows to the window that the transfer's rate needs, unless the buffer's size is set.
fn buffers(lab: &Lab) -> Outcome {
    const SEND: i32 = libc::SO_SNDBUF;
    const RECEIVE: i32 = libc::SO_RCVBUF;
    let load = Load::of(8 << 20, 1 << 20, 895);
    // Returns the sizes of the sender's send buffer and the receiver's receive buffer, before and
    // after a transfer.
    let sizes = |port, prepare: &dyn Fn(&Socket, &Socket) -> Outcome| {
        let (client, server) = lab.esp_pair(port)?;
        prepare(&client, &server)?;
        let size = |socket: &Socket, option| socket.so(option);
        let both = || anyhow::Ok([size(&client, SEND)?, size(&server, RECEIVE)?]);
        let before = both()?;
        transfer(&client, &server, load)?;
        anyhow::Ok((before, both()?))
    };
    let (before, after) = sizes(895, &|_, _| Ok(()))?;
    note(&format!("from {before:?} to {after:?} bytes"));
    for (before, after) in before.iter().zip(&after) {
        ensure!(*after >= 2 * before && *after <= 4 << 20, "{after} bytes");
    }
    let (before, after) = sizes(896, &|client, server| {
        client.set_so(SEND, 100_000)?;
        server.set_so(RECEIVE, 100_000)?;
        Ok(())
    })?;
    ensure!(before == after, "chosen buffers grew to {after:?}");
    Knobs(&lab.a.namespace).set("send_buff_size", 200_000)?;
    Knobs(&lab.b.namespace).set("recv_buff_size", 200_000)?;
    let (before, after) = sizes(897, &|_, _| Ok(()))?;
    ensure!(before == [200_000; 2], "the setting gave {before:?}");
    ensure!(before == after, "set buffers grew to {after:?}");
    Ok(())
}

/// Packets follow each other closely on a veth pair, and the guest's clock counts instructions, so
/// windows grow even on a busy machine. The test also checks the number of unscheduled packets,
/// which may be sent before a window is granted. A single sender is granted the largest number.
fn receiver(lab: &Lab) -> Outcome {
    let wire = lab.a.packets(ETH_P_ESP)?;
    let load = Load::of(4 << 20, 1 << 18, 892);
    let move_by = |port| {
        let (client, server) = lab.esp_pair(port)?;
        transfer(&client, &server, load)?;
        grants(&wire, port)
    };
    let granted = move_by(892)?;
    let last = granted.last().context("no grant")?;
    let windows: Vec<_> = granted.iter().map(|[_, window]| *window).collect();
    note(&format!("windows {windows:?}"));
    ensure!(last[0] == 42, "{} packets unscheduled", last[0]);
    let most = windows.iter().max();
    ensure!(most > Some(&40), "the largest window was {most:?}");
    ensure!(windows.iter().all(|window| *window >= 21), "{windows:?}");

    // A receiver whose window is set grants nothing, even if the window is set to its present
    // value.
    Knobs(&lab.b.namespace).set("burst_length", 21)?;
    let granted = move_by(893)?;
    ensure!(granted.is_empty(), "granted {granted:?}");
    let largest = Knobs(&lab.b.namespace).get("burst_length_max")?;
    ensure!(largest == 21, "burst_length_max is {largest}");
    Knobs(&lab.b.namespace).set("burst_length_max", 30)?;
    let granted = move_by(894)?;
    let most = granted.iter().map(|[_, window]| *window).max();
    ensure!(most == Some(30), "the largest window was {most:?}");
    Ok(())
}

/// A round trip of 20 ms needs more than 255 packets. Such windows are granted to connections
/// whose checksums have masks, and the goodput is higher than with at most 255 packets.
fn long_way(lab: &Lab) -> Outcome {
    // Buffers hold two of the largest windows, whatever `net.core.rmem_max` is.
    const BUFFER: i32 = 12 << 20;
    lab.netem(&["delay", "10ms", "limit", "20000"])?;
    let wire = lab.a.packets(ETH_P_ESP)?;
    let load = Load::of(24 << 20, 1 << 20, 898);
    let move_by = |port, checksum, most| {
        for host in [&lab.a, &lab.b] {
            Knobs(&host.namespace).set("checksum", checksum)?;
            Knobs(&host.namespace).set("burst_length_max", most)?;
        }
        let (client, server) = lab.esp_pair(port)?;
        client.set_so(libc::SO_SNDBUFFORCE, BUFFER)?;
        server.set_so(libc::SO_RCVBUFFORCE, BUFFER)?;
        let start = Instant::now();
        transfer(&client, &server, load)?;
        let took = start.elapsed();
        let windows = grants(&wire, port)?;
        let most = windows.iter().map(|[_, window]| *window).max();
        let most = most.ok_or_else(|| anyhow::anyhow!("no grant was captured"))?;
        note(&format!("{took:?} with windows up to {most}"));
        anyhow::Ok((took, most))
    };
    let (wide, most) = move_by(898, 1, 2040)?;
    ensure!(most > 255, "the largest window was {most}");
    let (narrow, most) = move_by(899, 1, 255)?;
    ensure!(most <= 255, "the largest window was {most}");
    ensure!(wide * 4 < narrow * 3, "{wide:?}, and {narrow:?} before");
    // Without checksums nothing but the numbers keeps forged packets out.
    let (_, most) = move_by(889, 0, 2040)?;
    ensure!(most <= 255, "the largest window was {most}");
    Ok(())
}
