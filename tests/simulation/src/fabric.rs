// SPDX-License-Identifier: GPL-2.0-only

//! Simulates hosts around one or two switches, event by event.

use esp::{Config, Nanos, Seq};
use fastrand::Rng;

use crate::agenda::Agenda;
use crate::conditions::{Uplink, MOST_PLACES};
use crate::host::{Alarm, Arrival, Endpoint, Host, HostConfig, Packet};
use crate::network::{frame_bytes, Port, Rate, Wire};
use crate::simulation::Setup;

/// From this link speed on, in bits per second, connections have checksums.
const CHECKSUM_RATE: u64 = 10_000_000_000;

/// One end of a connection, given by two numbers: the host, and the connection's slot in that host.
pub type End = (u32, u32);

#[derive(Debug)]
enum Event {
    /// A packet for this end reaches the sender's switch, and has yet to cross the uplink.
    Uplink(End, Packet),
    /// A packet for this end reaches the receiver's switch, in the lane with this number. Lanes are
    /// the parallel links of a host.
    Switch(End, u32, Packet),
    /// A host's card receives a packet.
    Host(End, Packet),
    /// A host's card interrupts the host to deliver the collected packets.
    Interrupt(u32),
    Alarm(u32, Alarm),
    /// An end starts to connect.
    Connect(End),
    /// An end starts to send a message.
    Send(End, u64),
}

/// A network: hosts around one or two switches.
#[derive(Debug)]
pub struct Fabric {
    setup: Setup,
    agenda: Agenda<Event>,
    /// The hosts.
    pub hosts: Vec<Host>,
    /// For each host and each slot, the other end of the connection in that slot.
    peers: Vec<Vec<End>>,
    /// The links from each host to the switch: first link 0 (lane 0) of each host, then link 1 of
    /// each.
    wires: Vec<Wire>,
    /// The ports from the switch to each host, in the order of `wires`.
    pub ports: Vec<Port>,
    /// The ports of the link between two switches: the port from the first switch to the second,
    /// and the port back.
    pub uplinks: Vec<Port>,
    /// The lane (one of the host's links) by which each host sends its next packet.
    lanes: Vec<u32>,
    /// The packets that each host's card has collected and not yet delivered.
    collected: Vec<Vec<(End, Packet)>>,
    /// The end to which the latest event delivered data.
    pub delivered: Option<End>,
    rng: Rng,
    /// Number of packets lost at random.
    pub lost: u64,
}

impl Fabric {
    /// Creates hosts whose connections are not open yet. `peers` has the other end of each host's
    /// connections, by slot. `wires` is the rate from each host to the switch, and `esp` returns
    /// the parameters of a host.
    pub fn new(
        setup: Setup,
        wires: Rate,
        peers: Vec<Vec<End>>,
        esp: impl Fn(usize) -> Config,
    ) -> Self {
        let host = |(number, peers): (usize, &Vec<End>)| {
            let rate = setup.conditions.rate_of(number as u32, setup.rate);
            let config = HostConfig {
                esp: esp(number),
                mss: setup.mss(),
                receive_buffer: setup.receive_buffer,
                // The default of the setting `checksum`.
                checksums: setup.rate.bits >= CHECKSUM_RATE,
                link: (rate.bits / 1_000_000) as u32,
            };
            Host::new(peers.iter().map(|(host, _)| u64::from(*host)), config)
        };
        let conditions = &setup.conditions;
        let places = (0..conditions.lanes).flat_map(|_| 0..peers.len() as u32);
        let wire = |host| Wire::new(conditions.rate_of(host, wires));
        let port = |host| Port::new(conditions.rate_of(host, setup.rate), setup.buffer);
        let uplinks = conditions.uplink.iter();
        let uplink = |uplink: &Uplink| [0, 1].map(|_| Port::new(uplink.rate, uplink.buffer));
        Self {
            agenda: Agenda::default(),
            hosts: peers.iter().enumerate().map(host).collect(),
            wires: places.clone().map(wire).collect(),
            ports: places.map(port).collect(),
            uplinks: uplinks.flat_map(uplink).collect(),
            lanes: vec![0; peers.len()],
            collected: vec![Vec::new(); peers.len()],
            peers,
            delivered: None,
            rng: Rng::with_seed(setup.seed),
            lost: 0,
            setup,
        }
    }

    /// Returns the parameters of the simulation.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Returns the simulated time, in nanoseconds from the start.
    pub fn now(&self) -> Nanos {
        self.agenda.now()
    }

    /// Returns the source of all random numbers.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Returns the other end of a connection.
    pub fn peer(&self, (host, slot): End) -> End {
        self.peers[host as usize][slot as usize]
    }

    /// Returns the state of one end of a connection.
    pub fn endpoint(&mut self, (host, slot): End) -> &mut Endpoint {
        &mut self.hosts[host as usize].endpoints[slot as usize]
    }

    /// Makes an end start to connect now.
    pub fn connect(&mut self, (host, slot): End) {
        let isn = Seq(self.rng.u16(..));
        self.hosts[host as usize].open(slot, isn, self.agenda.now());
        self.drain(host);
    }

    /// Makes an end start to connect at the time `at`.
    pub fn connect_at(&mut self, at: Nanos, end: End) {
        self.agenda.put(at, Event::Connect(end));
    }

    /// Makes an end send a message of `bytes` at the time `at`.
    pub fn write_at(&mut self, at: Nanos, end: End, bytes: u64) {
        self.agenda.put(at, Event::Send(end, bytes));
    }

    /// Returns the time of the next event; `None` if there is none.
    pub fn next(&self) -> Option<Nanos> {
        self.agenda.next()
    }

    /// Processes the next event; returns `false` if there is none.
    pub fn step(&mut self) -> bool {
        let Some(event) = self.agenda.take() else {
            return false;
        };
        self.delivered = None;
        match event {
            Event::Uplink(to, packet) => self.cross(to, packet),
            Event::Switch(to, lane, packet) => self.forward(to, lane, packet),
            Event::Host(to, packet) => self.collect(to, packet),
            Event::Interrupt(host) => self.interrupt(host),
            Event::Alarm(host, alarm) => {
                self.hosts[host as usize].wake(alarm, self.agenda.now());
                self.drain(host);
            }
            Event::Connect(end) => self.connect(end),
            Event::Send((host, slot), bytes) => {
                self.hosts[host as usize].write(slot, bytes, self.agenda.now());
                self.drain(host);
            }
        }
        true
    }

    /// Sends a host's outgoing packets, and schedules its timers.
    fn drain(&mut self, host: u32) {
        let mut out = std::mem::take(&mut self.hosts[host as usize].out);
        for (slot, packet) in out.drain(..) {
            self.leave((host, slot), packet);
        }
        let mut alarms = std::mem::take(&mut self.hosts[host as usize].alarms);
        for (at, alarm) in alarms.drain(..) {
            self.agenda.put(at, Event::Alarm(host, alarm));
        }
        // Return both vectors to the host, which reuses their memory.
        self.hosts[host as usize].out = out;
        self.hosts[host as usize].alarms = alarms;
    }

    /// Sends a packet from a host.
    fn leave(&mut self, from: End, packet: Packet) {
        let to = self.peer(from);
        self.judge_request(from, &packet);
        if self.endpoint(from).is_silent(&packet) {
            self.lose(to, &packet);
            return;
        }
        let given = self.agenda.now() + self.setup.processing / 2;
        let frame = frame_bytes(packet.header.payload());
        let lane = self.lanes[from.0 as usize];
        self.lanes[from.0 as usize] = (lane + 1) % self.setup.conditions.lanes;
        let place = self.place(from.0, lane);
        let sent = self.wires[place].send(frame, given) + self.setup.propagation;
        let uplink = self.setup.conditions.uplink;
        if uplink.is_some_and(|uplink| uplink.switch_of(from.0) != uplink.switch_of(to.0)) {
            self.agenda.put(sent, Event::Uplink(to, packet));
        } else {
            let longer = self.full_frames(to.0, u64::from(2 * lane));
            self.agenda
                .put(sent + longer, Event::Switch(to, lane, packet));
        }
    }

    /// Returns the index, in `wires` and `ports`, of a host's link with the number `lane`.
    fn place(&self, host: u32, lane: u32) -> usize {
        lane as usize * self.hosts.len() + host as usize
    }

    /// Returns how long a host's link takes to send `frames` full frames.
    fn full_frames(&self, host: u32, frames: u64) -> Nanos {
        let rate = self.setup.conditions.rate_of(host, self.setup.rate);
        frames * rate.nanos(frame_bytes(self.setup.mss()))
    }

    /// Counts the packet in [`Endpoint::spurious_requests`] if it is a spurious request.
    fn judge_request(&mut self, from: End, packet: &Packet) {
        if packet.header.is_request() {
            let peer = self.peer(from);
            let peer = self.endpoint(peer);
            let lost = packet.requested().any(|seq| peer.has_lost(seq));
            let missing = peer.silent_after == 0 || lost;
            let asking = self.endpoint(from);
            asking.spurious_requests += u64::from(!missing && !asking.mute);
        }
    }

    /// Passes a packet from the sender's switch to the receiver's switch over the uplink.
    fn cross(&mut self, to: End, packet: Packet) {
        let uplink = self
            .setup
            .conditions
            .uplink
            .expect("there are two switches");
        let frame = frame_bytes(packet.header.payload());
        let port = &mut self.uplinks[1 - uplink.switch_of(to.0)];
        match port.send(frame, self.agenda.now()) {
            Some(leaves) => self.agenda.put(
                leaves + self.setup.propagation,
                Event::Switch(to, 0, packet),
            ),
            None => self.lose(to, &packet),
        }
    }

    /// Handles a packet in the receiver's switch.
    fn forward(&mut self, to: End, lane: u32, packet: Packet) {
        let lost = self.setup.loss > 0.0 && self.rng.f64() < self.setup.loss;
        self.lost += u64::from(lost);
        let frame = frame_bytes(packet.header.payload());
        let place = self.place(to.0, lane);
        let leaves = if lost {
            None
        } else {
            self.ports[place].send(frame, self.agenda.now())
        };
        let late = self.setup.conditions.late;
        let places = if late > 0.0 && self.rng.f64() < late {
            self.rng.u64(1..=MOST_PLACES)
        } else {
            0
        };
        let behind = self.full_frames(to.0, places) + places.min(1);
        match leaves {
            Some(leaves) => self.agenda.put(
                leaves + behind + self.setup.propagation + self.setup.processing.div_ceil(2),
                Event::Host(to, packet),
            ),
            None => self.lose(to, &packet),
        }
    }

    /// Handles a packet in a host's card. Without coalescing the card interrupts the host at once;
    /// otherwise the card first collects packets for the time of `Conditions::coalescing`.
    fn collect(&mut self, to: End, packet: Packet) {
        let coalescing = self.setup.conditions.coalescing;
        if coalescing == 0 {
            self.arrive(to, &packet);
            return;
        }
        let collected = &mut self.collected[to.0 as usize];
        collected.push((to, packet));
        if collected.len() == 1 {
            let at = self.agenda.now() + coalescing;
            self.agenda.put(at, Event::Interrupt(to.0));
        }
    }

    /// Delivers the packets that a host's card has collected.
    fn interrupt(&mut self, host: u32) {
        for (to, packet) in std::mem::take(&mut self.collected[host as usize]) {
            self.arrive(to, &packet);
        }
    }

    /// Records a packet that was not delivered.
    fn lose(&mut self, to: End, packet: &Packet) {
        let from = self.peer(to);
        let from = self.endpoint(from);
        from.mute = true;
        if packet.header.payload() > 0 && !packet.header.names_missing() {
            from.lose(packet.header.seq);
        }
    }

    fn arrive(&mut self, to: End, packet: &Packet) {
        let isn = Seq(self.rng.u16(..));
        let now = self.agenda.now();
        let arrival = self.hosts[to.0 as usize].arrive(to.1, packet, isn, now);
        self.delivered = (arrival == Arrival::Delivered).then_some(to);
        let from = self.peer(to);
        self.endpoint(from).mute = false;
        if arrival == Arrival::Discarded {
            self.lose(to, packet);
        }
        self.drain(to.0);
    }
}
