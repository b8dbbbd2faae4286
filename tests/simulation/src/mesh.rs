// SPDX-License-Identifier: GPL-2.0-only

//! Simulates a mesh of hosts that all send to each other. Each host receives through a port and an
//! ACK queue of its own, and sends its data for all other hosts on one wire.

use esp::{Nanos, State};

use crate::fabric::{End, Fabric};
use crate::network::Rate;
use crate::simulation::Setup;

/// Hosts around one switch; each host has one connection to each other host.
#[derive(Debug)]
pub struct Mesh {
    /// The hosts and the switch.
    pub fabric: Fabric,
}

/// Returns the end at `host` of its connection with `peer`.
fn end(host: usize, peer: usize) -> End {
    (host as u32, (peer - usize::from(peer > host)) as u32)
}

impl Mesh {
    /// Creates as many hosts as `setup` has senders. All connections are open and idle. The links
    /// from the hosts to the switch have `wires` bits per second.
    pub fn new(setup: Setup, wires: u64) -> Self {
        let hosts = setup.senders;
        let wires = Rate {
            bits: wires,
            ..setup.rate
        };
        let others = |host| (0..hosts).filter(move |other| *other != host);
        let peers = |host| others(host).map(|other| end(other, host)).collect();
        let esp = setup.esp.into();
        let fabric = Fabric::new(setup, wires, (0..hosts).map(peers).collect(), |_| esp);
        let mut mesh = Self { fabric };
        for host in 0..hosts {
            for other in host + 1..hosts {
                mesh.fabric.connect(end(host, other));
                while !mesh.is_open(host, other) || !mesh.is_open(other, host) {
                    assert!(mesh.fabric.step(), "a timer of the handshake runs");
                }
            }
        }
        mesh
    }

    fn is_open(&mut self, host: usize, other: usize) -> bool {
        let endpoint = self.fabric.endpoint(end(host, other));
        endpoint.socket.state() == State::Established
    }

    /// Makes host `from` send a message of `bytes` to host `to`, at a random time of up to
    /// `stagger` from now.
    pub fn send(&mut self, from: usize, to: usize, bytes: u64, stagger: Nanos) {
        let at = self.fabric.now() + self.fabric.rng().u64(0..=stagger);
        self.fabric.write_at(at, end(from, to), bytes);
    }

    /// Returns how many bytes from host `from` were delivered to host `to`, in order, since the
    /// start.
    pub fn received(&mut self, from: usize, to: usize) -> u64 {
        self.fabric.endpoint(end(to, from)).received
    }

    /// Returns the number of data packets that all hosts together have retransmitted.
    pub fn retransmissions(&self) -> u64 {
        let hosts = self.fabric.hosts.iter();
        hosts.map(|host| host.sum(|stats| stats.pkt_rtx)).sum()
    }

    /// Returns how often an ACK queue ended a sender's turn (its permission to send) because the
    /// sender was silent.
    pub fn overruns(&self) -> u64 {
        let hosts = self.fabric.hosts.iter();
        hosts.map(|host| u64::from(host.overruns())).sum()
    }

    /// Processes the next event. If the event delivered data, returns the data's sender and
    /// receiver.
    pub fn step(&mut self) -> Option<(usize, usize)> {
        assert!(self.fabric.step(), "somebody has yet to send");
        let to = self.fabric.delivered?;
        let from = self.fabric.peer(to);
        Some((from.0 as usize, to.0 as usize))
    }
}
