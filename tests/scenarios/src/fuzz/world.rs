// SPDX-License-Identifier: GPL-2.0-only

//! Where the frames fly: two hosts whose frames all pass the fuzzer, and a third that is to notice nothing.
//!
//! ```text
//!  a eth0 === ap        wire (the fuzzer's packet sockets)
//!  b eth0 === bp --- br0 --- hp === eth0 h
//!                     |
//!                     xp === x
//! ```
//!
//! What a sends ends at ap, what b sends to a at bp: only the fuzzer carries it on. What is sent by bp reaches b at once;
//! what is sent by x is cloned by the bridge, which learns nothing and floods everything. The driver of a polls in a thread
//! of its own, without GRO: what has come meanwhile is one list for the protocol.

use std::os::fd::OwnedFd;

use crate::device::await_carrier;
use crate::polling;
use crate::prelude::*;

/// MTU of all devices.
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
        let a = host()?;
        let world = Self {
            _polled: polling::in_a_thread(&a)?,
            a,
            b: host()?,
            honest: host()?,
            wire,
        };
        for port in ["bp", "hp", "xp"] {
            forwards(&world.wire, port)?;
        }
        Ok(world)
    }

    /// Takes the devices away, and with them whatever still waits for an answer.
    ///
    /// # Errors
    /// With `ip`'s own words when it fails.
    pub fn unplug(&self) -> Result<()> {
        self.wire
            .ip("link del ap\nlink del bp\nlink del hp\nlink del x\n")
    }
}

/// Waits until the bridge forwards by `port`.
fn forwards(wire: &Netns, port: &str) -> Result<()> {
    crate::lab::eventually("a forwarding port", || {
        let state = wire.run("bridge", &["link", "show", "dev", port])?;
        Ok(state.contains("state forwarding"))
    })
}
