// SPDX-License-Identifier: GPL-2.0-only

//! Tests checksums of ESP packets: how the ends agree on them, where they are computed and
//! validated, and which damage they detect.

use super::esp_cookies::await_cookies;
use std::collections::BTreeMap;

use guest::address::ESP_SO_CHECKSUM;
use guest::harness::remark;
use guest::prelude::*;
use guest::relay::Faults;
use guest::station::Station;

scenarios! {
    direct checksum_that_either_side_asks_for_serves_both = agreed;
    direct checksum_option_is_for_the_next_connection = option;
    direct checksum_follows_every_packet = every_packet;
    direct checksum_is_checked_before_packets_join = joined;
    direct checksum_that_is_wrong_or_missing_is_a_lost_packet = wrong_or_missing;
    direct checksum_is_agreed_behind_a_cookie = behind_a_cookie;
    direct checksum_of_a_forged_syn_begins_none = forged_syn;
    direct checksum_that_comes_first_behind_data_ends_no_connection = too_late;
    switched checksum_finds_what_the_frame_check_does_not = behind_the_frame_check, within(240);
}

const LOAD: Load = Load::of(1 << 20, 100_000, 17);

/// The number of payload bytes of a full packet with a checksum, at the MTU of 1500.
const PAYLOAD: i32 = 1485;

/// Sets whether the socket asks for checksums.
fn ask(socket: &Socket, sums: bool) -> Outcome {
    Ok(socket.set_int_option(SOL_EP, ESP_SO_CHECKSUM, sums.into())?)
}

/// Returns a connection to `port` of host `b`. `asks` says for each end whether it asks for
/// checksums; `None` leaves the default.
fn pair(lab: &Lab, port: u16, asks: [Option<bool>; 2]) -> Result<[Socket; 2]> {
    let listener = lab.b.esp_listener(port, 1)?;
    let client = lab.a.esp()?;
    for (socket, sums) in [&client, &listener].into_iter().zip(asks) {
        sums.map_or(Ok(()), |sums| ask(socket, sums))?;
    }
    client.connect(&lab.a.to(&lab.b, port)).context("connect")?;
    let (server, _) = listener.accept(0).context("accept")?;
    Ok([client, server])
}

/// Returns whether both ends have checksums, and checks that the ends agree.
fn have(ends: &[Socket; 2]) -> Result<bool> {
    let mut have = [false; 2];
    for (end, has) in ends.iter().zip(&mut have) {
        *has = end.int_option(SOL_EP, ESP_SO_CHECKSUM)? == 1;
        let payload = end.largest_payload()?;
        let expected = if *has { PAYLOAD } else { PAYLOAD + 4 };
        same(payload, expected, &format!("ESP_SO_MTU, {has} checksums"))?;
    }
    ensure!(have[0] == have[1], "one end alone has checksums");
    Ok(have[0])
}

fn agreed(lab: &Lab) -> Outcome {
    let (yes, no) = (Some(true), Some(false));
    for (port, asks, expected) in [
        (880, [None, None], false),
        (881, [yes, None], true),
        (882, [None, yes], true),
        (883, [yes, no], true),
        (884, [no, yes], true),
    ] {
        let ends = pair(lab, port, asks)?;
        ensure!(have(&ends)? == expected, "asked {asks:?}");
        transfer_both_ways(&ends[0], &ends[1], LOAD)?;
        ensure!(have(&ends)? == expected, "asked {asks:?}, later");
    }
    Knobs(&lab.b.namespace).set("checksum", 1)?;
    for (port, asks, expected) in [(885, [None, None], true), (886, [None, no], false)] {
        let ends = pair(lab, port, asks)?;
        ensure!(have(&ends)? == expected, "with the sysctl, asked {asks:?}");
    }
    for host in [&lab.a, &lab.b] {
        let wrong = host.counter("EspInCsumErrors")?;
        ensure!(wrong == 0, "{wrong} packets with wrong checksums");
    }
    Ok(())
}

fn option(lab: &Lab) -> Outcome {
    let socket = lab.a.esp()?;
    let value = || socket.int_option(SOL_EP, ESP_SO_CHECKSUM);
    ensure!(value()? == 0, "checksums by default");
    ask(&socket, true)?;
    ensure!(value()? == 1, "the option does not tell what was set");
    let refuses = |value, errno, what| {
        refused(
            socket.set_int_option(SOL_EP, ESP_SO_CHECKSUM, value),
            errno,
            what,
        )
    };
    refuses(2, libc::EINVAL, "2")?;
    refuses(-1, libc::EINVAL, "-1")?;
    let _listener = lab.b.esp_listener(887, 1)?;
    socket.connect(&lab.a.to(&lab.b, 887))?;
    refuses(0, libc::EISCONN, "an open connection")?;
    ensure!(value()? == 1, "a refused call changed it");
    Ok(())
}

/// A forger that finds the number of a connection's SYN makes neither end use checksums.
fn forged_syn(lab: &Lab) -> Outcome {
    let wire = lab.b.packets(ETH_P_ESP)?;
    let ends = pair(lab, 892, [None, None])?;
    let syn = wire.wait_for_esp(|header| header.flags == flag::SYN)?;
    exchange(&ends[0], &ends[1])?;
    let forged = EspHeader { length: 0, ..syn };
    let frame = ethernet(lab.b.mac, lab.a.mac, ETH_P_ESP, &forged.summed_packet(&[]));
    lab.a.packets(ETH_P_ESP)?.send(&frame)?;
    transfer_both_ways(&ends[0], &ends[1], LOAD)?;
    ensure!(!have(&ends)?, "the forged SYN has begun checksums");
    Ok(())
}

/// Returns the ESP frames that the packet socket `ear` has received.
fn heard(ear: &PacketSocket) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut bytes = vec![0; 1 << 17];
    while let Ok(length) = ear.take(&mut bytes) {
        frames.push(bytes[..length].to_vec());
    }
    frames
}

/// Checks three kinds of packets: packets that are cut from runs (several packets in one buffer),
/// with and without scatter-gather; packets that are sent one by one; and packets without payload.
fn every_packet(lab: &Lab) -> Outcome {
    let features: [&[&str]; 3] = [
        &[],
        &["ethtool", "-K", DEVICE, "sg", "off"],
        &["ip", "link", "set", DEVICE, "gso_max_segs", "1"],
    ];
    send_single_packets(&lab.a.namespace)?;
    send_single_packets(&lab.b.namespace)?;
    for (port, features) in (888..).zip(features) {
        if let [program, arguments @ ..] = features {
            lab.a.namespace.run(program, arguments)?;
        }
        let ear = lab.b.packets(ETH_P_ESP)?;
        let [client, server] = pair(lab, port, [Some(true), None])?;
        exchange(&client, &server)?;
        transfer(&client, &server, LOAD)?;
        drop(client);
        drop(server);
        lab.await_no_sockets()?;
        let mut flags = 0;
        let mut full = 0;
        // The checksums of a connection have a mask, a value that is XORed into them. The mask
        // stays the same until a side's sequence numbers wrap, at most once in each transfer.
        let mut first = BTreeMap::new();
        let mut masks = BTreeMap::new();
        for frame in heard(&ear) {
            let header = EspHeader::of_frame(&frame).context("no ESP")?;
            let mask = header.mask_in(&frame);
            let right = if header.flags & flag::SYN != 0 {
                first.entry(header.source).or_insert(header.sequence);
                Some(0)
            } else {
                let wrapped = |port, number| first.get(&port).is_some_and(|first| number < *first);
                let mut wraps = [
                    (header.source, wrapped(header.source, header.sequence)),
                    (
                        header.destination,
                        wrapped(header.destination, header.acknowledgement),
                    ),
                ];
                wraps.sort_unstable();
                *masks.entry(wraps).or_insert(mask)
            };
            ensure!(
                mask.is_some() && mask == right,
                "{features:?}: {header:?} in {} bytes with the mask {mask:x?}, not {right:x?}",
                frame.len()
            );
            flags |= header.flags;
            full += usize::from(i32::from(header.length) == PAYLOAD);
        }
        let all = flag::SYN | flag::ACK | flag::FIN | flag::TXS | flag::TXF;
        ensure!(flags & all == all, "flags {flags:#04x} only");
        ensure!(full > 600, "{full} full packets");
    }
    Ok(())
}

fn joined(lab: &Lab) -> Outcome {
    send_single_packets(&lab.a.namespace)?;
    for (host, feature) in [(&lab.a, "tso"), (&lab.b, "gro")] {
        let value = if feature == "gro" { "on" } else { "off" };
        host.namespace
            .run("ethtool", &["-K", DEVICE, feature, value])?;
    }
    let [client, server] = pair(lab, 891, [Some(true), None])?;
    let ear = lab.b.packets(ETH_P_ESP)?;
    transfer(
        &client,
        &server,
        Load {
            total: 4 << 20,
            ..LOAD
        },
    )?;
    let frames = heard(&ear);
    let runs = frames.iter().filter(|frame| frame.len() > 1514).count();
    ensure!(runs * 3 > frames.len(), "{runs} joined of {}", frames.len());
    let wrong = lab.b.counter("EspInCsumErrors")?;
    ensure!(wrong == 0, "{wrong} packets with wrong checksums");
    Ok(())
}

/// The scenario forges frames of the client. The server accepts only the frame with the correct
/// checksum.
fn wrong_or_missing(lab: &Lab) -> Outcome {
    send_single_packets(&lab.a.namespace)?;
    let ear = lab.b.packets(ETH_P_ESP)?;
    let wire = lab.a.packets(ETH_P_ESP)?;
    let [client, server] = pair(lab, 892, [Some(true), None])?;
    client.send_all(b"first")?;
    let frame = ear.wait_for(patience(), |frame| {
        EspHeader::of_frame(frame).is_some_and(|header| header.length == 5)
    })?;
    server.receive_exact(&mut [0; 5])?;
    let first = EspHeader::of_frame(&frame).context("no ESP")?;
    let next = EspHeader {
        sequence: first.sequence.wrapping_add(1),
        ..first
    };
    let put = |packet: &[u8]| {
        let frame = ethernet(lab.b.mac, lab.a.mac, ETH_P_ESP, packet);
        wire.send(&frame).context("a frame")
    };
    let mask = first.mask_in(&frame).context("no checksum")?;
    let right = next.masked_packet(b"right", mask);
    for bit in 0..right.len() * 8 {
        // No bit of the ports or the length is flipped, because such a packet would belong to
        // another socket, or be too short.
        if !(0..48).contains(&bit) {
            let mut wrong = right.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            put(&wrong)?;
        }
    }
    let flips = (right.len() * 8 - 48) as u32;
    let missing = EspHeader {
        flags: next.flags & !flag::CRC,
        ..next
    };
    put(&missing.packet(b"wrong"))?;
    put(&right)?;
    comes_next(&server, b"right")?;
    let wrong = lab.b.counter("EspInCsumErrors")?;
    same(wrong, flips + 1, "wrong ones counted")
}

/// A listener that answers with a cookie forgets the SYN. The client's next packet shows that the
/// SYN had a checksum.
fn behind_a_cookie(lab: &Lab) -> Outcome {
    let listener = lab.b.esp_listener(893, 1)?;
    let wire = lab.a.packets(ETH_P_ESP)?;
    await_cookies(&lab.b, &wire, 893)?;
    let client = lab.a.esp()?;
    ask(&client, true)?;
    client.connect(&lab.a.to(&lab.b, 893)).context("connect")?;
    let (server, _) = listener.accept(0).context("accept")?;
    ensure!(lab.b.counter("EspInCookies")? > 0, "no cookie answered");
    let ends = [client, server];
    ensure!(have(&ends)?, "no checksums");
    transfer_both_ways(&ends[0], &ends[1], LOAD)
}

/// The peer in this test does not accept skips (packets that advance the expected sequence number).
/// The client would need skips to replace its full packets by smaller ones with checksums. So the
/// client drops the first packet with a checksum instead.
fn too_late(lab: &Lab) -> Outcome {
    let (mut station, client) = Station::connect(lab, 894)?;
    client.send_all(&[7; 3 * (PAYLOAD as usize + 4)])?;
    let left = station.new_packets()?;
    ensure!(left > 0, "nothing has left");
    station.expected = station.expected.wrapping_sub(left);
    station.send_summed(flag::ACK | flag::TXS | flag::TXF, b"late")?;
    station.send_data(flag::TXS | flag::TXF, b"right")?;
    comes_next(&client, b"right")?;
    let wrong = lab.a.counter("EspInCsumErrors")?;
    same(wrong, 1, "packets with checksums dropped")?;
    station.expected = station.expected.wrapping_add(left);
    eventually("all is acknowledged", || {
        station.acknowledge()?;
        station.new_packets()?;
        Ok(client.queued(libc::TIOCOUTQ)? == 0)
    })
}

/// The outcomes of 50 connections of 200 packets each. A bit changes in one frame of a hundred, and
/// no frame check detects the change.
#[derive(Debug, Default)]
struct Fates {
    /// All bytes arrived as they were sent.
    intact: u32,
    /// All bytes arrived, some of them changed.
    changed: u32,
    /// The connection was refused, ended or stalled.
    broken: u32,
}

fn stream(lab: &Lab, listener: &Socket, port: u16, sums: bool, fates: &mut Fates) -> Outcome {
    let limit = if sums {
        patience()
    } else {
        allow(Duration::from_secs(1))
    };
    let client = lab.a.esp()?;
    ask(&client, sums)?;
    for socket in [&client, listener] {
        for option in [libc::SO_SNDTIMEO, libc::SO_RCVTIMEO] {
            socket.set_timeout(option, limit)?;
        }
    }
    let bytes = random(200 * PAYLOAD as usize, port.into());
    let connected = client.connect(&lab.a.to(&lab.b, port));
    let accepted = connected.and_then(|()| listener.accept(0));
    let Ok((server, _)) = accepted else {
        fates.broken += 1;
        return Ok(());
    };
    for option in [libc::SO_SNDTIMEO, libc::SO_RCVTIMEO] {
        server.set_timeout(option, limit)?;
    }
    let mut got = vec![0; bytes.len()];
    let receive = || Ok(server.receive_exact(&mut got));
    let (_, received) = beside(|| Ok(client.send_all(&bytes)), receive)?;
    match received {
        Err(_) => fates.broken += 1,
        Ok(()) if got == bytes => fates.intact += 1,
        Ok(()) => fates.changed += 1,
    }
    // Closing resets the connection, so neither end waits for the other.
    client.set_linger(Some(0))?;
    server.set_linger(Some(0))?;
    Ok(())
}

fn behind_the_frame_check(lab: &Lab) -> Outcome {
    send_single_packets(&lab.a.namespace)?;
    send_single_packets(&lab.b.namespace)?;
    let mut told = Vec::new();
    for sums in [false, true] {
        let (mut fates, before) = (
            Fates::default(),
            lab.relay().tally().damaged.load(Ordering::Relaxed),
        );
        for round in 0..50 {
            let port = 900 + 50 * u16::from(sums) + round;
            let listener = lab.b.esp_listener(port, 1)?;
            lab.relay().set_faults(Faults {
                corrupt: 0.01,
                ..Faults::NONE
            });
            stream(lab, &listener, port, sums, &mut fates)?;
            lab.relay().set_faults(Faults::NONE);
        }
        let damaged = lab.relay().tally().damaged.load(Ordering::Relaxed) - before;
        let counted = lab.a.counter("EspInCsumErrors")? + lab.b.counter("EspInCsumErrors")?;
        remark(&format!(
            "checksums: {sums}; {damaged} damaged frames, {counted} found by checksums; of 50 streams \
             {} intact, {} with changed bytes, {} broken",
            fates.intact, fates.changed, fates.broken
        ));
        ensure!(damaged > 50, "only {damaged} damaged frames");
        told.push((fates, counted));
    }
    let [(without, none), (with, found)] = &told[..] else {
        unreachable!("two rounds");
    };
    ensure!(*none == 0 && *found > 50, "{none} and {found} found");
    ensure!(
        without.changed > 0,
        "no byte changed without checksums: {without:?}"
    );
    ensure!(with.intact == 50, "with checksums: {with:?}");
    Ok(())
}
