// SPDX-License-Identifier: GPL-2.0

//! Packets that a driver's GRO must not join: those of another VLAN or tunnel. And what it holds when the module goes.

use std::os::fd::OwnedFd;

use crate::bpf;
use crate::calls::send_many;
use crate::frame::ETH_P_ALL;
use crate::prelude::*;
use crate::processor;

scenarios! {
    direct esp_packets_of_another_vlan_do_not_join = other_vlan;
    direct esp_packets_of_another_tunnel_do_not_join = other_tunnel;
    guest esp_module_unloads_while_a_driver_holds_packets = held_by_a_driver;
    guest esp_module_unloads_while_a_tunnel_holds_packets = held_by_a_tunnel;
}

const PORT: u16 = 410;

/// The address of the peer that is played by hand.
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 0x66];

/// Payload bytes of each packet.
const SIZE: usize = 100;

/// Has the driver of `host`'s `device` join packets, and hold them for `time` although no others come. What its only wire brings is
/// in pages until the descriptor is closed, as from a card: what a packet socket sends could not be joined otherwise.
fn hold_for(host: &Host, device: &str, time: Duration) -> Result<OwnedFd> {
    host.namespace
        .run("ethtool", &["-K", device, "gro", "on"])?;
    let pages = host.namespace.within(|| bpf::pass_by_xdp(host.ifindex))??;
    host.namespace.within_sys(|sys| {
        let file = sys.join("class/net").join(device).join("gro_flush_timeout");
        fs::write(file, time.as_nanos().to_string()).context("gro_flush_timeout")
    })?;
    Ok(pages)
}

/// An ESP frame between stations of the hosts' network.
fn frame(to: [u8; 6], from: [u8; 6], header: &EspHeader, payload: &[u8]) -> Vec<u8> {
    ethernet(to, from, ETH_P_ESP, &header.packet(payload))
}

/// The frame with a tag of this VLAN among its bytes.
fn tagged(vlan: u8, frame: &[u8]) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(12);
    [addresses, &[0x81, 0, 0, vlan], rest].concat()
}

/// The frame in one of GRE from 10.0.0.`from` of `lab.a` to `lab.b`.
fn in_gre(lab: &Lab, from: u8, frame: &[u8]) -> Vec<u8> {
    const HEADERS: usize = 24;
    let length = (HEADERS + frame.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend_from_slice(&length.to_be_bytes());
    // Not to be cut, for 64 hops, GRE, and the sum of the header's words.
    packet.extend_from_slice(&[0, 0, 0x40, 0, 64, 47, 0, 0]);
    packet.extend_from_slice(&[10, 0, 0, from, 10, 0, 0, 2]);
    let words = packet.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    // Ethernet frames, and nothing optional.
    packet.extend_from_slice(&[0, 0, 0x65, 0x58]);
    packet.extend_from_slice(frame);
    ethernet(lab.b.mac, lab.a.mac, 0x0800, &packet)
}

/// A stream of `lab.b`'s `device` with a peer on `lab.a`'s wire, whose frames `own` wraps; those that `others` wraps, which
/// go on with the stream right behind, belong to another device. They must not get into the stream.
fn strangers(
    lab: &Lab,
    device: &Device<'_>,
    behind: usize,
    own: &dyn Fn(&[u8]) -> Vec<u8>,
    others: &dyn Fn(&[u8]) -> Vec<u8>,
) -> Outcome {
    const ROUNDS: u8 = 50;
    processor::stay()?;
    // A veth that segments TCP does not let its peer join packets.
    lab.a
        .namespace
        .run("ethtool", &["-K", DEVICE, "tso", "off"])?;
    let _pages = hold_for(&lab.b, DEVICE, Duration::from_millis(10))?;
    let wire = lab.a.packets(ETH_P_ALL)?;
    let listener = device.listener(PORT)?;
    let mut header = EspHeader {
        sequence: 0x7777,
        ..EspHeader::new(9, PORT, flag::SYN)
    };
    let put = |header: &EspHeader, payload: &[u8]| frame(device.mac, PEER, header, payload);
    wire.send(&own(&put(&header, &[])))?;
    let answer = |bytes: &[u8]| bytes.get(behind..).and_then(EspHeader::of_frame);
    let answered = wire.wait_for(patience(), |bytes| {
        answer(bytes).is_some_and(|header| header.flags & flag::SYN != 0)
    })?;
    let answered = answer(&answered).context("an answer")?;
    header.acknowledgement = answered.sequence.wrapping_add(1);
    header.sequence = header.sequence.wrapping_add(1);
    header.flags = flag::ACK;
    wire.send(&own(&put(&header, &[])))?;
    let (server, _) = listener.accept(0)?;
    header.length = SIZE as u16;
    for round in 0..ROUNDS {
        header.flags = if round == 0 {
            flag::TXS | flag::ACK
        } else {
            flag::ACK
        };
        let bytes = [round; SIZE];
        let first = own(&put(&header, &bytes));
        header.sequence = header.sequence.wrapping_add(1);
        header.flags = flag::ACK;
        let second = others(&put(&header, &[0xff; SIZE]));
        let sent = send_many(
            wire.socket(),
            &[Piece::Good(&first), Piece::Good(&second)],
            0,
        )?;
        ensure!(sent == 2, "{sent} frames left");
        let mut there = [0; SIZE];
        server.receive_exact(&mut there)?;
        ensure!(there == bytes, "{there:?} in round {round}");
    }
    header.flags = flag::RST | flag::ACK;
    header.length = 0;
    wire.send(&own(&put(&header, &[])))?;
    Ok(())
}

/// The tags stand in the frames, as where the hardware does not take them off.
fn other_vlan(lab: &Lab) -> Outcome {
    lab.b.namespace.ip(
        "link add link eth0 name eth0.10 type vlan id 10\nlink set eth0.10 up\n\
         link add link eth0 name eth0.20 type vlan id 20\nlink set eth0.20 up\n",
    )?;
    let device = Device::ready(&lab.b.namespace, "eth0.20")?;
    let (own, other) = (
        |frame: &[u8]| tagged(20, frame),
        |frame: &[u8]| tagged(10, frame),
    );
    // The kernel takes the tag off for a packet socket.
    strangers(lab, &device, 0, &own, &other)
}

/// The outer addresses are all that tells the tunnels apart.
fn other_tunnel(lab: &Lab) -> Outcome {
    lab.give_ip_addresses()?;
    lab.b.namespace.ip(
        "link add in0 type gretap local 10.0.0.2 remote 10.0.0.1\nlink set in0 up\n\
         link add in1 type gretap local 10.0.0.2 remote 10.0.0.99\nlink set in1 up\n",
    )?;
    let device = Device::ready(&lab.b.namespace, "in0")?;
    let (own, other) = (
        |frame: &[u8]| in_gre(lab, 1, frame),
        |frame: &[u8]| in_gre(lab, 99, frame),
    );
    strangers(lab, &device, 38, &own, &other)
}

/// Lets `device` of `lab.b` join and hold two packets, which `wrap` wraps, unloads the module, and makes the driver let
/// go of all.
fn unload_while_held(
    lab: &Lab,
    device: &Device<'_>,
    name: &str,
    wrap: &dyn Fn(&[u8]) -> Vec<u8>,
) -> Outcome {
    processor::stay()?;
    let _pages = hold_for(&lab.b, name, Duration::from_secs(3600))?;
    let wire = lab.a.packets(ETH_P_ALL)?;
    let mut header = EspHeader {
        length: SIZE as u16,
        ..EspHeader::new(9, PORT, flag::ACK)
    };
    let mut next = || {
        header.sequence = header.sequence.wrapping_add(1);
        wrap(&frame(device.mac, PEER, &header, &[7; SIZE]))
    };
    // Nothing holds the first, so it is counted.
    let probe = EspHeader::new(11, PORT, flag::SYN);
    let probe = wrap(&frame(device.mac, PEER, &probe, &[]));
    let frames = [probe, next(), next(), next()];
    let pieces: Vec<_> = frames.iter().map(|frame| Piece::Good(frame)).collect();
    let sent = send_many(wire.socket(), &pieces, 0)?;
    ensure!(sent == 4, "{sent} frames left");
    lab.b.await_counter("EspInNoSocket", 1)?;
    module::unload()?;
    // Another packet has the driver poll, and look what it holds.
    wire.send(&wrap(&ethernet(device.mac, PEER, 0x88b7, &[0; 60])))?;
    thread::sleep(Duration::from_millis(50));
    wire.send(&wrap(&ethernet(device.mac, PEER, 0x88b7, &[0; 60])))?;
    module::load(&[])
}

fn held_by_a_driver() -> Outcome {
    let lab = Lab::new(Wiring::Direct)?;
    lab.a
        .namespace
        .run("ethtool", &["-K", DEVICE, "tso", "off"])?;
    let device = Device::ready(&lab.b.namespace, DEVICE)?;
    unload_while_held(&lab, &device, DEVICE, &<[u8]>::to_vec)
}

fn held_by_a_tunnel() -> Outcome {
    let lab = Lab::new(Wiring::Direct)?;
    lab.give_ip_addresses()?;
    lab.b
        .namespace
        .ip("link add in0 type gretap local 10.0.0.2 remote 10.0.0.1\nlink set in0 up\n")?;
    let device = Device::ready(&lab.b.namespace, "in0")?;
    unload_while_held(&lab, &device, "in0", &|frame| in_gre(&lab, 1, frame))
}
