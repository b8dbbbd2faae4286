//! Hosts that all send to each other: each is a receiver with a port and an ACK queue of its own, and each sender's wire is
//! shared by what it sends to all others.

use esp::{Nanos, Seq, State};
use fastrand::Rng;

use crate::agenda::Agenda;
use crate::host::{Alarm, Arrival, Host, HostConfig, Packet};
use crate::network::{frame_bytes, Port, Rate, Wire};
use crate::simulation::Setup;

#[derive(Debug)]
enum Event {
    /// A packet from one host to another reaches the switch.
    Switch(usize, usize, Packet),
    /// The second host is done with receiving it.
    Host(usize, usize, Packet),
    Alarm(usize, Alarm),
    /// A host begins to send a message to another.
    Send(usize, usize, u64),
}

/// Hosts around one switch, each with one connection to each other.
#[derive(Debug)]
pub struct Mesh {
    setup: Setup,
    agenda: Agenda<Event>,
    hosts: Vec<Host>,
    /// From each host to the switch.
    wires: Vec<Wire>,
    /// From the switch to each host.
    pub ports: Vec<Port>,
    rng: Rng,
}

/// The slot of `host`'s connection with `peer`.
fn slot(host: usize, peer: usize) -> u32 {
    (peer - usize::from(peer > host)) as u32
}

/// The host at the other end of a connection.
fn peer(host: usize, slot: u32) -> usize {
    slot as usize + usize::from(slot as usize >= host)
}

impl Mesh {
    /// As many hosts as `setup` has senders, whose connections are open and idle. Towards the switch they have `wires` bits
    /// per second.
    pub fn new(setup: Setup, wires: u64) -> Self {
        let wire = Rate {
            bits: wires,
            ..setup.rate
        };
        let config = HostConfig {
            esp: setup.esp.into(),
            mss: setup.mss(),
            receive_buffer: setup.receive_buffer,
        };
        let numbers = 0..setup.senders;
        let peers = |host| {
            let others = numbers.clone().filter(move |other| *other != host);
            others.map(|other| other as u64).collect()
        };
        let mut mesh = Self {
            agenda: Agenda::default(),
            hosts: numbers
                .clone()
                .map(|host| Host::new(peers(host), config))
                .collect(),
            wires: numbers.clone().map(|_| Wire::new(wire)).collect(),
            ports: numbers
                .clone()
                .map(|_| Port::new(setup.rate, setup.buffer))
                .collect(),
            rng: Rng::with_seed(setup.seed),
            setup,
        };
        for host in numbers.clone() {
            for other in host + 1..numbers.end {
                let isn = Seq(mesh.rng.u16(..));
                mesh.hosts[host].open(slot(host, other), isn, mesh.agenda.now());
                mesh.drain(host);
                while !mesh.is_open(host, other) || !mesh.is_open(other, host) {
                    assert!(mesh.step().is_some(), "a timer of the handshake runs");
                }
            }
        }
        mesh
    }

    fn is_open(&self, host: usize, other: usize) -> bool {
        let endpoint = &self.hosts[host].endpoints[slot(host, other) as usize];
        endpoint.socket.state() == State::Established
    }

    /// The time, nanoseconds from the beginning.
    pub fn now(&self) -> Nanos {
        self.agenda.now()
    }

    /// A host has one message of `bytes` for another, now or a random time of up to `stagger` later.
    pub fn send(&mut self, from: usize, to: usize, bytes: u64, stagger: Nanos) {
        let at = self.agenda.now() + self.rng.u64(0..=stagger);
        self.agenda.put(at, Event::Send(from, to, bytes));
    }

    /// Bytes from one host that were delivered to another in order, ever.
    pub fn received(&self, from: usize, to: usize) -> u64 {
        self.hosts[to].endpoints[slot(to, from) as usize].received
    }

    /// Data packets that left again.
    pub fn retransmissions(&self) -> u64 {
        let endpoints = self.hosts.iter().flat_map(|host| &host.endpoints);
        let connections = endpoints.filter_map(|endpoint| endpoint.socket.conn.as_ref());
        connections.map(|conn| u64::from(conn.stats.pkt_rtx)).sum()
    }

    /// How often turns were taken from silent senders.
    pub fn overruns(&self) -> u64 {
        self.hosts
            .iter()
            .map(|host| u64::from(host.overruns()))
            .sum()
    }

    /// Lets the next thing happen; `None` when there is nothing. Tells from whom data was delivered to whom.
    pub fn step(&mut self) -> Option<Option<(usize, usize)>> {
        let event = self.agenda.take()?;
        let now = self.agenda.now();
        let mut delivered = None;
        match event {
            Event::Switch(from, to, packet) => {
                let frame = frame_bytes(packet.header.payload());
                if let Some(leaves) = self.ports[to].send(frame, now) {
                    let latency = self.setup.propagation + self.setup.processing.div_ceil(2);
                    self.agenda
                        .put(leaves + latency, Event::Host(from, to, packet));
                }
            }
            Event::Host(from, to, packet) => {
                let isn = Seq(self.rng.u16(..));
                let arrival = self.hosts[to].arrive(slot(to, from), &packet, isn, now);
                delivered = (arrival == Arrival::Delivered).then_some((from, to));
                self.drain(to);
            }
            Event::Send(from, to, bytes) => {
                self.hosts[from].write(slot(from, to), bytes, now);
                self.drain(from);
            }
            Event::Alarm(host, alarm) => {
                self.hosts[host].wake(alarm, now);
                self.drain(host);
            }
        }
        Some(delivered)
    }

    /// Takes what a host sends, and its timers.
    fn drain(&mut self, host: usize) {
        let given = self.agenda.now() + self.setup.processing / 2;
        for (slot, packet) in std::mem::take(&mut self.hosts[host].out) {
            let sent = self.wires[host].send(frame_bytes(packet.header.payload()), given);
            let at = sent + self.setup.propagation;
            self.agenda
                .put(at, Event::Switch(host, peer(host, slot), packet));
        }
        for (at, alarm) in std::mem::take(&mut self.hosts[host].alarms) {
            self.agenda.put(at, Event::Alarm(host, alarm));
        }
    }
}
