// SPDX-License-Identifier: GPL-2.0-only

//! Plays a host: has its sockets and network devices, and calls the engine in the right order.

use std::collections::VecDeque;

use esp::ack_queue::{CROWD, LISTS};
use esp::{reset_for, AckQueue, Nanos, Outcome, State, Verdict};

use crate::payload::Payload;
use crate::socket::{Packet, Socket};

/// A network device: its ACK queue, and the lists of sockets that wait in the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// The ACK queue, which orders the sockets' acknowledgements.
    pub queue: AckQueue,
    /// The lists of sockets that wait for their turn to acknowledge. Each list is first in, first
    /// out.
    pub waiting: [VecDeque<usize>; LISTS],
    /// Number of connections that were ever accepted.
    pub connections: usize,
    /// The time at which the most recent packet arrived.
    heard: Nanos,
    /// Whether sockets of another device have the turn to acknowledge, so that no socket of this
    /// device gets it.
    pub held: bool,
}

impl Device {
    /// Records that a packet arrived for some socket of the device.
    pub fn note_arrival(&mut self, now: Nanos) {
        self.heard = now;
        self.queue.note_arrival(now);
    }

    /// Returns the sockets that wait for their turn.
    pub fn listed(&self) -> impl Iterator<Item = usize> + '_ {
        self.waiting.iter().flatten().copied()
    }

    /// Reports the demand of socket `id` to the ACK queue, and moves the socket between the lists
    /// accordingly.
    fn schedule<P>(&mut self, id: usize, socket: &mut Socket<P>, now: Nanos) -> Verdict {
        let Some(conn) = &mut socket.conn else {
            return Verdict::Unchanged;
        };
        if self.held && conn.demand().is_turn() {
            conn.wait_turn();
        }
        let demand = conn.demand();
        if !demand.needs_schedule(socket.counted, self.queue.waiting() > 0) {
            return Verdict::Unchanged;
        }
        socket.counted = demand.counts();
        let verdict = self.queue.schedule(&mut socket.slot, conn, now);
        match verdict {
            Verdict::Unchanged | Verdict::Turn => {}
            Verdict::Joins(list) => self.waiting[list.index()].push_back(id),
            Verdict::Leaves(list) => self.waiting[list.index()].retain(|other| *other != id),
        }
        verdict
    }
}

/// One or more sockets, which share one device or have a device each. The provided methods call the
/// sockets' engines in the same order as the kernel module.
///
/// Most provided methods are events of a host. After each event, the engine has no more packets to
/// send.
pub trait Host {
    /// The payload of packets.
    type Payload: Payload;

    /// Returns the socket with the index `id`, and its device.
    fn at(&mut self, id: usize) -> (&mut Device, &mut Socket<Self::Payload>);

    /// Sends a packet on behalf of the socket `id`.
    fn emit(&mut self, id: usize, packet: Packet<Self::Payload>);

    /// This is called when the ACK queue has decided whether a socket waits for its turn.
    fn scheduled(&mut self, _id: usize, _verdict: Verdict) {}

    /// This is called when a waiting socket gets its turn to acknowledge.
    fn turned(&mut self, _id: usize) {}

    /// Arms a socket's timer for its [deadline](Socket::deadline). Does nothing if the timer is
    /// already set to expire earlier.
    fn arm(&mut self, _id: usize) {}

    /// Arms the timer of the ACK queue on a socket's device. The timer expires at the queue's
    /// [deadline](AckQueue::deadline). Does nothing if the timer is already set to expire earlier.
    fn arm_queue(&mut self, _id: usize) {}

    /// Returns the socket with the index `id`.
    fn socket(&mut self, id: usize) -> &mut Socket<Self::Payload> {
        self.at(id).1
    }

    /// Connects a socket from `ports[0]` to `ports[1]`.
    fn connect(&mut self, id: usize, ports: [u16; 2], now: Nanos) {
        self.socket(id).connect(ports, now);
        self.transmit(id, now);
        self.serve(id, now);
    }

    /// Does one send call: queues as much of a message as there are sequence numbers for, and
    /// returns how many bytes it queued.
    fn send(&mut self, id: usize, mut message: Self::Payload, now: Nanos) -> usize {
        let len = message.len();
        self.socket(id).conn().hold_last(true);
        while self.socket(id).queue_one(&mut message) {
            self.transmit(id, now);
        }
        self.socket(id).conn().hold_last(false);
        self.transmit(id, now);
        self.serve(id, now);
        len - message.len()
    }

    /// Does one send call, which queues a whole record or nothing. Returns whether the record was
    /// queued.
    fn send_record(&mut self, id: usize, record: Self::Payload, now: Nanos) -> bool {
        let queued = self.socket(id).queue_record(record);
        self.transmit(id, now);
        self.serve(id, now);
        queued
    }

    /// Handles a packet that arrives at the socket `id`.
    fn receive(&mut self, id: usize, packet: &Packet<Self::Payload>, now: Nanos) -> Outcome {
        let (device, socket) = self.at(id);
        device.note_arrival(now);
        let listens = socket.listens && socket.agrees_with(&packet.options);
        if socket.conn.is_none() && listens && packet.header.opens() {
            device.connections += 1;
            socket.crowded |= device.connections > CROWD;
            socket.accept(packet, now);
            self.transmit(id, now);
            self.serve(id, now);
            return Outcome::default();
        }
        if socket.state() == State::Closed {
            if let Some(reset) = reset_for(&packet.header) {
                self.emit(id, Packet::control(reset));
            }
            return Outcome::default();
        }
        let room = socket.room();
        let outcome = socket.on_packet(packet, room, now);
        if device.queue.waiting() > 0 {
            let conn = socket.conn.as_mut();
            conn.expect("a connection")
                .note_arrived(&packet.header, 1, now);
        }
        self.settle(id, &outcome, now);
        outcome
    }

    /// Handles the expiry of the timer of socket `id`.
    fn expire(&mut self, id: usize, now: Nanos) -> Outcome {
        let (device, socket) = self.at(id);
        let outcome = socket.on_deadline(device.heard, now);
        self.settle(id, &outcome, now);
        outcome
    }

    /// Takes up to `most` packets out of a receive queue. `sleeps` is set if the reader sleeps
    /// afterwards.
    fn read(&mut self, id: usize, most: usize, sleeps: bool, now: Nanos) -> Vec<Self::Payload> {
        let read = self.socket(id).read(most, sleeps, now);
        self.transmit(id, now);
        self.serve(id, now);
        read
    }

    /// Limits a socket's packets to `mss` bytes from now on.
    fn shrink(&mut self, id: usize, mss: usize, now: Nanos) {
        self.socket(id).shrink(mss, now);
        self.transmit(id, now);
        self.serve(id, now);
    }

    /// Applies the outcome of a packet or a timer: sends and frees packets, and splits those that
    /// have become too long.
    fn settle(&mut self, id: usize, outcome: &Outcome, now: Nanos) {
        self.transmit(id, now);
        let socket = self.socket(id);
        socket.free(outcome.acked);
        if outcome.cut {
            socket.cut(0);
            self.transmit(id, now);
        }
        self.serve(id, now);
    }

    /// Reports a socket's demand to the ACK queue, then sends all packets that its engine has
    /// ready.
    fn transmit(&mut self, id: usize, now: Nanos) {
        let (device, socket) = self.at(id);
        let verdict = device.schedule(id, socket, now);
        self.scheduled(id, verdict);
        while let Some(packet) = self.socket(id).poll(now) {
            self.emit(id, packet);
        }
        self.arm(id);
    }

    /// Gives waiting sockets the turns to acknowledge that are due in the ACK queue of a socket's
    /// device.
    fn serve(&mut self, id: usize, now: Nanos) {
        give_turns(self, id, now);
    }
}

/// Implements [`Host::serve`].
pub fn give_turns<H: Host + ?Sized>(host: &mut H, id: usize, now: Nanos) {
    loop {
        let device = host.at(id).0;
        let Some(turn) = device.queue.next_turn(now) else {
            let is_empty = device.listed().next().is_none();
            let counted = device.queue.waiting();
            assert!(!is_empty || counted == 0, "the queue counts empty lists");
            return host.arm_queue(id);
        };
        let list = turn.list().index();
        let first = device.waiting[list].pop_front();
        let first = first.expect("one that waits is next");
        let (device, socket) = host.at(first);
        let turn = device.queue.next_turn(now).expect("it was due before");
        if let Some(list) = turn.give(&mut socket.slot) {
            device.waiting[list.index()].push_back(first);
            continue;
        }
        socket.conn().take_turn();
        host.turned(first);
        host.transmit(first, now);
    }
}
