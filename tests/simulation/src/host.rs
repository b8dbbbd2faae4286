// SPDX-License-Identifier: GPL-2.0-only

//! Simulates a host: connections that share one network card, as in the kernel module.
//!
//! [`esp_testkit`] calls the protocol's engine for each connection. This module adds the timers,
//! and the statistics that the studies need. A packet has no payload, only the position of its
//! bytes in the stream. [`Host::arrive`] panics if bytes are delivered out of order or twice.

use std::collections::BTreeSet;

use esp::{Config, DropReason, Nanos, Seq, Slot, State, Stats, Verdict};
use esp_testkit::{Device, Host as _, Socket, Span};

/// Bytes that a socket is charged for each queued packet in addition to the payload. They stand for
/// the packet's `sk_buff`.
const PACKET_OVERHEAD: u32 = 768;

/// The port of all connections. Packets find their connection by its slot, so ports need not
/// differ.
const PORT: u16 = 2805;

/// The configuration of all connections of a host.
#[derive(Clone, Copy, Debug)]
pub struct HostConfig {
    /// The protocol's parameters.
    pub esp: Config,
    /// The largest payload of a packet, bytes.
    pub mss: u16,
    /// The receive buffer of each connection, bytes.
    pub receive_buffer: u32,
    /// Whether packets have checksums with masks. Their bytes are not simulated.
    pub checksums: bool,
    /// The speed of the host's link, in Mbit/s, which its card tells; 0 if the card tells none.
    pub link: u32,
}

/// A packet on its way. It has the positions of its bytes instead of the bytes.
pub type Packet = esp_testkit::Packet<Span>;

/// The result of receiving a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The packet's data was delivered and read.
    Delivered,
    /// The packet's data was new but discarded, because packets before it are missing or the buffer
    /// is full.
    Discarded,
    /// The packet carried no data, or no new data.
    Other,
}

/// A timer of a host.
#[derive(Clone, Copy, Debug)]
pub enum Alarm {
    /// The timer of the connection in this slot.
    Connection(u32),
    /// The timer of the ACK queue, in which acknowledgements wait so that senders take turns.
    AckQueue,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Endpoint {
    /// The engine with its queues.
    pub socket: Socket<Span>,
    /// Number of bytes that were queued for sending since the start.
    sent: u64,
    /// Number of bytes that were delivered, in order, since the start.
    pub received: u64,
    /// Number of received packets that the end already had.
    pub duplicates: u32,
    /// Number of data packets that this end still sends before it falls silent; [`u64::MAX`] if it
    /// never falls silent.
    pub silent_after: u64,
    /// Whether the most recent packet that this end sent was lost.
    pub mute: bool,
    /// Number of spurious retransmission requests that this end sent. A request is spurious if
    /// neither the requested packet was lost, nor the packet that this end sent before the request.
    /// The loss of that packet justifies the request: it may have been the acknowledgement that the
    /// peer waits for, and the request acknowledges as well.
    pub spurious_requests: u64,
    /// The longest time that an acknowledgement waited in the ACK queue for its turn to be sent,
    /// and the largest number of turns that other connections had during one such wait.
    pub longest_wait: (Nanos, u64),
    /// The time at which the current wait in the ACK queue started, and the number of turns that
    /// the queue had given at that time.
    waits: Option<(Nanos, u64)>,
    /// The sequence numbers of packets whose most recent transmission was lost.
    lost: BTreeSet<u16>,
    /// The time at which the armed timer fires; [`Nanos::MAX`] for never.
    armed: Nanos,
}

impl Endpoint {
    fn new(peer: u64, config: HostConfig) -> Self {
        let mut socket = Socket::new(config.esp, config.mss.into(), config.receive_buffer);
        socket.slot = Slot::of(peer);
        socket.overhead = PACKET_OVERHEAD;
        socket.listens = true;
        socket.sends_options = config.esp.is_adaptive();
        socket.nonce = config.checksums.then_some(1);
        Self {
            socket,
            sent: 0,
            received: 0,
            duplicates: 0,
            silent_after: u64::MAX,
            mute: false,
            spurious_requests: 0,
            longest_wait: (0, 0),
            waits: None,
            lost: BTreeSet::new(),
            armed: Nanos::MAX,
        }
    }

    /// Records that packet `seq` was lost in the network or discarded by the peer.
    pub fn lose(&mut self, seq: Seq) {
        if self.socket.payload_mut(seq).is_some() {
            self.lost.insert(seq.0);
        }
    }

    /// Returns whether a packet is suppressed because the end has fallen silent. Otherwise counts
    /// the packet down from `silent_after`, if the packet has data.
    pub fn is_silent(&mut self, packet: &Packet) -> bool {
        let silent = self.silent_after == 0;
        if !silent && self.silent_after != u64::MAX && packet.header.payload() > 0 {
            self.silent_after -= 1;
        }
        silent
    }

    /// Returns whether the most recent transmission of packet `seq` was lost.
    pub fn has_lost(&self, seq: Seq) -> bool {
        self.lost.contains(&seq.0)
    }
}

/// A host: the connections that share one network card.
#[derive(Debug)]
pub struct Host {
    /// The connections, by slot.
    pub endpoints: Vec<Endpoint>,
    device: Device,
    /// The simulated time of the current call.
    now: Nanos,
    /// Number of turns that the ACK queue has given to connections. A turn permits the connection's
    /// peer to send.
    turns: u64,
    /// The largest number of connections in the ACK queue since this field was last set to 0.
    pub most_waiting: usize,
    /// The time at which the timer of the ACK queue fires; [`Nanos::MAX`] for never.
    queue_armed: Nanos,
    /// Packets that the host sends, each with its connection's slot. The caller takes them after
    /// every call.
    pub out: Vec<(u32, Packet)>,
    /// Timers to start. The caller takes them after every call.
    pub alarms: Vec<(Nanos, Alarm)>,
}

impl Host {
    /// Creates a host with a connection to each of the `peers`. The connections are not open yet.
    pub fn new(peers: impl Iterator<Item = u64>, config: HostConfig) -> Self {
        let mut device = Device::default();
        device.queue.set_link(config.link);
        Self {
            endpoints: peers.map(|peer| Endpoint::new(peer, config)).collect(),
            device,
            now: 0,
            turns: 0,
            most_waiting: 0,
            queue_armed: Nanos::MAX,
            out: Vec::new(),
            alarms: Vec::new(),
        }
    }

    /// Returns whether every connection is open.
    pub fn is_established(&self) -> bool {
        let mut sockets = self.endpoints.iter().map(|e| &e.socket);
        sockets.all(|socket| socket.state() == State::Established)
    }

    /// Returns the sum of one counter over all connections of the host.
    pub fn sum(&self, pick: fn(&Stats) -> u32) -> u64 {
        let connections = self.endpoints.iter().filter_map(|e| e.socket.conn.as_ref());
        connections.map(|conn| u64::from(pick(&conn.stats))).sum()
    }

    /// Returns how often the ACK queue ended a sender's turn (its permission to send) because the
    /// sender was silent.
    pub fn overruns(&self) -> u32 {
        self.device.queue.overruns()
    }

    /// Opens the connection in `slot`.
    pub fn open(&mut self, slot: u32, isn: Seq, now: Nanos) {
        self.now = now;
        self.endpoints[slot as usize].socket.isn = isn;
        self.connect(slot as usize, [PORT, PORT], now);
    }

    /// Queues a whole message of `bytes` at once, like one send call.
    pub fn write(&mut self, slot: u32, bytes: u64, now: Nanos) {
        self.now = now;
        let endpoint = &mut self.endpoints[slot as usize];
        let message = Span {
            first: endpoint.sent,
            len: bytes,
        };
        endpoint.sent += bytes;
        let queued = self.send(slot as usize, message, now);
        assert_eq!(
            queued as u64, bytes,
            "a message is at most some 32,000 packets, and its connection open"
        );
    }

    /// Processes a packet that arrives for the connection in `slot`, and reads its data at once. If
    /// the packet opens a connection, `isn` is the connection's random first sequence number.
    pub fn arrive(&mut self, slot: u32, packet: &Packet, isn: Seq, now: Nanos) -> Arrival {
        self.now = now;
        let slot = slot as usize;
        self.endpoints[slot].socket.isn = isn;
        let outcome = self.receive(slot, packet, now);
        let endpoint = &mut self.endpoints[slot];
        endpoint.duplicates += u32::from(outcome.drop == Some(DropReason::Duplicate));
        if outcome.deliver {
            // The reader takes everything and then sleeps.
            for span in self.read(slot, usize::MAX, true, now) {
                let endpoint = &mut self.endpoints[slot];
                assert_eq!(
                    span.first, endpoint.received,
                    "bytes are delivered in their order, each once"
                );
                endpoint.received += span.len;
            }
            return Arrival::Delivered;
        }
        match outcome.drop {
            Some(DropReason::OutOfSequence | DropReason::NoRoom) => Arrival::Discarded,
            _ => Arrival::Other,
        }
    }

    /// Handles the expiry of a timer.
    pub fn wake(&mut self, alarm: Alarm, now: Nanos) {
        self.now = now;
        match alarm {
            Alarm::AckQueue if self.queue_armed == now => {
                self.queue_armed = Nanos::MAX;
                self.serve(0, now);
            }
            Alarm::Connection(slot) if self.endpoints[slot as usize].armed == now => {
                self.endpoints[slot as usize].armed = Nanos::MAX;
                let _ = self.expire(slot as usize, now);
            }
            // Ignore this expiry: the timer was armed again, for an earlier time.
            _ => {}
        }
    }
}

impl esp_testkit::Host for Host {
    type Payload = Span;

    fn at(&mut self, id: usize) -> (&mut Device, &mut Socket<Span>) {
        (&mut self.device, &mut self.endpoints[id].socket)
    }

    fn emit(&mut self, id: usize, packet: Packet) {
        if packet.header.takes_number() {
            self.endpoints[id].lost.remove(&packet.header.seq.0);
        }
        self.out.push((id as u32, packet));
    }

    fn scheduled(&mut self, id: usize, verdict: Verdict) {
        self.most_waiting = self.most_waiting.max(self.device.queue.waiting() as usize);
        let waits = &mut self.endpoints[id].waits;
        match verdict {
            Verdict::Unchanged => {}
            Verdict::Joins(_) => *waits = Some((self.now, self.turns)),
            Verdict::Turn => self.turns += 1,
            Verdict::Leaves(_) => *waits = None,
        }
    }

    fn turned(&mut self, id: usize) {
        let endpoint = &mut self.endpoints[id];
        if let Some((since, turns)) = endpoint.waits.take() {
            let (longest, most) = &mut endpoint.longest_wait;
            *longest = (*longest).max(self.now - since);
            *most = (*most).max(self.turns - turns);
        }
        self.turns += 1;
    }

    // A running timer is not moved to a later deadline. When it expires early, the deadline is
    // examined again.

    fn arm(&mut self, id: usize) {
        let endpoint = &mut self.endpoints[id];
        if let Some(at) = endpoint.socket.deadline() {
            if at < endpoint.armed {
                endpoint.armed = at;
                self.alarms.push((at, Alarm::Connection(id as u32)));
            }
        }
    }

    fn arm_queue(&mut self, _id: usize) {
        if let Some(at) = self.device.queue.deadline() {
            if at < self.queue_armed {
                self.queue_armed = at;
                self.alarms.push((at, Alarm::AckQueue));
            }
        }
    }
}
