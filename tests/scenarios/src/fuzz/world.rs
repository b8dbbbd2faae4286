// SPDX-License-Identifier: GPL-2.0-only

//! Where the frames fly: two hosts whose frames all pass the fuzzer, and a third that is to notice
//! nothing.
//!
//! ```text
//!  a eth0 === ap        wire (the fuzzer's packet sockets)
//!  b eth0 === bp --- br0 --- hp === eth0 h
//!                     |
//!                     xp === x
//! ```
//!
//! What a sends ends at ap, what b sends to a at bp: only the fuzzer carries it on. What is sent by
//! bp reaches b at once; what is sent by x is cloned by the bridge, which learns nothing and floods
//! everything. The driver of a polls in a thread of its own, without GRO: what has come meanwhile
//! is one list for the protocol. That of b does so with GRO, and in turns does not poll at all.
//! Both have devices for tags and tunnels beside their own one, and none takes several packets at
//! once: the core cuts what they send.

use std::os::fd::OwnedFd;

use crate::device::{await_carrier, Device};
use crate::fuzz::wrap::Wrap;
use crate::polling;
use crate::prelude::*;

/// MTU of the wire's devices.
const MTU: usize = 9000;
/// The longest frame.
pub const FRAME_MAX: usize = 14 + MTU;

/// Listened on, and accepted from.
pub const ACCEPTED: u16 = 4000;
/// Listened on, and never accepted from.
pub const NEGLECTED: u16 = 4001;
/// Nobody is there.
pub const VACANT: u16 = 4002;
/// EDP, open to everybody.
pub const OPEN: u16 = 4003;
/// EDP, connected to the same port of the other host.
pub const CONNECTED: u16 = 4004;
/// A listener of records.
pub const RECORDS: u16 = 4005;
/// Ports that frames are aimed at.
pub const PORTS: [u16; 6] = [ACCEPTED, NEGLECTED, VACANT, OPEN, CONNECTED, RECORDS];

/// The VLAN in which only the honest host speaks to b, by a device of this name at either.
const HONEST_VLAN: u16 = 50;
const HONEST_DEVICE: &str = "v50";

/// Three hosts and the wire.
#[derive(Debug)]
pub struct World {
    /// A host under fire.
    pub a: Host,
    /// The other one.
    pub b: Host,
    /// The honest host.
    pub honest: Host,
    /// Where the fuzzer sits.
    pub wire: Netns,
    /// The devices of a and b, by what is around their frames.
    devices: [[u32; Wrap::ALL.len()]; 2],
    _polled: OwnedFd,
}

impl World {
    /// Sets everything up.
    ///
    /// # Errors
    /// With `ip`'s own words when it fails.
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
        // A veth that could segment by itself would not let its peer's packets be joined. And tags
        // stay in the frames.
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

    /// The address of `port` of the other host, as one of the two hosts under fire has it by one of
    /// its devices.
    pub fn by(&self, wrap: Wrap, from_a: bool, port: u16) -> Address {
        let (from, to) = if from_a { (0, &self.b) } else { (1, &self.a) };
        Address {
            port,
            ifindex: self.devices[from][wrap as usize],
            mac: to.mac,
        }
    }

    /// A frame without the tag of the VLAN that only the honest host and b are in, if it has that.
    pub fn without_honest_tag(mut frame: Vec<u8>) -> Vec<u8> {
        let tag = [[0x81, 0], HONEST_VLAN.to_be_bytes()].concat();
        if frame.get(12..16) == Some(&tag) {
            frame.drain(12..16);
        }
        frame
    }

    /// The devices of b and of the honest host in their own VLAN.
    ///
    /// # Errors
    /// When there is none.
    pub fn honest_devices(&self) -> Result<[Device<'_>; 2]> {
        let [b, honest] = [&self.b, &self.honest].map(|host| &host.namespace);
        Ok([
            Device::ready(b, HONEST_DEVICE)?,
            Device::ready(honest, HONEST_DEVICE)?,
        ])
    }

    /// Has the driver of b poll, and the core join what came, or not.
    ///
    /// # Errors
    /// With the words of `ethtool` when it fails.
    pub fn join_packets(&self, joined: bool) -> Result<()> {
        let value = if joined { "on" } else { "off" };
        let words = ["-K", DEVICE, "gro", value];
        self.b.namespace.run("ethtool", &words).map(drop)
    }

    /// Takes the devices away, and with them whatever still waits for an answer.
    ///
    /// # Errors
    /// With `ip`'s own words when it fails.
    pub fn unplug(&self) -> Result<()> {
        for host in [&self.a, &self.b] {
            Wrap::take_tunnels(host)?;
        }
        self.wire
            .ip("link del ap\nlink del bp\nlink del hp\nlink del x\n")
    }
}

/// Gives a host under fire its devices: their indexes.
fn devices(host: &Host, own: u8, other: u8) -> Result<[u32; Wrap::ALL.len()]> {
    // The core segments what is in tunnels, too.
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

/// Waits until the bridge forwards by `port`.
fn forwards(wire: &Netns, port: &str) -> Result<()> {
    crate::lab::eventually("a forwarding port", || {
        let state = wire.run("bridge", &["link", "show", "dev", port])?;
        Ok(state.contains("state forwarding"))
    })
}
