// SPDX-License-Identifier: GPL-2.0-only

//! In this study, all hosts send to all others. The study shows whether a port drops packets if
//! many receivers give the same sender a turn at once. A turn is the permission to send.

use std::collections::VecDeque;

use anyhow::Result;
use clap::Args;
use esp::Nanos;
use serde::Serialize;

use super::{buffer, defaults, megabits, senders, size, Common, Study};
use crate::mesh::Mesh;
use crate::report::{kib, millis, part, Columns};
use crate::simulation::{Parameters, Setup};

/// A message longer than this, in bytes, is sent only after a request and its answer, as in MPI
/// libraries.
const EAGER: u64 = 64 << 10;
/// Number of bytes of the request that precedes a long message, and also of the request's answer.
const CONTROL: u64 = 100;
/// Number of bytes of each piece in which a message is sent.
const PIECE: u64 = 128 << 10;

/// Options of the study; the defaults are the switch of `make incast`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Numbers of hosts
    #[arg(long, value_delimiter = ',', default_value = "8", value_parser = senders)]
    pub hosts: Vec<usize>,
    /// Bytes from each host to each other host; without this option, 1 to 1M
    #[arg(
        long,
        value_delimiter = ',',
        default_values_t = (0..=20).map(|power| 1 << power),
        hide_default_value = true,
        value_parser = size
    )]
    pub sizes: Vec<u64>,
    /// Rate from every host to the switch, Mbit/s
    #[arg(long, default_value = "10000", value_parser = megabits())]
    pub wires: u64,
    /// Rate of every port, Mbit/s
    #[arg(long = "megabits", value_name = "MEGABITS", default_value = "200", value_parser = megabits())]
    pub bits: u64,
    /// Buffer of every port
    #[arg(long, default_value = "128K", value_parser = buffer)]
    pub buffer: u32,
}

impl Default for Options {
    fn default() -> Self {
        defaults()
    }
}

impl Study for Options {
    type Line = Line;

    const COLUMNS: Columns<Line> = &[
        ("hosts", |line| line.hosts.to_string()),
        ("bytes", |line| line.size.to_string()),
        ("at once", |line| line.at_once.to_string()),
        ("mean/ms", |line| millis(line.mean)),
        ("longest/ms", |line| millis(line.longest)),
        ("of possible", |line| part(line.goodput)),
        ("peak/KiB", |line| kib(line.peak)),
        ("drops", |line| line.drops.to_string()),
        ("resent", |line| line.retransmissions.to_string()),
        ("overruns", |line| line.overruns.to_string()),
    ];

    fn run(&self, common: &Common) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        for &hosts in &self.hosts {
            for &size in &self.sizes {
                for at_once in [false, true] {
                    let setup = common.setup(hosts, self.bits, self.buffer, Parameters::default());
                    lines.push(case(setup, self.wires, size, at_once, common));
                }
            }
        }
        Ok(lines)
    }
}

/// The results for one number of hosts and one message size.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    setup: Setup,
    /// Number of hosts.
    pub hosts: usize,
    /// Number of bytes of a message.
    pub size: u64,
    /// Whether a host sends to all others at once, rather than one after the other.
    pub at_once: bool,
    /// Mean time of a round, nanoseconds.
    pub mean: Nanos,
    /// Longest time of a round, nanoseconds.
    pub longest: Nanos,
    /// Goodput of each port, as a share of the largest possible goodput.
    pub goodput: f64,
    /// The largest number of bytes in any port at any time.
    pub peak: u32,
    /// Number of packets that the ports dropped.
    pub drops: u64,
    /// Number of retransmitted data packets.
    pub retransmissions: u64,
    /// How often an ACK queue ended a sender's turn (its permission to send) because the sender was
    /// silent.
    pub overruns: u64,
}

/// The kinds of messages that a stream carries.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Question,
    Answer,
    Data,
}

/// The program that runs on all hosts, and its state.
struct Exchange {
    mesh: Mesh,
    hosts: usize,
    size: u64,
    at_once: bool,
    /// Upper bound of the random delay before each piece of a message, in nanoseconds.
    stagger: Nanos,
    /// The messages in flight from each host to each other host: the position in the stream at
    /// which each message ends, and the message's kind.
    streams: Vec<VecDeque<(u64, Kind)>>,
    /// Number of bytes that were sent since the start, by stream.
    sent: Vec<u64>,
    /// Each host's progress: the number of messages it has received, and the number of its own
    /// messages that have arrived.
    steps: Vec<(usize, usize)>,
    /// Number of peers to which each host has begun to send.
    begun: Vec<usize>,
}

impl Exchange {
    fn new(setup: Setup, wires: u64, size: u64, at_once: bool, stagger: Nanos) -> Self {
        let hosts = setup.senders;
        Self {
            mesh: Mesh::new(setup, wires),
            stagger,
            hosts,
            size,
            at_once,
            streams: vec![VecDeque::new(); hosts * hosts],
            sent: vec![0; hosts * hosts],
            steps: Vec::new(),
            begun: Vec::new(),
        }
    }

    fn send(&mut self, from: usize, to: usize, bytes: u64, kind: Kind) {
        let stream = from * self.hosts + to;
        self.sent[stream] += bytes;
        self.streams[stream].push_back((self.sent[stream], kind));
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(PIECE);
            self.mesh.send(from, to, piece, self.stagger);
            left -= piece;
        }
    }

    /// Starts a host's messages: to all of its peers at once, or to one more peer after each
    /// finished exchange.
    fn begin(&mut self, host: usize) {
        let (received, arrived) = self.steps[host];
        let others = self.hosts - 1;
        let most = if self.at_once {
            others
        } else {
            received.min(arrived) + 1
        };
        while self.begun[host] < most.min(others) {
            self.begun[host] += 1;
            let to = (host + self.begun[host]) % self.hosts;
            if self.size > EAGER {
                self.send(host, to, CONTROL, Kind::Question);
            } else {
                self.send(host, to, self.size, Kind::Data);
            }
        }
    }

    /// Runs a round in which all hosts send to all others; returns how long it takes.
    fn round(&mut self) -> Nanos {
        let start = self.mesh.fabric.now();
        self.steps = vec![(0, 0); self.hosts];
        self.begun = vec![0; self.hosts];
        for host in 0..self.hosts {
            self.begin(host);
        }
        let done = (self.hosts - 1, self.hosts - 1);
        while self.steps.iter().any(|step| *step != done) {
            if let Some((from, to)) = self.mesh.step() {
                self.delivered(from, to);
            }
        }
        self.mesh.fabric.now() - start
    }

    fn delivered(&mut self, from: usize, to: usize) {
        let received = self.mesh.received(from, to);
        let stream = from * self.hosts + to;
        while let Some(&(until, kind)) = self.streams[stream].front() {
            if until > received {
                break;
            }
            self.streams[stream].pop_front();
            match kind {
                Kind::Question => self.send(to, from, CONTROL, Kind::Answer),
                Kind::Answer => self.send(to, from, self.size, Kind::Data),
                Kind::Data => {
                    self.steps[to].0 += 1;
                    self.steps[from].1 += 1;
                    self.begin(to);
                    self.begin(from);
                }
            }
        }
    }
}

/// Runs the study for one setup, one message size and one way of sending (`at_once`). Returns the
/// results.
fn case(setup: Setup, wires: u64, size: u64, at_once: bool, common: &Common) -> Line {
    let rounds = common.rounds;
    let mut exchange = Exchange::new(setup.clone(), wires, size, at_once, common.stagger);
    let times: Vec<Nanos> = (0..rounds).map(|_| exchange.round()).collect();
    let mean = times.iter().sum::<Nanos>() / Nanos::from(rounds);
    let bytes = size as f64 * (setup.senders - 1) as f64;
    let mesh = &exchange.mesh;
    Line {
        hosts: setup.senders,
        size,
        at_once,
        mean,
        longest: times.iter().copied().max().unwrap_or(0),
        goodput: bytes * 8e9 / (mean as f64 * setup.rate.bits as f64) / setup.most_goodput(),
        peak: mesh
            .fabric
            .ports
            .iter()
            .map(|port| port.peak)
            .max()
            .unwrap_or(0),
        drops: mesh.fabric.ports.iter().map(|port| port.drops).sum(),
        retransmissions: mesh.retransmissions(),
        overruns: mesh.overruns(),
        setup,
    }
}
