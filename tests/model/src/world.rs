// SPDX-License-Identifier: GPL-2.0-only

//! The hosts, and the switch between them.
//!
//! Everything is deterministic except the fate of each packet that a host sends. A world therefore
//! runs until a host sends a packet, and then stops until the packet's fate is decided.

use std::collections::VecDeque;
use std::panic::{catch_unwind, AssertUnwindSafe};

use esp::Nanos;

use crate::case::{Case, MS, US};
use crate::fault::Fault;
use crate::host::{Host, Wake};
use crate::scene::{describe, host_name, Log, Packet, Scene, Sights, EPOCH};

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The packet arrives.
    Pass,
    /// The packet is lost.
    Lose,
    /// The packet arrives twice. The copy arrives right behind the packet.
    Double,
    /// The packet arrives. A copy arrives long after the transmission that the packet belongs to.
    Echo,
    /// The packet arrives after packets that were sent later.
    Overtaken,
    /// The packet's sender dies, and the packet is lost. The dead host neither sends nor receives
    /// any more.
    Die,
}

/// The faults that may still happen in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Number of packets that may be lost.
    pub losses: u8,
    /// Number of packets that may arrive twice.
    pub duplicates: u8,
    /// Number of packets that later packets may overtake.
    pub reorders: u8,
    /// Whether sender 1 may die.
    pub death: bool,
}

impl Budget {
    /// No faults.
    pub const NONE: Self = Self {
        losses: 0,
        duplicates: 0,
        reorders: 0,
        death: false,
    };

    fn spend(&mut self, fate: Fate) {
        match fate {
            Fate::Pass => {}
            Fate::Lose => self.losses = self.losses.saturating_sub(1),
            Fate::Double | Fate::Echo => self.duplicates = self.duplicates.saturating_sub(1),
            Fate::Overtaken => self.reorders = self.reorders.saturating_sub(1),
            Fate::Die => self.death = false,
        }
    }
}

/// Time that a packet takes in a host's port, in nanoseconds.
const SPACING: Nanos = US;

/// Delay of the copy in [`Fate::Echo`], in nanoseconds. After this time, everything is recovered,
/// and the next transmission may be in progress.
const ECHO: Nanos = 15 * MS;

/// Delay of an overtaken packet before it enters the port, in nanoseconds. During this time, three
/// packets can overtake it, or a timer can expire.
const DELAY: Nanos = 7 * SPACING / 2;

/// The host that dies, if a host dies.
const MORTAL: u8 = 1;

/// The time after which a connection to a dead peer has failed, in nanoseconds.
const GONE: Nanos = 60_000 * MS;

/// If the next event is more than this many nanoseconds ahead, it is the keepalive of an idle peer.
const QUIET: Nanos = 20_000 * MS;

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The index of the case in its family.
    pub case: u16,
    /// The faults that may still happen.
    pub budget: Budget,
    /// The fault that the run has shown, if any.
    pub fault: Option<Fault>,
    /// Whether the run has reached its end.
    pub finished: bool,
    now: Nanos,
    began: Nanos,
    awake: bool,
    /// Whether the fate of every packet so far was [`Fate::Pass`].
    calm: bool,
    /// Whether the fate of any packet so far was [`Fate::Echo`].
    echoed: bool,
    hosts: Vec<Host>,
    /// Packets on their way to each host, with their arrival times.
    ports: Vec<VecDeque<(Nanos, Packet)>>,
    /// The sent packets whose fate is not decided yet.
    sent: VecDeque<Packet>,
    /// The packets that enter a port later, each with the time at which it enters, in order.
    late: VecDeque<(Nanos, Packet)>,
    /// The dead host, if one has died.
    dead: Option<u8>,
    /// The time at which all hosts but the dead one had done everything.
    survived: Option<Nanos>,
    /// Whether the parameters are still to change.
    to_change: bool,
}

/// The next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// The parameters change.
    Change,
    /// The first packet of `late` enters a port.
    Late,
    /// A packet arrives at a host.
    Arrival(usize),
    /// A host's timer expires.
    Timer(usize, Wake),
}

impl World {
    /// Returns the first state of a case.
    pub fn new(index: u16, case: &Case, budget: Budget, log: &mut Log) -> Self {
        let senders = case.programs.len() as u8;
        let mut hosts = vec![Host::new(0, senders, case)];
        hosts.extend((1..=senders).map(|id| Host::new(id, 1, case)));
        let ports = hosts.iter().map(|_| VecDeque::new()).collect();
        let mut world = Self {
            case: index,
            budget,
            fault: None,
            finished: false,
            now: EPOCH,
            began: EPOCH,
            awake: !case.open,
            calm: true,
            echoed: false,
            hosts,
            ports,
            sent: VecDeque::new(),
            late: VecDeque::new(),
            dead: None,
            survived: None,
            to_change: case.later.is_some(),
        };
        world.act(case, log, |world, scene| {
            for host in &mut world.hosts[1..] {
                host.connect(0, scene);
            }
            if case.crossed {
                for i in 0..senders {
                    world.hosts[0].connect(i, scene);
                }
            }
        });
        if case.open {
            world.open(case, log);
        }
        world
    }

    /// Opens all connections without faults, then starts the programs.
    fn open(&mut self, case: &Case, log: &mut Log) {
        let mut left = 1_000;
        while !self.is_open() || self.in_flight() || !self.sent.is_empty() {
            while !self.sent.is_empty() {
                self.decide(case, Fate::Pass, &mut Log::default());
            }
            self.event(case, &mut Log::default());
            left -= 1;
            assert!(
                left > 0 && self.fault.is_none(),
                "a handshake with no fault fails: {self:?}"
            );
        }
        self.began = self.now;
        self.awake = true;
        self.act(case, log, |world, scene| {
            for host in &mut world.hosts {
                for i in 0..host.endpoints.len() as u8 {
                    host.run(i, scene);
                }
            }
        });
    }

    fn is_open(&self) -> bool {
        let mut endpoints = self.hosts.iter().flat_map(|host| &host.endpoints);
        endpoints.all(|endpoint| endpoint.socket.established)
    }

    fn in_flight(&self) -> bool {
        !self.late.is_empty() || self.ports.iter().any(|port| !port.is_empty())
    }

    /// Returns the duration of the run in nanoseconds. If a host died, this is the time until the
    /// other hosts had done everything.
    pub fn elapsed(&self) -> Nanos {
        self.survived.unwrap_or(self.now) - self.began
    }

    /// Returns whether the run is over, with or without a fault.
    pub fn is_over(&self) -> bool {
        self.finished || self.fault.is_some()
    }

    /// Returns the possible fates of the first packet in `sent`.
    pub fn fates(&self) -> impl Iterator<Item = Fate> {
        let budget = self.budget;
        let mortal = self
            .sent
            .front()
            .is_some_and(|packet| packet.from == MORTAL);
        let possible = [
            (Fate::Pass, true),
            (Fate::Lose, budget.losses > 0),
            (Fate::Double, budget.duplicates > 0),
            (Fate::Echo, budget.duplicates > 0),
            (Fate::Overtaken, budget.reorders > 0),
            (Fate::Die, budget.death && mortal),
        ];
        possible
            .into_iter()
            .filter(|(_, may)| *may)
            .map(|(fate, _)| fate)
    }

    /// Decides the fate of the first packet in `sent`. Then continues until the fate of the next
    /// packet has to be decided, or to the end if no event is left.
    pub fn step(&mut self, case: &Case, fate: Fate, log: &mut Log) -> Sights {
        self.budget.spend(fate);
        self.calm &= fate == Fate::Pass;
        self.decide(case, fate, log);
        let mut sights = Sights::NONE;
        while !self.is_over() {
            while self.budget == Budget::NONE && !self.sent.is_empty() {
                self.decide(case, Fate::Pass, log);
            }
            if !self.sent.is_empty() {
                break;
            }
            sights = sights | self.event(case, log);
        }
        sights
    }

    fn decide(&mut self, case: &Case, fate: Fate, log: &mut Log) {
        let Some(packet) = self.sent.pop_front() else {
            return;
        };
        log.note(self.now, || {
            let fate = match fate {
                Fate::Pass => "",
                Fate::Lose => "   *** LOST",
                Fate::Double => "   *** TWICE",
                Fate::Echo => "   *** AGAIN, LATER",
                Fate::Overtaken => "   *** OVERTAKEN",
                Fate::Die => "   *** THE SENDER DIES",
            };
            format!(
                "{} -> {}: {}{fate}",
                host_name(packet.from),
                host_name(packet.to),
                describe(&packet.packet.header)
            )
        });
        match fate {
            Fate::Pass => self.forward(case, packet),
            Fate::Lose => {}
            Fate::Double => {
                self.forward(case, packet);
                self.forward(case, packet);
            }
            Fate::Echo => {
                self.echoed = true;
                self.forward(case, packet);
                self.put_late(self.now + ECHO, packet);
            }
            Fate::Overtaken => self.put_late(self.now + DELAY, packet),
            Fate::Die => {
                self.dead = Some(packet.from);
                self.ports[usize::from(packet.from)].clear();
                self.late.retain(|(_, late)| late.to != packet.from);
                self.drop_dead();
            }
        }
    }

    /// Schedules a packet to enter its port later.
    fn put_late(&mut self, at: Nanos, packet: Packet) {
        let place = self.late.partition_point(|(other, _)| *other <= at);
        self.late.insert(place, (at, packet));
    }

    /// Passes a packet through the switch.
    fn forward(&mut self, case: &Case, packet: Packet) {
        let port = &mut self.ports[usize::from(packet.to)];
        let free = port.back().map_or(0, |(at, _)| at + SPACING);
        port.push_back((free.max(self.now + case.latency), packet));
    }

    /// Drops packets to and from a dead host.
    fn drop_dead(&mut self) {
        if let Some(dead) = self.dead {
            self.sent
                .retain(|packet| packet.from != dead && packet.to != dead);
        }
    }

    /// Returns the next event and its time. If an arrival and a timer are due at the same time, the
    /// arrival comes first.
    fn next(&self, case: &Case) -> Option<(Nanos, Next)> {
        let late = self.late.front().map(|(at, _)| (*at, Next::Late));
        let ports = self.ports.iter().enumerate();
        let arrivals = ports.filter_map(|(to, port)| Some((port.front()?.0, Next::Arrival(to))));
        let hosts = self.hosts.iter().enumerate();
        let timers = hosts
            .filter(|(id, _)| self.dead.map(usize::from) != Some(*id))
            .filter_map(|(id, host)| {
                host.next_deadline(case)
                    .map(|(at, wake)| (at, Next::Timer(id, wake)))
            });
        let change = case.later.filter(|_| self.to_change && self.awake);
        let change = change.map(|(after, _)| (self.began + after, Next::Change));
        late.into_iter()
            .chain(change)
            .chain(arrivals)
            .chain(timers)
            .min()
    }

    /// Processes the next event.
    fn event(&mut self, case: &Case, log: &mut Log) -> Sights {
        let next = self.next(case);
        let quiet = next.is_none_or(|(at, _)| at > self.now + QUIET);
        if self.is_done(case) && (self.dead.is_some() || (quiet && !self.in_flight())) {
            self.finished = true;
            return Sights::NONE;
        }
        let Some((at, next)) = next else {
            self.fault = Some(Fault::Deadlock);
            return Sights::NONE;
        };
        self.now = self.now.max(at);
        let bound = if self.survived.is_some() {
            GONE
        } else {
            case.bound
        };
        if self.now - self.began > bound {
            self.fault = Some(Fault::Overtime(bound));
            return Sights::NONE;
        }
        self.act(case, log, |world, scene| match next {
            Next::Change => {
                scene.log.note(scene.now, || "the parameters change".into());
                world.to_change = false;
                for host in &mut world.hosts {
                    host.change_config(scene);
                }
            }
            Next::Late => {
                if let Some((_, packet)) = world.late.pop_front() {
                    world.forward(case, packet);
                }
            }
            Next::Arrival(to) => {
                if let Some((_, packet)) = world.ports[to].pop_front() {
                    world.hosts[to].on_packet(&packet, scene);
                }
            }
            Next::Timer(id, wake) => {
                scene.log.note(scene.now, || {
                    format!("{}: a timer, {wake:?}", host_name(id as u8))
                });
                world.hosts[id].on_deadline(wake, scene);
            }
        })
    }

    /// Runs an action that may send, break a property, or panic.
    fn act(
        &mut self,
        case: &Case,
        log: &mut Log,
        what: impl FnOnce(&mut Self, &mut Scene<'_>),
    ) -> Sights {
        let mut scene = Scene {
            now: self.now,
            awake: self.awake,
            calm: self.calm && case.is_smooth(),
            echoed: self.echoed,
            dead: self.dead,
            case,
            out: Vec::new(),
            fault: None,
            sights: Sights::NONE,
            log,
        };
        let done = catch_unwind(AssertUnwindSafe(|| what(self, &mut scene)));
        if let Err(panic) = done {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            scene.fail(Fault::Panic(format!("panic: {}", text.unwrap_or_default())));
        }
        self.sent.extend(scene.out.drain(..));
        self.drop_dead();
        if scene.fault.is_some() {
            self.fault = scene.fault;
        }
        scene.sights
    }

    /// Returns whether all endpoints of living hosts are done and, if a host died, the receiver's
    /// connection to it is closed.
    fn is_done(&mut self, case: &Case) -> bool {
        if !self.awake {
            return false;
        }
        let hosts = self
            .hosts
            .iter()
            .zip(0u8..)
            .filter(|(_, id)| self.dead != Some(*id));
        let mut endpoints = hosts.flat_map(|(host, id)| {
            host.endpoints
                .iter()
                .zip(0u8..)
                .map(move |(e, i)| (e, id, i))
        });
        let done = endpoints.all(|(endpoint, id, i)| {
            self.dead == Some(endpoint.peer())
                || endpoint.is_done(case.program(id, i), case.peer(id, i))
        });
        let Some(dead) = self.dead else {
            return done && self.hosts.iter().all(Host::is_idle);
        };
        if done && self.survived.is_none() {
            self.survived = Some(self.now);
        }
        let bereaved = &self.hosts[0].endpoints[usize::from(dead) - 1];
        done && bereaved.socket.state() == esp::State::Closed
    }
}
