// SPDX-License-Identifier: GPL-2.0-only

//! A host: sockets that share a network device, and the order in which the engine is called.

use std::collections::VecDeque;

use esp::ack_queue::{CROWD, LISTS};
use esp::{reset_for, AckQueue, Nanos, Outcome, State, Verdict};

use crate::payload::Payload;
use crate::socket::{Packet, Socket};

/// A network device: its ACK queue with the lists of sockets that wait in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// The order of the acknowledgements.
    pub queue: AckQueue,
    /// Sockets that wait for their turn, in lists, first in, first out.
    pub waiting: [VecDeque<usize>; LISTS],
    /// Connections that were ever accepted.
    pub connections: usize,
    /// When a packet last arrived.
    heard: Nanos,
    /// Sockets of others have the turn: none is given here.
    pub held: bool,
}

impl Device {
    /// A packet arrives, for any socket.
    pub fn note_arrival(&mut self, now: Nanos) {
        self.heard = now;
        self.queue.note_arrival(now);
    }

    /// Sockets that wait for their turn.
    pub fn listed(&self) -> impl Iterator<Item = usize> + '_ {
        self.waiting.iter().flatten().copied()
    }

    /// Does to the lists what the queue says about the demand of the socket `id`.
    fn schedule<P>(&mut self, id: usize, socket: &mut Socket<P>, now: Nanos) -> Verdict {
        let Some(conn) = &mut socket.conn else {
            return Verdict::Unchanged;
        };
        if self.held && conn.demand().is_turn() {
            conn.wait_turn();
        }
        let demand = conn.demand();
        if !demand.is_news(socket.counted, self.queue.waiting() > 0) {
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

/// Sockets behind one device, or behind one each, as the kernel module calls their engines.
///
/// The provided methods are the events of a host. After each of them no packet is left to send.
pub trait Host {
    /// What packets carry.
    type Payload: Payload;

    /// A socket and its device.
    fn at(&mut self, id: usize) -> (&mut Device, &mut Socket<Self::Payload>);

    /// A socket sends a packet.
    fn emit(&mut self, id: usize, packet: Packet<Self::Payload>);

    /// The ACK queue has answered a socket's demand.
    fn scheduled(&mut self, _id: usize, _verdict: Verdict) {}

    /// The turn of a socket that waited has come.
    fn turned(&mut self, _id: usize) {}

    /// A socket's timer is to expire at its [deadline](Socket::deadline), unless it does so
    /// earlier.
    fn arm(&mut self, _id: usize) {}

    /// The timer of the ACK queue of a socket's device is to expire at its
    /// [deadline](AckQueue::deadline), unless it does so earlier.
    fn arm_queue(&mut self, _id: usize) {}

    /// A socket.
    fn socket(&mut self, id: usize) -> &mut Socket<Self::Payload> {
        self.at(id).1
    }

    /// A socket opens its connection from port to port.
    fn connect(&mut self, id: usize, ports: [u16; 2], now: Nanos) {
        self.socket(id).connect(ports, now);
        self.transmit(id, now);
        self.serve(id, now);
    }

    /// One send call: queues a message as far as numbers suffice, and returns how many bytes that
    /// are.
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

    /// One send call that queues a record, or nothing of it.
    fn send_record(&mut self, id: usize, record: Self::Payload, now: Nanos) -> bool {
        let queued = self.socket(id).queue_record(record);
        self.transmit(id, now);
        self.serve(id, now);
        queued
    }

    /// A packet arrives at a socket.
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

    /// The timer of a socket expires.
    fn expire(&mut self, id: usize, now: Nanos) -> Outcome {
        let (device, socket) = self.at(id);
        let outcome = socket.on_deadline(device.heard, now);
        self.settle(id, &outcome, now);
        outcome
    }

    /// Takes up to `most` packets out of a receive queue; the reader then sleeps, or does not.
    fn read(&mut self, id: usize, most: usize, sleeps: bool, now: Nanos) -> Vec<Self::Payload> {
        let read = self.socket(id).read(most, sleeps, now);
        self.transmit(id, now);
        self.serve(id, now);
        read
    }

    /// From now on a socket's packets have at most `mss` bytes.
    fn shrink(&mut self, id: usize, mss: usize, now: Nanos) {
        self.socket(id).shrink(mss, now);
        self.transmit(id, now);
        self.serve(id, now);
    }

    /// Follows the outcome of a packet or a timer: sends, frees, cuts.
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

    /// Asks the ACK queue for what a socket demands, then sends all that its engine wants sent.
    fn transmit(&mut self, id: usize, now: Nanos) {
        let (device, socket) = self.at(id);
        let verdict = device.schedule(id, socket, now);
        self.scheduled(id, verdict);
        while let Some(packet) = self.socket(id).poll(now) {
            self.emit(id, packet);
        }
        self.arm(id);
    }

    /// Gives turns, as far as they are due, in the ACK queue of a socket's device.
    fn serve(&mut self, id: usize, now: Nanos) {
        give_turns(self, id, now);
    }
}

/// See [`Host::serve`].
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
