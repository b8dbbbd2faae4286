// SPDX-License-Identifier: GPL-2.0-only

//! Senders and one receiver around a switch, and what is seen there.

use std::ops::{Deref, DerefMut};

use esp::{Config, Nanos};
use serde::Serialize;

use crate::conditions::Conditions;
use crate::fabric::{End, Fabric};
use crate::host::Host;
use crate::network::{frame_bytes, Rate};

/// The receiver's place among the hosts.
const RECEIVER: u32 = 0;

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
    /// What two hosts need to process a packet, one way: half of it before it reaches the sender's
    /// wire, half behind the receiver's. Packets are processed beside each other, so this is a
    /// latency and limits no rate. Nanoseconds.
    pub processing: Nanos,
    /// Of a link, one way, nanoseconds.
    pub propagation: Nanos,
    /// The part of all packets that is lost at random in the switch, 0 to 1.
    pub loss: f64,
    /// What makes the network another one than links of one rate around one switch.
    #[serde(skip_serializing_if = "Conditions::is_plain")]
    pub conditions: Conditions,
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
            selective: true,
            ..Self::default()
        }
    }
}

impl Setup {
    /// The most payload in a packet, bytes.
    pub fn mss(&self) -> u16 {
        esp::mss(u32::from(self.mtu)) as u16
    }

    /// The other end of each host's connections: with each sender the receiver has one, in the slot
    /// with its number.
    fn peers(&self) -> Vec<Vec<End>> {
        let first = u32::from(self.together > 0) + RECEIVER + 1;
        let place = |sender| match sender < self.together {
            true => (RECEIVER + 1, sender as u32),
            false => ((sender - self.together) as u32 + first, 0),
        };
        let places: Vec<End> = (0..self.senders).map(place).collect();
        let hosts = places.last().map_or(RECEIVER, |(host, _)| *host) as usize + 1;
        let mut peers = vec![Vec::new(); hosts];
        for (sender, (host, _)) in (0..).zip(&places) {
            peers[*host as usize].push((RECEIVER, sender));
        }
        peers[RECEIVER as usize] = places;
        peers
    }

    /// The part of a link's rate that payload can have in full packets.
    pub fn most_goodput(&self) -> f64 {
        let mss = self.mss();
        f64::from(mss) / f64::from(frame_bytes(mss) + self.rate.framing)
    }
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
    /// Of these, requests though neither the packet asked for nor what was said last to its sender
    /// was lost, and the receiver had not thrown the packet away.
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

/// Senders and one receiver around a switch.
#[derive(Debug)]
pub struct Simulation {
    fabric: Fabric,
}

impl Deref for Simulation {
    type Target = Fabric;

    fn deref(&self) -> &Fabric {
        &self.fabric
    }
}

impl DerefMut for Simulation {
    fn deref_mut(&mut self) -> &mut Fabric {
        &mut self.fabric
    }
}

impl Simulation {
    /// Hosts whose connections are open and idle.
    pub fn new(setup: Setup) -> Self {
        let (senders, rate, peers) = (setup.senders, setup.rate, setup.peers());
        let others = setup.esp.into();
        let receiver = setup.receiver.map_or(others, Config::from);
        let esp = |host| match host == RECEIVER as usize {
            true => receiver,
            false => others,
        };
        let mut fabric = Fabric::new(setup, rate, peers, esp);
        for sender in 0..senders {
            let at = fabric.now() + HANDSHAKE_INTERVAL * sender as Nanos;
            let end = fabric.peer(receiving(sender));
            fabric.connect_at(at, end);
        }
        while !fabric.hosts.iter().all(Host::is_established) {
            assert!(fabric.step(), "a timer of each handshake runs");
        }
        Self { fabric }
    }

    /// A sender has one message of `bytes` to send `at` some time to come.
    pub fn send_at(&mut self, at: Nanos, sender: usize, bytes: u64) {
        let end = self.peer(receiving(sender));
        self.write_at(at, end, bytes);
    }

    /// A sender is cut off the network when it has sent `packets` more data packets.
    pub fn silence(&mut self, sender: usize, packets: u64) {
        let end = self.peer(receiving(sender));
        self.endpoint(end).silent_after = packets;
    }

    /// Bytes that came from a sender and were delivered in order, ever.
    pub fn received(&self, sender: usize) -> u64 {
        self.receiver().endpoints[sender].received
    }

    /// The sender whose data was delivered by the event that happened last, if any was; once.
    pub fn take_delivery(&mut self) -> Option<usize> {
        let (_, slot) = self.delivered.take_if(|(host, _)| *host == RECEIVER)?;
        Some(slot as usize)
    }

    /// The receiver has an answer of `bytes` for a sender, now.
    pub fn answer(&mut self, sender: usize, bytes: u64) {
        let now = self.now();
        self.write_at(now, receiving(sender), bytes);
    }

    /// The sender that was delivered an answer's data by the event that happened last, if any was;
    /// once.
    pub fn take_answered(&mut self) -> Option<usize> {
        let end = self.delivered.take_if(|(host, _)| *host != RECEIVER)?;
        Some(self.peer(end).1 as usize)
    }

    /// The longest that an acknowledgement for this sender waited for its turn, and the most turns
    /// that others had meanwhile, since this was last called.
    pub fn take_longest_wait(&mut self, sender: usize) -> (Nanos, u64) {
        std::mem::take(&mut self.endpoint(receiving(sender)).longest_wait)
    }

    fn receiver(&self) -> &Host {
        &self.hosts[RECEIVER as usize]
    }

    /// The counters.
    pub fn counts(&self) -> Counts {
        let receiver = self.receiver();
        let (port, back) = self.ports.split_first().expect("the receiver has a port");
        let ends = || receiver.endpoints.iter();
        Counts {
            drops: port.drops,
            back_drops: back.iter().map(|port| port.drops).sum(),
            lost: self.lost,
            retransmissions: self.hosts[1..]
                .iter()
                .map(|host| host.sum(|stats| stats.pkt_rtx))
                .sum(),
            duplicates: ends().map(|end| u64::from(end.duplicates)).sum(),
            requests: receiver.sum(|stats| stats.arq_tx),
            spurious_requests: ends().map(|end| end.spurious_requests).sum(),
            overruns: receiver.overruns(),
            acknowledgements: receiver.sum(|stats| stats.pkt_tx),
        }
    }

    /// The most bytes in the receiver's port, and the most acknowledgements that waited for their
    /// turn, since this was last called.
    pub fn take_peaks(&mut self) -> (u32, usize) {
        (
            std::mem::take(&mut self.ports[RECEIVER as usize].peak),
            std::mem::take(&mut self.hosts[RECEIVER as usize].most_waiting),
        )
    }
}

/// The receiver's end of a connection.
fn receiving(sender: usize) -> End {
    (RECEIVER, sender as u32)
}
