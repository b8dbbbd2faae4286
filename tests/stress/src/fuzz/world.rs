// SPDX-License-Identifier: GPL-2.0-only

//! Makes the hosts and wires of the fuzzer. All frames of two hosts pass through the fuzzer. A
//! third host must not be disturbed.
//!
//! ```text
//!  a eth0 === ap        wire (the fuzzer's packet sockets)
//!  b eth0 === bp --- br0 --- hp === eth0 h
//!                     |
//!                     xp === x
//! ```
//!
//! Frames from host a end at ap, and frames from host b to host a end at bp; only the fuzzer
//! forwards them. Frames sent through bp reach host b directly. Frames sent through x are cloned by
//! the bridge, which learns no addresses and so floods all ports.
//!
//! Host a's driver polls in a thread, without GRO, so the protocol gets the packets of a poll as
//! one list. Host b's driver polls with GRO; while GRO is off, it does not poll at all. Both hosts
//! have further devices for tags and tunnels. No device accepts GSO packets, so the core segments
//! them before sending.

use std::os::fd::OwnedFd;

use crate::fuzz::wrap::Wrap;
use guest::device::{await_carrier, Device};
use guest::packet_ring::FRAME_MAX;
use guest::polling;
use guest::prelude::*;

/// MTU of the wire's devices.
const MTU: usize = 9000;
const _: () = assert!(FRAME_MAX == 14 + MTU);

/// A stream port with a listener that accepts.
pub const ACCEPTED: u16 = 4000;
/// A stream port with a listener that never accepts.
pub const NEGLECTED: u16 = 4001;
/// A port without a socket.
pub const VACANT: u16 = 4002;
/// An EDP port with an unconnected socket.
pub const OPEN: u16 = 4003;
/// An EDP port whose socket is connected to the same port of the other host.
pub const CONNECTED: u16 = 4004;
/// A port with a listener of records.
pub const RECORDS: u16 = 4005;
/// A port with a listener of channels.
pub const CHANNELS: u16 = 4006;
/// Ports that frames are aimed at.
pub const PORTS: [u16; 7] = [
    ACCEPTED, NEGLECTED, VACANT, OPEN, CONNECTED, RECORDS, CHANNELS,
];

/// The VLAN in which only the honest host talks to host b, and the name of this VLAN's device on
/// both hosts.
const HONEST_VLAN: u16 = 50;
const HONEST_DEVICE: &str = "v50";

/// Three hosts and the wire between them.
#[derive(Debug)]
pub struct World {
    /// An attacked host.
    pub a: Host,
    /// The other attacked host.
    pub b: Host,
    /// The honest host.
    pub honest: Host,
    /// The namespace of the fuzzer.
    pub wire: Netns,
    /// Indexes of the devices of a and b, one for each [`Wrap`].
    devices: [[u32; Wrap::ALL.len()]; 2],
    _polled: OwnedFd,
}

impl World {
    /// Sets up hosts and wire.
    ///
    /// # Errors
    /// If `ip` fails, with its message.
    pub fn new() -> Result<Self> {
        let wire = Netns::create()?;
        let mut lines = format!(
            "link add br0 type bridge mcast_snooping 0 ageing_time 0\n\
             link add x mtu {MTU} type veth peer name xp mtu {MTU}\n"
        );
        let mut hosts = Vec::new();
        for (port, number) in [("ap", 1u8), ("bp", 2), ("hp", 3)] {
            let mac = [2, 0, 0, 0, 0, number];
            let namespace = Netns::create()?;
            lines += &format!(
                "link add {port} mtu {MTU} type veth peer name {DEVICE} mtu {MTU} address {} netns {}\n\
                 link set {port} up promisc on\n",
                print_mac(mac),
                namespace.path()
            );
            hosts.push((namespace, mac));
        }
        for port in ["bp", "hp", "xp"] {
            lines += &format!(
                "link set {port} master br0\n\
                 link set {port} type bridge_slave learning off flood on mcast_flood on bcast_flood on\n"
            );
        }
        lines += "link set xp up\nlink set x up\nlink set br0 up\n";
        wire.ip(&lines)?;
        let mut hosts = hosts.into_iter().map(|(namespace, mac)| {
            namespace.ip(&format!("link set lo up\nlink set {DEVICE} up\n"))?;
            await_carrier(&namespace, DEVICE)?;
            Host::named(namespace, mac)
        });
        let mut host = || hosts.next().context("three hosts")?;
        let (a, b, honest) = (host()?, host()?, host()?);
        for host in [&a, &b, &honest] {
            send_single_packets(&host.namespace)?;
        }
        let devices = [devices(&a, 1, 2)?, devices(&b, 2, 1)?];
        for host in [&b, &honest] {
            (host.namespace).ip(&format!(
                "link add link {DEVICE} name {HONEST_DEVICE} type vlan id {HONEST_VLAN}
                 link set {HONEST_DEVICE} up
"
            ))?;
        }
        // With TSO on bp, the veth driver would not merge the packets that host b receives (GRO).
        // Without tag offload, tags stay in the frames.
        let plain = ["-K", "bp", "tso", "off", "txvlan", "off"];
        wire.run("ethtool", &plain)?;
        let world = Self {
            _polled: polling::in_a_thread(&a)?,
            a,
            b,
            honest,
            wire,
            devices,
        };
        world.join_packets(true)?;
        polling::thread_polls(&world.b)?;
        for port in ["bp", "hp", "xp"] {
            forwards(&world.wire, port)?;
        }
        Ok(world)
    }

    /// Returns the address of `port` on the other attacked host. The sending host reaches this
    /// address through the device for `wrap`.
    pub fn by(&self, wrap: Wrap, from_a: bool, port: u16) -> Address {
        let (from, to) = if from_a { (0, &self.b) } else { (1, &self.a) };
        Address {
            port,
            ifindex: self.devices[from][wrap as usize],
            mac: to.mac,
        }
    }

    /// Returns the frame without its VLAN tag, if the tag belongs to the VLAN of host b and the
    /// honest host.
    pub fn without_honest_tag(mut frame: Vec<u8>) -> Vec<u8> {
        let tag = [[0x81, 0], HONEST_VLAN.to_be_bytes()].concat();
        if frame.get(12..16) == Some(&tag) {
            frame.drain(12..16);
        }
        frame
    }

    /// Returns the devices of host b and of the honest host in the VLAN that only these two hosts
    /// use.
    pub fn honest_devices(&self) -> Result<[Device<'_>; 2]> {
        let [b, honest] = [&self.b, &self.honest].map(|host| &host.namespace);
        Ok([
            Device::ready(b, HONEST_DEVICE)?,
            Device::ready(honest, HONEST_DEVICE)?,
        ])
    }

    /// Switches GRO of host b on or off. With GRO on, host b's driver polls.
    pub fn join_packets(&self, joined: bool) -> Result<()> {
        let value = if joined { "on" } else { "off" };
        let words = ["-K", DEVICE, "gro", value];
        self.b.namespace.run("ethtool", &words).map(drop)
    }

    /// Removes the devices. Connections that still wait for an answer then end at once.
    ///
    /// # Errors
    /// If `ip` fails, with its message.
    pub fn unplug(&self) -> Result<()> {
        for host in [&self.a, &self.b] {
            Wrap::take_tunnels(host)?;
        }
        self.wire
            .ip("link del ap\nlink del bp\nlink del hp\nlink del x\n")
    }
}

/// Creates the devices of an attacked host; returns their indexes.
fn devices(host: &Host, own: u8, other: u8) -> Result<[u32; Wrap::ALL.len()]> {
    // Make the core segment packets in tunnels, too.
    let words = [
        "-K",
        DEVICE,
        "tx-udp_tnl-segmentation",
        "off",
        "tx-udp_tnl-csum-segmentation",
        "off",
        "tx-gre-segmentation",
        "off",
        "tx-gre-csum-segmentation",
        "off",
    ];
    host.namespace.run("ethtool", &words)?;
    Wrap::give_devices(host, own, other)?;
    let mut indexes = [0; Wrap::ALL.len()];
    for wrap in Wrap::ALL {
        indexes[wrap as usize] = Device::ready(&host.namespace, wrap.device())?.ifindex;
    }
    Ok(indexes)
}

/// Waits until the bridge forwards frames through `port`.
fn forwards(wire: &Netns, port: &str) -> Result<()> {
    guest::lab::eventually("a forwarding port", || {
        let state = wire.run("bridge", &["link", "show", "dev", port])?;
        Ok(state.contains("state forwarding"))
    })
}
