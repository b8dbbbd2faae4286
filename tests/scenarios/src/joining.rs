// SPDX-License-Identifier: GPL-2.0-only

//! Tests the limits of GRO: packets of different VLANs or tunnels are not merged, although their
//! ports, sequence numbers and outer Ethernet addresses match.

use guest::frame::{ipv4, PacketSocket};
use guest::prelude::*;
use guest::processor;
use guest::tun::{Carries, Tun};

scenarios! {
    direct packets_of_two_vlans_are_not_joined = |lab| apart(lab, &VLANS);
    direct packets_of_two_tunnels_are_not_joined = |lab| apart(lab, &TUNNELS);
    direct packets_are_joined_up_to_what_the_device_allows = allowed;
}

const PORT: u16 = 882;
const STRANGERS_PORT: u16 = 883;

/// The Ethernet address of the host at the other end of the wire, which the test plays.
const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 0x66];

/// The number of payload bytes of each packet.
const LENGTH: usize = 100;

/// The number of rounds. Each sends two packets in succession. GRO holds the first packet until the
/// next tick of the kernel's clock, so in some rounds this packet is delivered before the second
/// one arrives. Such rounds prove nothing.
const ROUNDS: u8 = 30;

/// Two ways to a host over one wire: the devices `in0` and `in1`.
struct Ways {
    /// Lines for `ip` that make the devices `in0` and `in1`.
    lines: &'static str,
    /// Wraps a frame for the first or the second device; `wire` is the Ethernet address of `tap0`,
    /// the device under `in0` and `in1`.
    wrap: fn(frame: &[u8], second: bool, wire: [u8; 6]) -> Vec<u8>,
    /// The number of bytes that the encapsulation adds to a frame.
    behind: usize,
}

/// No hardware strips these tags, so they are part of the frame when GRO sees it.
const VLANS: Ways = Ways {
    lines:
        "link add link tap0 name in0 type vlan id 10\nlink add link tap0 name in1 type vlan id 20\n",
    wrap: |frame, second, _| {
        let tag = [0x81, 0, 0, if second { 20 } else { 10 }];
        [&frame[..12], &tag, &frame[12..]].concat()
    },
    behind: 4,
};

/// Tunnels from two IP addresses behind one router, so that their outer Ethernet addresses match.
const TUNNELS: Ways = Ways {
    lines: "address add 10.7.0.1/24 dev tap0\n\
            neigh add 10.7.0.2 lladdr 02:00:00:00:00:66 dev tap0 nud permanent\n\
            neigh add 10.7.0.3 lladdr 02:00:00:00:00:66 dev tap0 nud permanent\n\
            link add in0 type gretap local 10.7.0.1 remote 10.7.0.2\n\
            link add in1 type gretap local 10.7.0.1 remote 10.7.0.3\n",
    wrap: |frame, second, wire| {
        let from = [10, 7, 0, if second { 3 } else { 2 }];
        let gre = [&[0, 0, 0x65, 0x58], frame].concat();
        ethernet(wire, STRANGER, 0x0800, &ipv4(from, [10, 7, 0, 1], 47, &gre))
    },
    behind: 14 + 20 + 4,
};

/// A wire on which the test plays the stranger. `header` is the header of the stranger's next
/// packet on its stream.
struct Wire<'a> {
    tap: Tun,
    /// The Ethernet address of `tap0`, the device under `in0` and `in1`.
    wire: [u8; 6],
    near: Device<'a>,
    ways: &'a Ways,
    header: EspHeader,
}

impl<'a> Wire<'a> {
    /// Sets up the wire, and a connection over `in0`.
    fn connect(lab: &'a Lab, ways: &'a Ways) -> Result<(Self, Socket)> {
        let namespace = &lab.a.namespace;
        let tap = Tun::create(namespace, "tap0", Carries::PolledFrames)?;
        // GRO holds each packet for 20 ms, so that later packets can be merged with it.
        namespace.within_sys(|sys| {
            let file = sys.join("class/net/tap0/gro_flush_timeout");
            fs::write(&file, "20000000\n").with_context(|| file.display().to_string())
        })?;
        namespace.ip("link set tap0 up\n")?;
        namespace.ip(ways.lines)?;
        namespace.ip("link set in0 up\nlink set in1 up\n")?;
        let wire = Device::ready(namespace, "tap0")?.mac;
        let near = Device::ready(namespace, "in0")?;
        Device::ready(namespace, "in1")?;
        let listener = near.listener(PORT)?;
        let mut this = Self {
            tap,
            wire,
            near,
            ways,
            header: EspHeader {
                sequence: 0x7777,
                ..EspHeader::new(STRANGERS_PORT, PORT, flag::SYN)
            },
        };
        this.write(&[], false)?;
        let answer = loop {
            let frame = this.tap.read(patience())?.context("no answer to the SYN")?;
            let inner = match ways.behind {
                4 => [&frame[..12], frame.get(16..).unwrap_or_default()].concat(),
                behind => frame.get(behind..).unwrap_or_default().to_vec(),
            };
            if let Some(header) = EspHeader::of_frame(&inner) {
                break header;
            }
        };
        ensure!(answer.flags == flag::SYN | flag::ACK, "{answer:?}");
        this.header.flags = flag::ACK;
        this.header.sequence += 1;
        this.header.acknowledgement = answer.sequence.wrapping_add(1);
        this.write(&[], false)?;
        let (stream, _) = listener.accept(0).context("accept")?;
        Ok((this, stream))
    }

    /// Sends a packet with the connection's next sequence number, to `in0` or, if `second` is set,
    /// to `in1`.
    fn write(&self, payload: &[u8], second: bool) -> Result<()> {
        let header = EspHeader {
            length: payload.len() as u16,
            ..self.header
        };
        let frame = ethernet(self.near.mac, STRANGER, ETH_P_ESP, &header.packet(payload));
        (self.tap).write(&(self.ways.wrap)(&frame, second, self.wire))
    }

    /// Sends a packet of the stream whose payload bytes all have this value.
    fn send(&mut self, value: u8) -> Result<()> {
        self.write(&[value; LENGTH], false)?;
        self.header.sequence += 1;
        Ok(())
    }
}

/// Sends pairs of packets to `in0`. Returns how many pairs GRO merged.
fn joined(wire: &mut Wire<'_>, stream: &Socket, seen: &PacketSocket) -> Result<usize> {
    let mut joined = 0;
    for _ in 0..ROUNDS {
        wire.send(1)?;
        wire.send(2)?;
        comes_next(stream, &[[1; LENGTH], [2; LENGTH]].concat())?;
        let first = seen.wait_for(patience(), |_| true)?;
        if first.len() > guest::frame::ESP_HEADERS + LENGTH {
            joined += 1;
        } else {
            seen.wait_for(patience(), |_| true)?;
        }
    }
    note(&format!("{joined} of {ROUNDS} pairs of packets joined"));
    Ok(joined)
}

fn apart(lab: &Lab, ways: &Ways) -> Outcome {
    processor::stay()?;
    let (mut wire, stream) = Wire::connect(lab, ways)?;
    // Check that GRO merges two packets to `in0`. Otherwise the following checks would prove
    // nothing.
    let seen = PacketSocket::open(&lab.a.namespace, "in0", ETH_P_ESP)?;
    ensure!(joined(&mut wire, &stream, &seen)? > 0, "nothing is joined");
    for round in 0..ROUNDS {
        wire.send(1)?;
        // This packet goes to `in1`, with the sequence number that the connection over `in0`
        // expects next.
        wire.write(&[2; LENGTH], true)?;
        comes_next(&stream, &[1; LENGTH])?;
        wire.send(3)?;
        comes_next(&stream, &[3; LENGTH]).with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

/// GRO does not merge two packets that together would be longer than the device's limit.
fn allowed(lab: &Lab) -> Outcome {
    processor::stay()?;
    let (mut wire, stream) = Wire::connect(lab, &VLANS)?;
    let seen = PacketSocket::open(&lab.a.namespace, "in0", ETH_P_ESP)?;
    ensure!(joined(&mut wire, &stream, &seen)? > 0, "nothing is joined");
    (lab.a.namespace).ip("link set tap0 gro_max_size 200 gro_ipv4_max_size 200\n")?;
    same(
        joined(&mut wire, &stream, &seen)?,
        0,
        "pairs joined beyond the limit",
    )
}
