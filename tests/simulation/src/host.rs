//! A host: connections that share one network card, as the kernel module keeps them.
//!
//! A [`Host`] is to the engine what the module is: it owns the queues, the list of acknowledgements that wait for their
//! turn, and the timers; it moves packets and decides nothing. Payload is not stored: every packet knows where in the
//! stream its bytes stand, and [`Host::receive`] fails when they are not those that come next.

use std::collections::VecDeque;

use esp::{
    AckQueue, Config, Connection, DropReason, Header, Nanos, Outcome, Room, Seq, Slot, State,
    Transmit, Verdict,
};

/// Memory that a queued packet holds beyond its payload, bytes: what a socket is charged for an `sk_buff`.
const PACKET_OVERHEAD: u32 = 768;

/// Every connection has a network card of its own on one side, so ports need not tell them apart.
const PORT: u16 = 2805;

/// What all connections of a host have in common.
#[derive(Clone, Copy, Debug)]
pub struct HostConfig {
    /// The protocol's parameters.
    pub esp: Config,
    /// The most payload in a packet, bytes.
    pub mss: u16,
    /// The receive buffer of each connection, bytes.
    pub receive_buffer: u32,
}

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// The header; [`Header::len`] bytes of payload follow it.
    pub header: Header,
    /// Where in the stream the payload stands, bytes.
    pub offset: u64,
}

/// What became of a packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It brought data, which was delivered and read.
    Delivered,
    /// Its data was thrown away though it was new: packets before it are missing, or there was no room.
    Discarded,
    /// It brought no data, or none that was new.
    Other,
}

/// What a host asks to be woken for.
#[derive(Clone, Copy, Debug)]
pub enum Alarm {
    /// The timer of the connection in this slot.
    Connection(u32),
    /// The timer of the ACK queue.
    AckQueue,
}

/// A data packet in the write queue.
#[derive(Clone, Copy, Debug)]
struct Queued {
    offset: u64,
    len: u16,
    /// TXS and TXF as it left last.
    flags: u8,
    /// It did not come through when it left last.
    lost: bool,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Endpoint {
    /// The engine.
    pub conn: Connection,
    ack_slot: Slot,
    write: VecDeque<Queued>,
    /// Bytes that were ever queued for sending.
    sent: u64,
    /// Bytes that were delivered, in order.
    pub received: u64,
    /// Packets that came though it had them.
    pub duplicates: u32,
    /// What it said last was lost.
    pub mute: bool,
    /// When the armed timer fires; [`Nanos::MAX`] for never.
    armed: Nanos,
}

impl Endpoint {
    fn new(conn: Connection) -> Self {
        Self {
            conn,
            ack_slot: Slot::default(),
            write: VecDeque::new(),
            sent: 0,
            received: 0,
            duplicates: 0,
            mute: false,
            armed: Nanos::MAX,
        }
    }

    fn note(&mut self, outcome: &Outcome) {
        self.write.drain(..usize::from(outcome.acked));
        self.duplicates += u32::from(outcome.drop == Some(DropReason::Duplicate));
    }

    fn queued_mut(&mut self, seq: Seq) -> Option<&mut Queued> {
        let place = self.conn.first_unacked().distance(seq);
        self.write.get_mut(usize::from(place))
    }

    /// The packet with the number `seq` did not come through: the network lost it, or the other side threw it away.
    pub fn lose(&mut self, seq: Seq) {
        if let Some(queued) = self.queued_mut(seq) {
            queued.lost = true;
        }
    }

    /// Whether the packet with the number `seq` did not come through when it left last.
    pub fn has_lost(&self, seq: Seq) -> bool {
        let place = self.conn.first_unacked().distance(seq);
        self.write
            .get(usize::from(place))
            .is_some_and(|queued| queued.lost)
    }
}

/// Connections behind one network card.
#[derive(Debug)]
pub struct Host {
    config: HostConfig,
    /// The connections, by slot.
    pub endpoints: Vec<Endpoint>,
    ack_queue: AckQueue,
    /// Slots that wait for their turn, first in, first out.
    list: VecDeque<u32>,
    /// The most that waited since this was last set to 0.
    pub most_waiting: usize,
    ack_queue_armed: Nanos,
    last_arrival: Nanos,
    /// Packets that leave now, with their slots; to be taken after every call.
    pub out: Vec<(u32, Packet)>,
    /// Timers to start; to be taken after every call.
    pub alarms: Vec<(Nanos, Alarm)>,
}

impl Host {
    /// A host with `slots` connections that are yet to be opened.
    pub fn new(slots: usize, config: HostConfig) -> Self {
        let closed = || Endpoint::new(Connection::new(PORT, PORT, config.esp));
        Self {
            config,
            endpoints: (0..slots).map(|_| closed()).collect(),
            ack_queue: AckQueue::default(),
            list: VecDeque::new(),
            most_waiting: 0,
            ack_queue_armed: Nanos::MAX,
            last_arrival: 0,
            out: Vec::new(),
            alarms: Vec::new(),
        }
    }

    fn room(&self, queued: u32) -> Room {
        let packet = u32::from(self.config.mss) + PACKET_OVERHEAD;
        Room {
            queued,
            limit: self.config.receive_buffer,
            arriving: packet,
            packet,
        }
    }

    /// Whether every connection is open.
    pub fn is_established(&self) -> bool {
        self.endpoints
            .iter()
            .all(|e| e.conn.state() == State::Established)
    }

    /// How often a turn was taken from a silent sender.
    pub fn overruns(&self) -> u32 {
        self.ack_queue.overruns()
    }

    /// Opens the connection in `slot`.
    pub fn connect(&mut self, slot: u32, isn: Seq, now: Nanos) {
        self.endpoints[slot as usize].conn.connect(isn, now);
        self.attend(slot, now);
    }

    /// One send call: a message of `bytes` is queued whole.
    pub fn send(&mut self, slot: u32, bytes: u64, now: Nanos) {
        let endpoint = &mut self.endpoints[slot as usize];
        let end = endpoint.sent + bytes;
        while endpoint.sent < end {
            assert!(
                endpoint.conn.can_enqueue(),
                "a message is at most some 32,000 packets, and its connection open"
            );
            let len = (end - endpoint.sent).min(u64::from(self.config.mss)) as u16;
            endpoint.write.push_back(Queued {
                offset: endpoint.sent,
                len,
                flags: 0,
                lost: false,
            });
            endpoint.conn.enqueue(1);
            endpoint.sent += u64::from(len);
        }
        self.attend(slot, now);
    }

    /// A packet arrives for the connection in `slot`; data is read at once. `isn`: random, for a connection that it
    /// opens.
    pub fn receive(&mut self, slot: u32, packet: &Packet, isn: Seq, now: Nanos) -> Arrival {
        self.last_arrival = now;
        self.ack_queue.note_arrival(now);
        let room = self.room(0);
        let endpoint = &mut self.endpoints[slot as usize];
        let header = &packet.header;
        if endpoint.conn.state() == State::Closed && header.opens() {
            endpoint.conn = Connection::accept(PORT, header, isn, self.config.esp, now);
            self.attend(slot, now);
            return Arrival::Other;
        }
        let outcome = endpoint.conn.on_packet(header, room, now);
        endpoint.note(&outcome);
        if outcome.deliver {
            assert_eq!(
                packet.offset, endpoint.received,
                "bytes are delivered in their order, each once"
            );
            endpoint.received += u64::from(header.len);
        }
        self.attend(slot, now);
        if outcome.deliver {
            self.read(slot, now);
            return Arrival::Delivered;
        }
        match outcome.drop {
            Some(DropReason::OutOfSequence | DropReason::NoRoom) => Arrival::Discarded,
            _ => Arrival::Other,
        }
    }

    /// The reader takes everything and goes to sleep.
    fn read(&mut self, slot: u32, now: Nanos) {
        let room = self.room(0);
        let conn = &mut self.endpoints[slot as usize].conn;
        if !conn.waits_for_room() && !conn.waits_for_data() {
            return;
        }
        conn.on_read(room, now);
        conn.flush_ack();
        self.attend(slot, now);
    }

    /// A timer fires that was asked for.
    pub fn wake(&mut self, alarm: Alarm, now: Nanos) {
        match alarm {
            Alarm::AckQueue if self.ack_queue_armed == now => {
                self.ack_queue_armed = Nanos::MAX;
                self.hand_out_turns(now);
                self.arm_ack_queue();
            }
            Alarm::Connection(slot) if self.endpoints[slot as usize].armed == now => {
                let endpoint = &mut self.endpoints[slot as usize];
                endpoint.armed = Nanos::MAX;
                let outcome = endpoint.conn.on_deadline(self.last_arrival, now);
                endpoint.note(&outcome);
                self.attend(slot, now);
            }
            // Replaced by an earlier one.
            _ => {}
        }
    }

    /// What has to follow every call of an engine.
    fn attend(&mut self, slot: u32, now: Nanos) {
        let endpoint = &mut self.endpoints[slot as usize];
        let Endpoint { ack_slot, conn, .. } = endpoint;
        match self.ack_queue.schedule(ack_slot, conn, now) {
            Verdict::Unchanged | Verdict::Turn => {}
            Verdict::Joins => {
                self.list.push_back(slot);
                self.most_waiting = self.most_waiting.max(self.list.len());
            }
            Verdict::Leaves => self.list.retain(|&waiting| waiting != slot),
        }
        self.transmit(slot, now);
        self.hand_out_turns(now);
        self.arm(slot);
        self.arm_ack_queue();
    }

    fn hand_out_turns(&mut self, now: Nanos) {
        while let Some(turn) = self.ack_queue.next_turn(now) {
            let slot = self
                .list
                .pop_front()
                .expect("the list holds whoever waits for a turn");
            let endpoint = &mut self.endpoints[slot as usize];
            turn.give(&mut endpoint.ack_slot);
            endpoint.conn.take_turn();
            self.transmit(slot, now);
            self.arm(slot);
        }
    }

    fn transmit(&mut self, slot: u32, now: Nanos) {
        let Endpoint { conn, write, .. } = &mut self.endpoints[slot as usize];
        let first = conn.first_unacked();
        let place = |seq| usize::from(first.distance(seq));
        while let Some(transmit) = conn.poll_transmit(now, &mut |seq| write[place(seq)].flags) {
            let packet = match transmit {
                Transmit::Control { header, .. } | Transmit::Probe(header) => {
                    Packet { header, offset: 0 }
                }
                Transmit::Data { mut header, .. } => {
                    let queued = &mut write[place(header.seq)];
                    queued.flags = header.flags;
                    queued.lost = false;
                    header.len = queued.len;
                    Packet {
                        header,
                        offset: queued.offset,
                    }
                }
            };
            self.out.push((slot, packet));
        }
    }

    /// An earlier timer is left running: when it fires, the deadline is looked at again.
    fn arm(&mut self, slot: u32) {
        let endpoint = &mut self.endpoints[slot as usize];
        if let Some(at) = endpoint.conn.deadline() {
            if at < endpoint.armed {
                endpoint.armed = at;
                self.alarms.push((at, Alarm::Connection(slot)));
            }
        }
    }

    fn arm_ack_queue(&mut self) {
        if let Some(at) = self.ack_queue.deadline() {
            if at < self.ack_queue_armed {
                self.ack_queue_armed = at;
                self.alarms.push((at, Alarm::AckQueue));
            }
        }
    }
}
