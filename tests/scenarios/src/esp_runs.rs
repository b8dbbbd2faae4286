// SPDX-License-Identifier: GPL-2.0-only

//! Runs are packets that share a buffer. A veth pair passes runs whole. For other devices, the
//! sender's host cuts runs into packets. GRO merges packets that arrive from a driver into runs.

use guest::bpf;
use guest::frame::ESP_HEADERS;
use guest::lab::ESP_MSS;
use guest::polling;
use guest::prelude::*;
use guest::socket::meminfo::DROPS;
use guest::station::Station;
use guest::tun::{Carries, Tun};

scenarios! {
    direct esp_runs_pass_a_veth_pair_whole = whole;
    direct esp_runs_are_cut_into_packets_for_other_devices = cut;
    direct esp_runs_are_cut_for_devices_without_scatter_gather = linear;
    direct esp_bytes_behind_msg_more_leave_in_one_run = behind_more;
    direct esp_bytes_behind_msg_more_fit_a_smaller_mtu = smaller_mtu;
    direct esp_packets_join_on_arrival = joined;
    direct esp_packets_of_one_poll_join_without_gro = polled;
    direct esp_packets_of_another_host_do_not_join = stranger;
    direct esp_packets_join_in_both_directions_at_once = both_ways;
    direct esp_runs_to_the_own_host = own_host;
    direct esp_no_runs_without_generic_segmentation = switched_off;
    direct esp_segments_of_a_virtual_machine_are_refused = foreign;
    guest esp_module_unloads_after_joining = unloads;
}

const LOAD: Load = Load::of(4 << 20, 100_000, 14);

/// The length of a full frame at the MTU of 1500.
const FULL: usize = 1514;

/// Sets features of a host's device.
fn set(host: &Host, features: &[&str]) -> Result<()> {
    let arguments = [&["-K", DEVICE], features].concat();
    host.namespace.run("ethtool", &arguments).map(drop)
}

/// Sends `LOAD` from `a` to `b`. Returns the headers of the ESP data frames that `b` receives, each
/// with the length of its frame.
fn heard(lab: &Lab) -> Result<Vec<(EspHeader, usize)>> {
    let (client, server) = lab.esp_pair(400)?;
    let ear = lab.b.packets(ETH_P_ESP)?;
    transfer(&client, &server, LOAD)?;
    let mut frames = Vec::new();
    let mut bytes = vec![0; 1 << 17];
    while let Ok(length) = ear.take(&mut bytes) {
        if let Some(header) = EspHeader::of_frame(&bytes[..length]) {
            if header.length > 0 {
                frames.push((header, length));
            }
        }
    }
    // Each processor has a queue of its own for a veth's frames, so a frame may overtake another
    // when the sender changes processors. Therefore the frames are sorted.
    let start = frames.first().map_or(0, |(header, _)| header.sequence);
    frames.sort_by_key(|(header, _)| header.sequence.wrapping_sub(start) as i16);
    Ok(first_time(&frames))
}

/// Returns the number of packets in a frame with this header.
fn packets(header: &EspHeader) -> u16 {
    usize::from(header.length).div_ceil(FULL - ESP_HEADERS) as u16
}

/// Returns the frames without retransmitted packets. On a busy machine acknowledgements come late,
/// which causes retransmissions.
fn first_time(frames: &[(EspHeader, usize)]) -> Vec<(EspHeader, usize)> {
    let mut next = frames.first().map_or(0, |(header, _)| header.sequence);
    let mut new = Vec::new();
    for (header, length) in frames {
        let (mut header, mut length) = (*header, *length);
        let old = next.wrapping_sub(header.sequence);
        if old < 0x8000 {
            if old >= packets(&header) {
                continue;
            }
            header.sequence = next;
            header.length -= old * (FULL - ESP_HEADERS) as u16;
            length -= usize::from(old) * (FULL - ESP_HEADERS);
        }
        next = header.sequence.wrapping_add(packets(&header));
        new.push((header, length));
    }
    new
}

/// Checks the frames. They must carry all bytes and each number once, and their headers must have
/// the right length.
fn complete(frames: &[(EspHeader, usize)]) -> Outcome {
    let mut next = frames.first().map_or(0, |(header, _)| header.sequence);
    let mut total = 0;
    for (header, length) in frames {
        ensure!(header.sequence == next, "{header:?} instead of {next}");
        ensure!(
            usize::from(header.length) + ESP_HEADERS == *length,
            "{header:?} in {length} bytes"
        );
        next = next.wrapping_add(packets(header));
        total += usize::from(header.length);
    }
    ensure!(total == LOAD.total, "{total} bytes");
    Ok(())
}

fn whole(lab: &Lab) -> Outcome {
    let frames = heard(lab)?;
    complete(&frames)?;
    let runs = frames.iter().filter(|(_, length)| *length > FULL).count();
    ensure!(runs * 3 > frames.len(), "{runs} runs of {}", frames.len());
    Ok(())
}

/// Two sends, of which the first announces the second (`MSG_MORE`), leave in one buffer, also where
/// the bytes of both exceed a packet. A pause between the two sends may be longer than the first is
/// held back, so each shape is tried more than once.
fn behind_more(lab: &Lab) -> Outcome {
    let (client, server) = lab.esp_pair(401)?;
    let ear = lab.b.packets(ETH_P_ESP)?;
    let mut frame = vec![0; 1 << 17];
    for (first, second) in [(28, 4096), (1, ESP_MSS), (ESP_MSS - 1, 2), (300, 16_000)] {
        let bytes = random(first + second, 401);
        let mut got = vec![0; bytes.len()];
        let mut most = 0;
        for _ in 0..20 {
            client.send(&bytes[..first], libc::MSG_MORE)?;
            client.send_all(&bytes[first..])?;
            server.receive_exact(&mut got)?;
            ensure!(got == bytes, "the bytes changed on the way");
            while let Ok(length) = ear.take(&mut frame) {
                most = most.max(length);
            }
            if most == bytes.len() + ESP_HEADERS {
                break;
            }
        }
        same(
            most,
            bytes.len() + ESP_HEADERS,
            &format!("bytes of the longest buffer with {first} and {second} bytes"),
        )?;
    }
    Ok(())
}

/// The MTU becomes smaller between two sends, of which the first announces the second. The device
/// gets no frame that is longer than it may be.
fn smaller_mtu(lab: &Lab) -> Outcome {
    send_single_packets(&lab.a.namespace)?;
    let (client, server) = lab.esp_pair(402)?;
    for mtu in [1400, 1300, 1200, 1100] {
        let bytes = random(8_000, 402);
        client.send(&bytes[..100], libc::MSG_MORE)?;
        for host in [&lab.a, &lab.b] {
            host.namespace
                .run("ip", &["link", "set", DEVICE, "mtu", &mtu.to_string()])?;
        }
        let ear = lab.b.packets(ETH_P_ESP)?;
        client.send_all(&bytes[100..])?;
        let mut got = vec![0; bytes.len()];
        server.receive_exact(&mut got)?;
        ensure!(got == bytes, "the bytes changed on the way");
        let (mut longest, mut frame) = (0, vec![0; 1 << 17]);
        while let Ok(length) = ear.take(&mut frame) {
            longest = longest.max(length);
        }
        ensure!(longest <= mtu + 14, "a frame of {longest} bytes at {mtu}");
    }
    Ok(())
}

/// Checks that every frame is one packet, and that each message has TXS on its first packet only
/// and TXF on its last packet only.
fn single(frames: &[(EspHeader, usize)]) -> Outcome {
    complete(frames)?;
    let longest = frames.iter().map(|(_, length)| *length).max();
    ensure!(longest == Some(FULL), "a frame of {longest:?} bytes");
    let mut open = false;
    for (header, _) in frames {
        ensure!(open != (header.flags & flag::TXS != 0), "{header:?}");
        open = header.flags & flag::TXF == 0;
    }
    ensure!(!open, "the last message has no end");
    Ok(())
}

fn cut(lab: &Lab) -> Outcome {
    send_single_packets(&lab.a.namespace)?;
    single(&heard(lab)?)
}

fn linear(lab: &Lab) -> Outcome {
    send_single_packets(&lab.a.namespace)?;
    set(&lab.a, &["sg", "off"])?;
    single(&heard(lab)?)
}

fn switched_off(lab: &Lab) -> Outcome {
    lab.a
        .namespace
        .run("ip", &["link", "set", DEVICE, "gso_max_segs", "1"])?;
    let frames = heard(lab)?;
    single(&frames)
}

/// Makes `from` send single packets, and the driver of `to` poll for them and merge them (GRO).
fn join(from: &Host, to: &Host) -> Outcome {
    send_single_packets(&from.namespace)?;
    // A veth device does no GRO for packets of a peer that segments TCP.
    set(from, &["tso", "off"])?;
    set(to, &["gro", "on"])
}

fn joined(lab: &Lab) -> Outcome {
    join(&lab.a, &lab.b)?;
    let frames = heard(lab)?;
    complete(&frames)?;
    let runs = frames.iter().filter(|(_, length)| *length > FULL).count();
    ensure!(runs * 3 > frames.len(), "{runs} joined of {}", frames.len());
    Ok(())
}

fn both_ways(lab: &Lab) -> Outcome {
    join(&lab.a, &lab.b)?;
    join(&lab.b, &lab.a)?;
    let (client, server) = lab.esp_pair(401)?;
    transfer_both_ways(&client, &server, LOAD)
}

fn polled(lab: &Lab) -> Outcome {
    send_single_packets(&lab.a.namespace)?;
    let _polls = [polling::without_gro(&lab.a)?, polling::without_gro(&lab.b)?];
    let (client, server) = lab.esp_pair(404)?;
    // The filter drops everything larger than a single packet.
    const MTU: u32 = 1500;
    let singles = [
        bpf::LOAD_LENGTH,
        bpf::if_larger(MTU),
        bpf::keep(0),
        bpf::KEEP_ALL,
    ];
    bpf::attach(&server, &singles)?;
    let message = random(30_000, 15);
    client.send(&message, 0)?;
    eventually("the filter drops joined packets", || {
        Ok(server.meminfo()?[DROPS] != 0)
    })?;
    bpf::detach(&server)?;
    let mut there = vec![0; message.len()];
    server.receive_exact(&mut there)?;
    ensure!(there == message, "not the bytes that were sent");
    transfer_both_ways(&client, &server, LOAD)
}

/// In this test a packet of a different host has the stream's next number, and follows a packet of
/// the stream directly. GRO must not merge the two.
fn stranger(lab: &Lab) -> Outcome {
    let _polls = polling::in_a_thread(&lab.a)?;
    let (mut station, client) = Station::connect(lab, 405)?;
    for round in 0..100 {
        let flags = if round == 0 { flag::TXS } else { 0 };
        let bytes = [round; 100];
        station.send_before_a_stranger(flags, &bytes, &[0xff; 100])?;
        let mut there = [0; 100];
        client.receive_exact(&mut there)?;
        ensure!(there == bytes, "{there:?} in round {round}");
    }
    station.reset()
}

fn own_host(lab: &Lab) -> Outcome {
    let listener = lab.a.esp_listener(402, 1)?;
    let client = lab.a.esp_connected(&lab.a.to(&lab.a, 402))?;
    let (server, _) = listener.accept(0)?;
    transfer(&client, &server, LOAD)
}

/// In this test a frame has ESP's Ethernet type, but its virtio header says that the frame holds
/// segments of TCP.
fn foreign(lab: &Lab) -> Outcome {
    const TCPV4: u8 = 1;
    let host = &lab.a;
    let tap = Tun::create(&host.namespace, "tap0", Carries::SegmentedFrames)?;
    host.namespace.ip("link set tap0 up\n")?;
    let mac = Device::ready(&host.namespace, "tap0")?.mac;
    let header = EspHeader {
        length: 3000,
        ..EspHeader::new(1, 2, flag::ACK)
    };
    let frame = ethernet(mac, [2; 6], ETH_P_ESP, &header.packet(&[7; 3000]));
    // `struct virtio_net_hdr`: flags, gso_type, hdr_len, gso_size, csum_start, csum_offset.
    let segments = |kind: u8, size: u16| {
        let mut bytes = vec![0, kind];
        for word in [ESP_HEADERS as u16, size, 0, 0] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(&frame);
        bytes
    };
    // The results of the writes are ignored. The segmentation does not match the frame's type, so
    // the kernel may refuse a frame, or accept it and mark it as untrusted. In neither case does
    // the frame reach a socket.
    for size in [1, 100, 1489, u16::MAX] {
        let _ = tap.write(&segments(TCPV4, size));
    }
    tap.write(&segments(0, 0))?;
    host.await_counter("EspInNoSocket", 1)
}

/// GRO flushes the packets that it holds before the module's code is unloaded.
fn unloads() -> Outcome {
    let lab = Lab::new(Wiring::Direct)?;
    join(&lab.a, &lab.b)?;
    {
        let (client, server) = lab.esp_pair(403)?;
        transfer(&client, &server, LOAD)?;
    }
    module::unload()?;
    module::load(&[])
}
