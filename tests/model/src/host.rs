// SPDX-License-Identifier: GPL-2.0-only

//! A host: its endpoints, and the turns at its one device.

use std::collections::VecDeque;

use esp::{reset_for, AckQueue, Connection, Demand, Nanos, Seq, State, Verdict};

use crate::case::{Case, Sabotage};
use crate::endpoint::Endpoint;
use crate::fault::Fault;
use crate::scene::{host_name, Packet, Scene, Sights, Span};

/// The port on which the receiver listens.
const LISTENING: u16 = 2_805;
/// The ports of the senders are this and their number.
const FIRST_PORT: u16 = 40_000;

/// How far [`Sabotage::HastyClock`] is ahead: of the retransmission timer all but some microseconds are over.
pub const HASTE: Nanos = 9_990_000;

/// One host with one device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    id: u8,
    /// On the receiver one per sender, on a sender one.
    pub endpoints: Vec<Endpoint>,
    ack_queue: AckQueue,
    /// Endpoints whose acknowledgement waits for its turn.
    waiting: VecDeque<u8>,
    /// When a packet reached this device last.
    heard: Nanos,
    /// The parameters are no longer those of the beginning.
    changed: bool,
}

impl Host {
    /// A host with endpoints that are not connected.
    pub fn new(id: u8, endpoints: u8) -> Self {
        Self {
            id,
            endpoints: (0..endpoints)
                .map(|index| Endpoint::new(id, index))
                .collect(),
            ack_queue: AckQueue::default(),
            waiting: VecDeque::new(),
            heard: 0,
            changed: false,
        }
    }

    /// Numbers that soon wrap.
    fn isn(&self, endpoint: u8) -> Seq {
        Seq(65_533 - u16::from(self.id) - u16::from(endpoint))
    }

    /// An endpoint opens its connection.
    pub fn connect(&mut self, i: u8, scene: &mut Scene<'_>) {
        let config = scene.case.config(self.id, self.changed);
        let isn = self.isn(i);
        let (own, peer) = match self.id {
            0 => (LISTENING, FIRST_PORT + u16::from(i) + 1),
            id => (FIRST_PORT + u16::from(id), LISTENING),
        };
        let mut conn = Connection::new(own, peer, config);
        conn.connect(isn, scene.now);
        self.endpoints[usize::from(i)].conn = Some(conn);
        self.settle(i, scene);
    }

    /// The parameters change, also those of open connections.
    pub fn change_config(&mut self, scene: &mut Scene<'_>) {
        self.changed = true;
        let config = scene.case.config(self.id, true);
        for i in 0..self.endpoints.len() as u8 {
            if let Some(conn) = &mut self.endpoints[usize::from(i)].conn {
                conn.set_config(config);
            }
            self.settle(i, scene);
        }
    }

    /// When something is to be done next, and by whom.
    pub fn next_deadline(&self, case: &Case) -> Option<(Nanos, Wake)> {
        let runs = case.sabotage != Some(Sabotage::NoTimers);
        let haste = match case.sabotage {
            Some(Sabotage::HastyClock) => HASTE,
            _ => 0,
        };
        let serves = case.sabotage != Some(Sabotage::NeverServe);
        let queue = self.ack_queue.deadline().filter(|_| serves);
        let queue = queue.map(|at| (at, Wake::AckQueue));
        let endpoints = self.endpoints.iter().zip(0u8..).flat_map(|(endpoint, i)| {
            let [engine, reader] = endpoint.deadlines();
            [
                engine
                    .filter(|_| runs)
                    .map(|at| (at.saturating_sub(haste), Wake::Engine(i))),
                reader.map(|at| (at, Wake::Reader(i))),
            ]
        });
        endpoints.chain([queue]).flatten().min_by_key(|(at, _)| *at)
    }

    /// Whether no connection waits for its turn.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A packet arrives.
    pub fn on_packet(&mut self, packet: &Packet, scene: &mut Scene<'_>) {
        self.heard = scene.now;
        self.ack_queue.note_arrival(scene.now);
        let i = match self.id {
            0 => packet.from - 1,
            _ => 0,
        };
        let isn = self.isn(i);
        let header = &packet.header;
        let endpoint = &mut self.endpoints[usize::from(i)];
        if endpoint.conn.is_none() && header.opens() {
            let config = scene.case.config(self.id, self.changed);
            endpoint.conn = Some(Connection::accept(
                header.dst, header, isn, config, scene.now,
            ));
        } else if endpoint.state() == State::Closed {
            if let Some(header) = reset_for(header) {
                scene.see(Sights::RESET);
                scene.out.push(Packet {
                    to: packet.from,
                    from: self.id,
                    header,
                    span: Span::default(),
                });
            }
            return;
        } else {
            endpoint.on_packet(packet, scene);
        }
        self.settle(i, scene);
        self.run(i, scene);
    }

    /// Runs what is due.
    pub fn on_deadline(&mut self, wake: Wake, scene: &mut Scene<'_>) {
        match wake {
            Wake::AckQueue => {
                self.serve(scene);
                self.check(scene);
                if self.ack_queue.deadline().is_some_and(|at| at <= scene.now) {
                    scene.fail(Fault::Spins);
                }
            }
            Wake::Reader(i) => self.run(i, scene),
            Wake::Engine(i) => {
                let endpoint = &mut self.endpoints[usize::from(i)];
                endpoint.on_deadline(self.heard, scene);
                self.settle(i, scene);
                let [again, _] = self.endpoints[usize::from(i)].deadlines();
                if again.is_some_and(|at| at <= scene.now) {
                    scene.fail(Fault::Spins);
                }
                self.run(i, scene);
            }
        }
    }

    /// Lets an endpoint's program do all it can do now.
    pub fn run(&mut self, i: u8, scene: &mut Scene<'_>) {
        while scene.fault.is_none() && self.endpoints[usize::from(i)].run(scene) {
            self.settle(i, scene);
        }
    }

    /// Follows every call of a connection's engine: asks for turns and gives them, and sends packets.
    fn settle(&mut self, i: u8, scene: &mut Scene<'_>) {
        let endpoint = &mut self.endpoints[usize::from(i)];
        let Some(conn) = &mut endpoint.conn else {
            return;
        };
        match self.ack_queue.schedule(&mut endpoint.slot, conn, scene.now) {
            Verdict::Unchanged | Verdict::Turn => {}
            Verdict::Leaves => {
                if !scene.is_made_wrong(Sabotage::KeepInList) {
                    self.waiting.retain(|other| *other != i);
                }
            }
            Verdict::Joins => {
                self.waiting.push_back(i);
                if scene.is_made_wrong(Sabotage::GrantAtOnce) {
                    conn.take_turn();
                }
                scene.see(if self.waiting.len() > 1 {
                    Sights::WAITED | Sights::WAITED_TWO
                } else {
                    Sights::WAITED
                });
                let (host, queue) = (self.id, &self.ack_queue);
                scene.log.note(scene.now, || {
                    format!(
                        "{}: the acknowledgement of connection {} waits, {} of {}",
                        host_name(host),
                        i + 1,
                        queue.waiting(),
                        queue.scheduled()
                    )
                });
            }
        }
        endpoint.emit(scene);
        self.serve(scene);
        self.check(scene);
    }

    /// Gives the turn to those whose time has come.
    fn serve(&mut self, scene: &mut Scene<'_>) {
        if scene.is_made_wrong(Sabotage::NeverServe) {
            return;
        }
        let before = self.ack_queue.overruns();
        while let Some(turn) = self.ack_queue.next_turn(scene.now) {
            let Some(i) = self.waiting.pop_front() else {
                scene.fail(Fault::AckQueue(
                    "the head is to leave a list that is empty".into(),
                ));
                return;
            };
            let endpoint = &mut self.endpoints[usize::from(i)];
            turn.give(&mut endpoint.slot);
            let host = self.id;
            scene.log.note(scene.now, || {
                format!("{}: the turn of connection {}", host_name(host), i + 1)
            });
            if let Some(conn) = &mut endpoint.conn {
                conn.take_turn();
            }
            endpoint.emit(scene);
        }
        if self.ack_queue.overruns() != before {
            scene.see(Sights::OVERRUN);
        }
    }

    /// The queue counts the connections that there are.
    fn check(&self, scene: &mut Scene<'_>) {
        let listed = |i: u8| self.waiting.iter().filter(|other| **other == i).count();
        if self.waiting.len() != self.ack_queue.waiting() as usize {
            scene.fail(Fault::AckQueue(format!(
                "{} in the list, {} counted",
                self.waiting.len(),
                self.ack_queue.waiting()
            )));
        }
        let mut scheduled = 0;
        for (endpoint, i) in self.endpoints.iter().zip(0u8..) {
            let is_scheduled = endpoint
                .conn
                .as_ref()
                .is_some_and(|conn| conn.demand() != Demand::Nothing);
            scheduled += u32::from(is_scheduled);
            if listed(i) != usize::from(endpoint.slot.is_waiting()) {
                scene.fail(Fault::AckQueue(format!(
                    "connection {} is {} times in the list, its slot says {}",
                    i + 1,
                    listed(i),
                    endpoint.slot.is_waiting()
                )));
            }
            if is_scheduled != endpoint.slot.is_scheduled() {
                scene.fail(Fault::AckQueue(format!(
                    "connection {} is to be counted: {is_scheduled}, is counted: {}",
                    i + 1,
                    endpoint.slot.is_scheduled()
                )));
            }
        }
        if scheduled != self.ack_queue.scheduled() {
            scene.fail(Fault::AckQueue(format!(
                "n is {}, {scheduled} connections count",
                self.ack_queue.scheduled()
            )));
        }
    }
}

/// Who is to be run at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wake {
    /// The ACK queue.
    AckQueue,
    /// An endpoint's engine.
    Engine(u8),
    /// An endpoint's reader.
    Reader(u8),
}
