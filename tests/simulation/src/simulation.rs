// SPDX-License-Identifier: GPL-2.0-only

//! Simulates senders and one receiver around a switch, and counts what happens to their packets.

use std::ops::{Deref, DerefMut};

use esp::{Config, Nanos};
use serde::Serialize;

use crate::conditions::Conditions;
use crate::fabric::{End, Fabric};
use crate::host::Host;
use crate::network::{frame_bytes, Rate};

/// The receiver's index among the hosts.
const RECEIVER: u32 = 0;

/// The time between the starts of two handshakes, nanoseconds. It is so long that no two handshakes
/// delay each other's packets. Otherwise a connection would measure too long a round trip.
const HANDSHAKE_INTERVAL: Nanos = 20_000;

/// The parameters of a simulation.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// Number of connections that send to the receiver.
    pub senders: usize,
    /// The first `together` connections belong to one host. The others belong to hosts that have
    /// `pool` connections each.
    pub together: usize,
    /// Number of connections of each other host.
    pub pool: usize,
    /// Rate of every link, in each direction.
    pub rate: Rate,
    /// The buffer of every switch port, bytes.
    pub buffer: u32,
    /// The protocol's parameters.
    #[serde(flatten)]
    pub esp: Parameters,
    /// The receiver's parameters, if they differ from `esp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver: Option<Parameters>,
    /// The devices' MTU, bytes.
    pub mtu: u16,
    /// The receive buffer of each connection, bytes.
    pub receive_buffer: u32,
    /// The time that a packet spends in its two hosts together, nanoseconds: half before the
    /// sender's wire, half after the receiver's wire. Packets are processed in parallel, so this
    /// latency limits no rate.
    pub processing: Nanos,
    /// Propagation delay of a link, one way, nanoseconds.
    pub propagation: Nanos,
    /// Share of packets, 0 to 1, lost at random in the switch.
    pub loss: f64,
    /// Deviations from a network of equally fast links around one switch.
    #[serde(skip_serializing_if = "Conditions::is_plain")]
    pub conditions: Conditions,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// [`Config`] in a form that can be serialized.
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
    /// Returns the largest payload of a packet, bytes.
    pub fn mss(&self) -> u16 {
        esp::mss(u32::from(self.mtu)) as u16
    }

    /// Returns the other end of each host's connections. The receiver's connection with a sender is
    /// in the slot with the sender's number.
    fn peers(&self) -> Vec<Vec<End>> {
        let first = u32::from(self.together > 0) + RECEIVER + 1;
        let place = |sender| match sender < self.together {
            true => (RECEIVER + 1, sender as u32),
            false => {
                let other = sender - self.together;
                let (host, number) = (other / self.pool, other % self.pool);
                (host as u32 + first, number as u32)
            }
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

    /// Returns the payload of a full packet as a share of the bytes that it occupies on the wire.
    pub fn most_goodput(&self) -> f64 {
        let mss = self.mss();
        f64::from(mss) / f64::from(frame_bytes(mss) + self.rate.framing)
    }
}

/// The counters of the receiver and its port, summed over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Number of packets dropped at the switch's port to the receiver.
    pub drops: u64,
    /// Number of packets dropped at the switch's ports to the senders.
    pub back_drops: u64,
    /// Number of packets lost at random, in either direction.
    pub lost: u64,
    /// Number of retransmitted data packets.
    pub retransmissions: u64,
    /// Number of received packets that the receiver already had.
    pub duplicates: u64,
    /// Number of the receiver's retransmission requests.
    pub requests: u64,
    /// Number of the receiver's spurious retransmission requests. A request is spurious if the
    /// requested packet was neither lost nor discarded by the receiver, and if the packet that the
    /// receiver sent to this sender before the request was not lost either. If it was lost, the
    /// sender may be waiting for that acknowledgement, and the request acknowledges as well.
    pub spurious_requests: u64,
    /// How often the ACK queue ended a sender's turn (its permission to send) because the sender
    /// was silent.
    pub overruns: u32,
    /// Number of packets sent by the receiver.
    pub acknowledgements: u64,
}

impl Counts {
    /// Returns how much the counters have grown since `earlier`.
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
    /// Creates hosts whose connections are open and idle.
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

    /// Makes a sender send a message of `bytes` at the time `at`.
    pub fn send_at(&mut self, at: Nanos, sender: usize, bytes: u64) {
        let end = self.peer(receiving(sender));
        self.write_at(at, end, bytes);
    }

    /// Cuts a sender off the network once it has sent `packets` more data packets.
    pub fn silence(&mut self, sender: usize, packets: u64) {
        let end = self.peer(receiving(sender));
        self.endpoint(end).silent_after = packets;
    }

    /// Returns the number of bytes from a sender that were delivered in order since the start.
    pub fn received(&self, sender: usize) -> u64 {
        self.receiver().endpoints[sender].received
    }

    /// Returns the sender whose data arrived in the latest event, if any. Each delivery is returned
    /// only once.
    pub fn take_delivery(&mut self) -> Option<usize> {
        let (_, slot) = self.delivered.take_if(|(host, _)| *host == RECEIVER)?;
        Some(slot as usize)
    }

    /// Makes the receiver send an answer of `bytes` to a sender now.
    pub fn answer(&mut self, sender: usize, bytes: u64) {
        let now = self.now();
        self.write_at(now, receiving(sender), bytes);
    }

    /// Returns the sender that received an answer's data in the latest event, if any. Each delivery
    /// is returned only once.
    pub fn take_answered(&mut self) -> Option<usize> {
        let end = self.delivered.take_if(|(host, _)| *host != RECEIVER)?;
        Some(self.peer(end).1 as usize)
    }

    /// Returns the longest time that an acknowledgement for this sender waited in the ACK queue.
    /// Also returns the largest number of turns that other connections had during one of these
    /// waits. Both values cover the time since the last call.
    pub fn take_longest_wait(&mut self, sender: usize) -> (Nanos, u64) {
        std::mem::take(&mut self.endpoint(receiving(sender)).longest_wait)
    }

    fn receiver(&self) -> &Host {
        &self.hosts[RECEIVER as usize]
    }

    /// Returns the present counters.
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

    /// Returns two peaks since the last call: the number of bytes queued in the receiver's port,
    /// and the number of acknowledgements waiting in the ACK queue.
    pub fn take_peaks(&mut self) -> (u32, usize) {
        (
            std::mem::take(&mut self.ports[RECEIVER as usize].peak),
            std::mem::take(&mut self.hosts[RECEIVER as usize].most_waiting),
        )
    }
}

/// Returns the receiver's end of a connection.
fn receiving(sender: usize) -> End {
    (RECEIVER, sender as u32)
}
