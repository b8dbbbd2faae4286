// SPDX-License-Identifier: GPL-2.0-only

//! A host with one device: its endpoints, and the order of their acknowledgements.

use esp::{Demand, Nanos, Seq, Verdict};
use esp_testkit::host::give_turns;
use esp_testkit::{Device, Host as _, Payload, Socket, Span};

use crate::case::{Case, Sabotage};
use crate::endpoint::Endpoint;
use crate::fault::Fault;
use crate::scene::{host_name, Packet, Scene, Sights};

/// The port on which the receiver listens.
const LISTENING: u16 = 2_805;
/// Sender number n has the port `FIRST_PORT` + n.
const FIRST_PORT: u16 = 40_000;

/// The time, in nanoseconds, by which the clock of [`Sabotage::HastyClock`] is ahead. It is some
/// microseconds less than the retransmission timeout.
pub const HASTE: Nanos = 9_990_000;

/// Returns the first sequence number of an endpoint. The endpoint's numbers soon wrap.
pub fn isn(host: u8, endpoint: u8) -> Seq {
    Seq(65_533 - u16::from(host) - u16::from(endpoint))
}

/// One host with one device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    id: u8,
    /// The host's ends of connections: the receiver has one per sender, and a sender has one.
    pub endpoints: Vec<Endpoint>,
    device: Device,
}

impl Host {
    /// Returns a host with endpoints that are not connected.
    pub fn new(id: u8, endpoints: u8, case: &Case) -> Self {
        Self {
            id,
            endpoints: (0..endpoints)
                .map(|index| Endpoint::new(id, index, case))
                .collect(),
            device: Device::default(),
        }
    }

    /// Makes an endpoint open its connection.
    pub fn connect(&mut self, i: u8, scene: &mut Scene<'_>) {
        let ports = match self.id {
            0 => [LISTENING, FIRST_PORT + u16::from(i) + 1],
            id => [FIRST_PORT + u16::from(id), LISTENING],
        };
        let now = scene.now;
        let mut act = Act { host: self, scene };
        act.connect(i.into(), ports, now);
        self.check(scene);
    }

    /// Changes the parameters, also of open connections.
    pub fn change_config(&mut self, scene: &mut Scene<'_>) {
        let config = scene.case.config(self.id, true);
        for i in 0..self.endpoints.len() {
            self.endpoints[i].socket.set_config(config);
            self.follow(i, scene);
        }
    }

    /// Returns the next deadline and the part of the host that must run then.
    pub fn next_deadline(&self, case: &Case) -> Option<(Nanos, Wake)> {
        let runs = case.sabotage != Some(Sabotage::NoTimers);
        let haste = match case.sabotage {
            Some(Sabotage::HastyClock) => HASTE,
            _ => 0,
        };
        let serves = case.sabotage != Some(Sabotage::NeverServe);
        let queue = self.device.queue.deadline().filter(|_| serves);
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

    /// Returns whether no connection waits for its turn to acknowledge.
    pub fn is_idle(&self) -> bool {
        self.device.queue.waiting() == 0
    }

    /// Handles an arriving packet.
    pub fn on_packet(&mut self, packet: &Packet, scene: &mut Scene<'_>) {
        let i = match self.id {
            0 => packet.from - 1,
            _ => 0,
        };
        let now = scene.now;
        let mut act = Act { host: self, scene };
        let outcome = act.receive(i.into(), &packet.packet, now);
        self.endpoints[usize::from(i)].on_packet(&packet.packet, &outcome, scene);
        self.check(scene);
        self.run(i, scene);
    }

    /// Runs the part of the host that `wake` names, because it is due.
    pub fn on_deadline(&mut self, wake: Wake, scene: &mut Scene<'_>) {
        let now = scene.now;
        let again = match wake {
            Wake::AckQueue => {
                Act { host: self, scene }.serve(0, now);
                self.device.queue.deadline()
            }
            Wake::Reader(i) => return self.run(i, scene),
            Wake::Engine(i) => {
                let now = match scene.case.sabotage {
                    Some(Sabotage::StoppedClock) => now - 1,
                    Some(Sabotage::HastyClock) => now + HASTE,
                    _ => now,
                };
                let outcome = Act { host: self, scene }.expire(i.into(), now);
                let endpoint = &self.endpoints[usize::from(i)];
                endpoint.judge(&outcome, scene);
                endpoint.socket.deadline()
            }
        };
        self.check(scene);
        if again.is_some_and(|at| at <= scene.now) {
            scene.fail(Fault::Spins);
        }
        if let Wake::Engine(i) = wake {
            self.run(i, scene);
        }
    }

    /// Runs an endpoint's program until it waits.
    pub fn run(&mut self, i: u8, scene: &mut Scene<'_>) {
        let i = usize::from(i);
        while scene.fault.is_none() && self.endpoints[i].run(scene) {
            self.follow(i, scene);
        }
    }

    /// Lets the engine send after calls of a program.
    fn follow(&mut self, i: usize, scene: &mut Scene<'_>) {
        let now = scene.now;
        let mut act = Act { host: self, scene };
        act.transmit(i, now);
        act.serve(i, now);
        self.check(scene);
    }

    /// Checks that the queue's counts agree with the existing connections.
    fn check(&self, scene: &mut Scene<'_>) {
        let queue = &self.device.queue;
        let listed = self.device.listed().count();
        if listed != queue.waiting() as usize {
            scene.fail(Fault::AckQueue(format!(
                "{listed} in the lists, {} counted",
                queue.waiting()
            )));
        }
        let mut scheduled = 0;
        for (i, endpoint) in self.endpoints.iter().enumerate() {
            let (socket, number) = (&endpoint.socket, i + 1);
            let demand = socket.conn.as_ref().map(esp::Connection::demand);
            let is_scheduled = demand.is_some_and(|demand| demand != Demand::Nothing);
            scheduled += u32::from(is_scheduled);
            let listed = self.device.listed().filter(|other| *other == i).count();
            if listed != usize::from(socket.slot.is_waiting()) {
                scene.fail(Fault::AckQueue(format!(
                    "connection {number} is {listed} times in the lists, its slot says {}",
                    socket.slot.is_waiting()
                )));
            }
            if is_scheduled != socket.slot.is_scheduled() {
                scene.fail(Fault::AckQueue(format!(
                    "connection {number} is to be counted: {is_scheduled}, is counted: {}",
                    socket.slot.is_scheduled()
                )));
            }
        }
        if scheduled != queue.scheduled() {
            scene.fail(Fault::AckQueue(format!(
                "n is {}, {scheduled} connections count",
                queue.scheduled()
            )));
        }
    }
}

/// A host and the [`Scene`] of the current step. This type applies the deliberate errors.
struct Act<'a, 's> {
    host: &'a mut Host,
    scene: &'a mut Scene<'s>,
}

impl esp_testkit::Host for Act<'_, '_> {
    type Payload = Span;

    fn at(&mut self, id: usize) -> (&mut Device, &mut Socket<Span>) {
        let Host {
            endpoints, device, ..
        } = &mut *self.host;
        (device, &mut endpoints[id].socket)
    }

    fn emit(&mut self, id: usize, mut packet: esp_testkit::Packet<Span>) {
        let endpoint = &mut self.host.endpoints[id];
        if packet.header.has(esp::flags::RRQ) {
            assert!(
                !self.scene.is_made_wrong(Sabotage::PanicAtRequest),
                "made wrong on purpose"
            );
            if self.scene.is_made_wrong(Sabotage::SwallowRequests) {
                return;
            }
        }
        endpoint.on_emit(&packet, self.scene);
        if !packet.payload.is_empty() && self.scene.is_made_wrong(Sabotage::SendNext) {
            let next = packet.header.seq.add(1);
            if let Some(next) = endpoint.socket.payload_mut(next) {
                packet.header.len = next.len as u16;
                packet.payload = *next;
            }
        }
        // Reset `resend`, because packets that differ only in `resend` are the same on the wire.
        packet.resend = false;
        self.scene.out.push(Packet {
            to: endpoint.peer(),
            from: self.host.id,
            packet,
        });
    }

    fn scheduled(&mut self, id: usize, verdict: Verdict) {
        let Device { queue, waiting, .. } = &mut self.host.device;
        match verdict {
            Verdict::Unchanged | Verdict::Turn => {}
            Verdict::Leaves(list) => {
                if self.scene.is_made_wrong(Sabotage::KeepInList) {
                    waiting[list.index()].push_back(id);
                }
            }
            Verdict::Joins(_) => {
                self.scene.see(if queue.waiting() > 1 {
                    Sights::WAITED | Sights::WAITED_TWO
                } else {
                    Sights::WAITED
                });
                let host = self.host.id;
                self.scene.log.note(self.scene.now, || {
                    format!(
                        "{}: the acknowledgement of connection {} waits, {} of {}",
                        host_name(host),
                        id + 1,
                        queue.waiting(),
                        queue.scheduled()
                    )
                });
                if self.scene.is_made_wrong(Sabotage::GrantAtOnce) {
                    self.socket(id).conn().take_turn();
                }
            }
        }
    }

    fn turned(&mut self, id: usize) {
        let host = self.host.id;
        self.scene.log.note(self.scene.now, || {
            format!("{}: the turn of connection {}", host_name(host), id + 1)
        });
    }

    fn arm(&mut self, id: usize) {
        if let Some(conn) = &mut self.socket(id).conn {
            // The counters influence nothing. Reset them, because they would make equal states
            // differ.
            conn.stats = esp::Stats::default();
        }
    }

    fn serve(&mut self, id: usize, now: Nanos) {
        if self.scene.is_made_wrong(Sabotage::NeverServe) {
            return;
        }
        let before = self.host.device.queue.overruns();
        give_turns(self, id, now);
        if self.host.device.queue.overruns() != before {
            self.scene.see(Sights::OVERRUN);
        }
    }
}

/// The part of a host that runs at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wake {
    /// The host's ACK queue.
    AckQueue,
    /// The engine of this endpoint.
    Engine(u8),
    /// The reader of this endpoint.
    Reader(u8),
}
