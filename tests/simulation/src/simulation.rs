//! Events in the order of time: the hosts, the switch between them, and what is seen there.

use esp::{Config, Nanos, Seq, Stats};
use fastrand::Rng;
use serde::Serialize;

use crate::agenda::Agenda;
use crate::host::{Alarm, Arrival, Endpoint, Host, HostConfig, Packet};
use crate::network::{frame_bytes, Port, Rate, Wire};

/// The receiver's place among the hosts.
const RECEIVER: usize = 0;

/// Time between two handshakes, so that they do not measure each other.
const HANDSHAKE_INTERVAL: Nanos = 20_000;

/// What is simulated.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// Connections that send to the receiver.
    pub senders: usize,
    /// So many of them, the first ones, are of one host; each of the others has a host of its own.
    pub together: usize,
    /// Of every link, each way.
    pub rate: Rate,
    /// The buffer of every switch port, bytes.
    pub buffer: u32,
    /// The protocol's parameters.
    #[serde(flatten)]
    pub esp: Parameters,
    /// The receiver's, if they are others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver: Option<Parameters>,
    /// The devices' MTU, bytes.
    pub mtu: u16,
    /// The receive buffer of each connection, bytes.
    pub receive_buffer: u32,
    /// What two hosts need to process a packet, one way: half of it before it reaches the sender's wire, half behind
    /// the receiver's. Packets are processed beside each other, so this is a latency and limits no rate. Nanoseconds.
    pub processing: Nanos,
    /// Of a link, one way, nanoseconds.
    pub propagation: Nanos,
    /// The part of all packets that is lost at random in the switch, 0 to 1.
    pub loss: f64,
    /// What all that is random begins with.
    pub seed: u64,
}

/// [`Config`], to be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parameters {
    /// See [`Config::burst_length`].
    pub burst_length: u16,
    /// See [`Config::burst_length_max`].
    pub burst_length_max: u16,
    /// See [`Config::initial_ack_burst_length`].
    pub initial_ack_burst_length: u16,
    /// See [`Config::packets_to_ack`].
    pub packets_to_ack: u16,
    /// See [`Config::round_trip_time`], microseconds.
    pub round_trip_time: u32,
}

impl Default for Parameters {
    fn default() -> Self {
        let Config {
            burst_length,
            burst_length_max,
            initial_ack_burst_length,
            packets_to_ack,
            round_trip_time,
            ..
        } = Config::default();
        Self {
            burst_length,
            burst_length_max,
            initial_ack_burst_length,
            packets_to_ack,
            round_trip_time,
        }
    }
}

impl From<Parameters> for Config {
    fn from(parameters: Parameters) -> Self {
        Self {
            burst_length: parameters.burst_length,
            burst_length_max: parameters.burst_length_max,
            initial_ack_burst_length: parameters.initial_ack_burst_length,
            packets_to_ack: parameters.packets_to_ack,
            round_trip_time: parameters.round_trip_time,
            ..Self::default()
        }
    }
}

impl Setup {
    /// The most payload in a packet, bytes.
    pub fn mss(&self) -> u16 {
        esp::mss(u32::from(self.mtu)) as u16
    }

    /// Each sender's host, and its slot there.
    fn places(&self) -> Vec<(u32, u32)> {
        let others = u32::from(self.together > 0) + 1;
        let place = |sender| match sender < self.together {
            true => (1, sender as u32),
            false => ((sender - self.together) as u32 + others, 0),
        };
        (0..self.senders).map(place).collect()
    }

    /// The part of a link's rate that payload can have in full packets.
    pub fn most_goodput(&self) -> f64 {
        let mss = self.mss();
        f64::from(mss) / f64::from(frame_bytes(mss) + self.rate.framing)
    }
}

#[derive(Debug)]
enum Event {
    /// A packet reaches the switch, on its way to a host's connection.
    Switch(u32, u32, Packet),
    /// A host is done with receiving a packet for a connection.
    Host(u32, u32, Packet),
    Alarm(u32, Alarm),
    /// A sender begins to connect.
    Connect(u32),
    /// A sender begins to send a message.
    Send(u32, u64),
    /// The receiver begins to answer a sender.
    Answer(u32, u64),
}

/// The receiver's counters and its port's, summed up over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets dropped at the receiver's port.
    pub drops: u64,
    /// Packets dropped at the senders' ports.
    pub back_drops: u64,
    /// Packets lost at random, either way.
    pub lost: u64,
    /// Data packets that left again.
    pub retransmissions: u64,
    /// Packets that came to the receiver though it had them.
    pub duplicates: u64,
    /// Retransmission requests.
    pub requests: u64,
    /// Of these, requests though neither the packet asked for nor what was said last to its sender was lost, and the
    /// receiver had not thrown the packet away.
    pub spurious_requests: u64,
    /// How often a turn was taken from a silent sender.
    pub overruns: u32,
    /// Packets that left the receiver.
    pub acknowledgements: u64,
}

impl Counts {
    /// What was counted after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            drops: self.drops - earlier.drops,
            back_drops: self.back_drops - earlier.back_drops,
            lost: self.lost - earlier.lost,
            retransmissions: self.retransmissions - earlier.retransmissions,
            duplicates: self.duplicates - earlier.duplicates,
            requests: self.requests - earlier.requests,
            spurious_requests: self.spurious_requests - earlier.spurious_requests,
            overruns: self.overruns - earlier.overruns,
            acknowledgements: self.acknowledgements - earlier.acknowledgements,
        }
    }
}

/// Hosts around one switch.
#[derive(Debug)]
pub struct Simulation {
    setup: Setup,
    agenda: Agenda<Event>,
    hosts: Vec<Host>,
    /// Each sender's host, and its slot there.
    places: Vec<(u32, u32)>,
    /// Each host's senders, by slot.
    numbers: Vec<Vec<u32>>,
    /// From each host to the switch.
    wires: Vec<Wire>,
    /// From the switch to each host.
    ports: Vec<Port>,
    /// Data packets after which a sender falls silent; [`u64::MAX`] for never.
    silent_after: Vec<u64>,
    /// The sender whose data was delivered by the event that happened last.
    delivery: Option<usize>,
    /// The sender that was delivered an answer's data by the event that happened last.
    answered: Option<usize>,
    rng: Rng,
    lost: u64,
    spurious_requests: u64,
}

impl Simulation {
    /// Hosts whose connections are open and idle.
    pub fn new(setup: Setup) -> Self {
        let config = HostConfig {
            esp: setup.esp.into(),
            mss: setup.mss(),
            receive_buffer: setup.receive_buffer,
        };
        let senders = setup.senders;
        let receiver = HostConfig {
            esp: setup.receiver.unwrap_or(setup.esp).into(),
            ..config
        };
        let places = setup.places();
        let alone = senders - setup.together;
        let together = Some(setup.together).filter(|slots| *slots > 0);
        let slots = together.into_iter().chain(std::iter::repeat_n(1, alone));
        let peers = places.iter().map(|(host, _)| u64::from(*host)).collect();
        let mut hosts = vec![Host::new(peers, receiver)];
        hosts.extend(slots.map(|slots| Host::new(vec![0; slots], config)));
        let mut numbers: Vec<Vec<u32>> = vec![Vec::new(); hosts.len()];
        for (number, (host, _)) in (0..).zip(&places) {
            numbers[*host as usize].push(number);
        }
        let mut simulation = Self {
            agenda: Agenda::default(),
            wires: hosts.iter().map(|_| Wire::new(setup.rate)).collect(),
            ports: hosts
                .iter()
                .map(|_| Port::new(setup.rate, setup.buffer))
                .collect(),
            silent_after: vec![u64::MAX; senders],
            delivery: None,
            answered: None,
            rng: Rng::with_seed(setup.seed),
            lost: 0,
            spurious_requests: 0,
            hosts,
            places,
            numbers,
            setup,
        };
        simulation.establish();
        simulation
    }

    fn establish(&mut self) {
        for sender in 0..self.setup.senders {
            let at = self.agenda.now() + HANDSHAKE_INTERVAL * sender as Nanos;
            self.agenda.put(at, Event::Connect(sender as u32));
        }
        while !self.hosts.iter().all(Host::is_established) {
            assert!(self.step(), "a timer of each handshake runs");
        }
    }

    /// What is simulated.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The time, nanoseconds from the beginning.
    pub fn now(&self) -> Nanos {
        self.agenda.now()
    }

    /// What all that is random comes from.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// A sender has one message of `bytes` to send `at` some time to come.
    pub fn send_at(&mut self, at: Nanos, sender: usize, bytes: u64) {
        self.agenda.put(at, Event::Send(sender as u32, bytes));
    }

    /// A sender is cut off the network when it has sent `packets` more data packets.
    pub fn silence(&mut self, sender: usize, packets: u64) {
        self.silent_after[sender] = packets;
    }

    /// Bytes that came from a sender and were delivered in order, ever.
    pub fn received(&self, sender: usize) -> u64 {
        self.receiving(sender).received
    }

    /// The sender whose data was delivered by the event that happened last, if any was; once.
    pub fn take_delivery(&mut self) -> Option<usize> {
        self.delivery.take()
    }

    /// The receiver has an answer of `bytes` for a sender, now.
    pub fn answer(&mut self, sender: usize, bytes: u64) {
        self.agenda
            .put(self.agenda.now(), Event::Answer(sender as u32, bytes));
    }

    /// The sender that was delivered an answer's data by the event that happened last, if any was; once.
    pub fn take_answered(&mut self) -> Option<usize> {
        self.answered.take()
    }

    /// The longest that an acknowledgement for this sender waited for its turn, and the most turns that others had
    /// meanwhile, since this was last called.
    pub fn take_longest_wait(&mut self, sender: usize) -> (Nanos, u64) {
        std::mem::take(&mut self.hosts[RECEIVER].endpoints[sender].longest_wait)
    }

    /// The sending end of a connection.
    fn sending(&mut self, sender: usize) -> &mut Endpoint {
        let (host, slot) = self.places[sender];
        &mut self.hosts[host as usize].endpoints[slot as usize]
    }

    fn receiving(&self, sender: usize) -> &Endpoint {
        &self.hosts[RECEIVER].endpoints[sender]
    }

    /// The counters.
    pub fn counts(&self) -> Counts {
        let sum = |pick: fn(&Stats) -> u32, hosts: &[Host]| {
            hosts
                .iter()
                .flat_map(|host| &host.endpoints)
                .filter_map(|endpoint| endpoint.socket.conn.as_ref())
                .map(|conn| u64::from(pick(&conn.stats)))
                .sum::<u64>()
        };
        let (receiver, senders) = self.hosts.split_at(1);
        let duplicates = receiver[0]
            .endpoints
            .iter()
            .map(|e| u64::from(e.duplicates));
        Counts {
            drops: self.ports[RECEIVER].drops,
            back_drops: self.ports[1..].iter().map(|port| port.drops).sum(),
            lost: self.lost,
            retransmissions: sum(|stats| stats.pkt_rtx, senders),
            duplicates: duplicates.sum(),
            requests: sum(|stats| stats.arq_tx, receiver),
            spurious_requests: self.spurious_requests,
            overruns: receiver[0].overruns(),
            acknowledgements: sum(|stats| stats.pkt_tx, receiver),
        }
    }

    /// The most bytes in the receiver's port, and the most acknowledgements that waited for their turn, since this was
    /// last called.
    pub fn take_peaks(&mut self) -> (u32, usize) {
        (
            std::mem::take(&mut self.ports[RECEIVER].peak),
            std::mem::take(&mut self.hosts[RECEIVER].most_waiting),
        )
    }

    /// When something happens next; `None` for never.
    pub fn next(&self) -> Option<Nanos> {
        self.agenda.next()
    }

    /// Lets the next thing happen; `false` when there is none.
    pub fn step(&mut self) -> bool {
        let Some(event) = self.agenda.take() else {
            return false;
        };
        match event {
            Event::Switch(host, slot, packet) => self.forward(host, slot, packet),
            Event::Host(host, slot, packet) => self.arrive(host, slot, &packet),
            Event::Alarm(host, alarm) => {
                self.hosts[host as usize].wake(alarm, self.agenda.now());
                self.drain(host);
            }
            Event::Connect(sender) => {
                let isn = Seq(self.rng.u16(..));
                let (host, slot) = self.places[sender as usize];
                self.hosts[host as usize].open(slot, isn, self.agenda.now());
                self.drain(host);
            }
            Event::Send(sender, bytes) => {
                let (host, slot) = self.places[sender as usize];
                self.hosts[host as usize].write(slot, bytes, self.agenda.now());
                self.drain(host);
            }
            Event::Answer(sender, bytes) => {
                self.hosts[RECEIVER].write(sender, bytes, self.agenda.now());
                self.drain(RECEIVER as u32);
            }
        }
        true
    }

    /// Takes what a host sends, and its timers.
    fn drain(&mut self, host: u32) {
        let mut out = std::mem::take(&mut self.hosts[host as usize].out);
        for (slot, packet) in out.drain(..) {
            self.leave(host, slot, packet);
        }
        let mut alarms = std::mem::take(&mut self.hosts[host as usize].alarms);
        for (at, alarm) in alarms.drain(..) {
            self.agenda.put(at, Event::Alarm(host, alarm));
        }
        // Given back, so that their memory is used again.
        self.hosts[host as usize].out = out;
        self.hosts[host as usize].alarms = alarms;
    }

    /// A packet leaves a host.
    fn leave(&mut self, host: u32, slot: u32, packet: Packet) {
        let (to, to_slot) = if host as usize == RECEIVER {
            self.places[slot as usize]
        } else {
            (RECEIVER as u32, self.numbers[host as usize][slot as usize])
        };
        if host as usize == RECEIVER {
            self.judge_request(slot as usize, &packet);
        } else if self.is_silent(to_slot as usize, &packet) {
            self.lose(to, to_slot, &packet);
            return;
        }
        let given = self.agenda.now() + self.setup.processing / 2;
        let sent = self.wires[host as usize].send(frame_bytes(packet.header.payload()), given);
        self.agenda.put(
            sent + self.setup.propagation,
            Event::Switch(to, to_slot, packet),
        );
    }

    fn is_silent(&mut self, sender: usize, packet: &Packet) -> bool {
        let left = &mut self.silent_after[sender];
        if *left == 0 {
            return true;
        }
        if *left != u64::MAX && packet.header.payload() > 0 {
            *left -= 1;
        }
        false
    }

    /// Counts a request that nothing called for.
    fn judge_request(&mut self, sender: usize, packet: &Packet) {
        if packet.header.is_request() {
            let called_for = self.receiving(sender).mute
                || self.silent_after[sender] == 0
                || self.sending(sender).has_lost(packet.header.ack);
            self.spurious_requests += u64::from(!called_for);
        }
    }

    /// A packet is in the switch.
    fn forward(&mut self, to: u32, slot: u32, packet: Packet) {
        let lost = self.setup.loss > 0.0 && self.rng.f64() < self.setup.loss;
        self.lost += u64::from(lost);
        let frame = frame_bytes(packet.header.payload());
        let leaves = if lost {
            None
        } else {
            self.ports[to as usize].send(frame, self.agenda.now())
        };
        match leaves {
            Some(leaves) => self.agenda.put(
                leaves + self.setup.propagation + self.setup.processing.div_ceil(2),
                Event::Host(to, slot, packet),
            ),
            None => self.lose(to, slot, &packet),
        }
    }

    /// Remembers what was not delivered.
    fn lose(&mut self, to: u32, slot: u32, packet: &Packet) {
        if to as usize == RECEIVER {
            if packet.header.payload() > 0 {
                self.sending(slot as usize).lose(packet.header.seq);
            }
        } else {
            let sender = self.numbers[to as usize][slot as usize];
            self.hosts[RECEIVER].endpoints[sender as usize].mute = true;
        }
    }

    fn arrive(&mut self, host: u32, slot: u32, packet: &Packet) {
        let isn = Seq(self.rng.u16(..));
        let arrival = self.hosts[host as usize].arrive(slot, packet, isn, self.agenda.now());
        let delivered = arrival == Arrival::Delivered;
        if host as usize == RECEIVER {
            self.delivery = delivered.then_some(slot as usize);
        } else {
            let sender = self.numbers[host as usize][slot as usize] as usize;
            self.hosts[RECEIVER].endpoints[sender].mute = false;
            self.answered = delivered.then_some(sender);
        }
        if arrival == Arrival::Discarded {
            self.lose(host, slot, packet);
        }
        self.drain(host);
    }
}
