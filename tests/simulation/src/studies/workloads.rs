// SPDX-License-Identifier: GPL-2.0-only

//! This study sends messages of published sizes at random times, and measures their slowdown
//! relative to an idle network.
//!
//! The published workloads consist of independent messages, but a stream delivers in order. So a
//! short message waits behind a long one of the same stream. A program whose messages do not depend
//! on each other keeps a pool of streams to each receiver, as RPC libraries do. Option `--pool`
//! sets the number of streams of each sender. All streams are open before the first message, so no
//! message pays for a handshake. A message takes the first idle stream of the pool. If none is
//! idle, the message takes the stream with the fewest bytes in front of it.

use std::collections::VecDeque;
use std::ops::Range;

use anyhow::Result;
use clap::builder::TypedValueParser;
use clap::{value_parser, Args};
use esp::Nanos;
use serde::Serialize;

use super::{buffer, defaults, megabits, senders, size, Common, Study};
use crate::network::frame_bytes;
use crate::report::{kib, part, rate, Columns};
use crate::rounds::percentile;
use crate::simulation::{Counts, Parameters, Setup, Simulation};
use crate::sizes::Sizes;

/// Maximum bytes in flight of a connection; further messages wait in the application. With the
/// default MTU, these bytes are some 22,500 packets. The sequence numbers allow about 32,000.
const MOST_AHEAD: u64 = 32 << 20;

/// Options of the study.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Distributions of sizes
    #[arg(long, value_delimiter = ',', default_value = "w1,w2,w3,w4,w5")]
    pub sizes: Vec<Sizes>,
    /// Numbers of senders
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000", value_parser = senders)]
    pub senders: Vec<usize>,
    /// Streams of each sender: a message takes an idle one
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u16).range(1..=64))]
    pub pool: u16,
    /// Load of all senders together, percent of what the receiver's port can carry
    // Includes headers. Stored as a share of one.
    #[arg(long, default_value = "80", value_parser = percent())]
    pub load: f64,
    /// Bytes in all
    // At least a thousand messages are sent.
    #[arg(long, default_value = "256M", value_parser = size)]
    pub bytes: u64,
    /// Rate of every link, Mbit/s
    #[arg(long = "megabits", value_name = "MEGABITS", default_value = "10000", value_parser = megabits())]
    pub bits: u64,
    /// Buffer of every port
    #[arg(long, default_value = "2M", value_parser = buffer)]
    pub buffer: u32,
}

fn percent() -> impl TypedValueParser<Value = f64> {
    value_parser!(u8)
        .range(1..=99)
        .map(|percent| f64::from(percent) / 100.0)
}

impl Default for Options {
    fn default() -> Self {
        defaults()
    }
}

impl Study for Options {
    type Line = Line;

    const COLUMNS: Columns<Line> = &[
        ("sizes", |line| format!("{:?}", line.sizes)),
        ("link", |line| rate(line.setup.rate.bits)),
        ("senders", |line| line.senders.to_string()),
        ("streams each", |line| line.setup.pool.to_string()),
        ("messages", |line| line.messages.to_string()),
        ("load", |line| part(line.load)),
        ("slowdown p50", |line| times(line.all.median)),
        ("p99", |line| times(line.all.slowest)),
        ("shorter half p50", |line| times(line.short.median)),
        ("p99", |line| times(line.short.slowest)),
        ("longest tenth p50", |line| times(line.long.median)),
        ("p99", |line| times(line.long.slowest)),
        ("peak/KiB", |line| kib(line.peak)),
        ("drops", |line| line.counts.drops.to_string()),
        ("resent", |line| line.counts.retransmissions.to_string()),
    ];

    fn run(&self, common: &Common) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        for &sizes in &self.sizes {
            for &senders in &self.senders {
                lines.push(case(common, self, sizes, senders));
            }
        }
        Ok(lines)
    }
}

fn times(value: f64) -> String {
    format!("{value:.1}")
}

/// A message of the workload.
#[derive(Clone, Copy, Debug)]
struct Message {
    /// The sending host.
    sender: usize,
    size: u64,
    /// The time at which the application sent the message.
    at: Nanos,
    /// Position in the stream at which the message ends.
    until: u64,
}

/// The slowdown of messages: the time that they take, divided by the time on an idle network.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Slowdown {
    /// The median slowdown.
    pub median: f64,
    /// The 99th percentile of the slowdown.
    pub slowest: f64,
}

/// The results for one distribution of message sizes and one number of senders.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    setup: Setup,
    /// The distribution of message sizes.
    pub sizes: Sizes,
    /// Number of senders.
    pub senders: usize,
    /// Number of messages.
    pub messages: usize,
    /// The port's load from the first to the last message, as a share of its capacity. It counts
    /// messages that arrived in full in this time, with their headers.
    pub load: f64,
    /// The slowdown of all messages.
    pub all: Slowdown,
    /// The slowdown of the shorter half of the messages.
    pub short: Slowdown,
    /// The slowdown of the longest tenth of the messages.
    pub long: Slowdown,
    /// The largest number of bytes in the receiver's port at any time.
    pub peak: u32,
    /// The counters of the receiver and its port.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Returns two times in nanoseconds: how long all packets of a message take on a link, and how long
/// the last packet takes.
fn on_link(setup: &Setup, size: u64) -> (f64, f64) {
    let mss = u64::from(setup.mss());
    let time = |payload: u64| {
        let frame = frame_bytes(payload as u16) + setup.rate.framing;
        f64::from(frame) * 8e9 / setup.rate.bits as f64
    };
    let full = (size - 1) / mss;
    let last = time(size - full * mss);
    (full as f64 * time(mss) + last, last)
}

/// Returns how long a message takes on an idle network, in nanoseconds. Its packets follow each
/// other on the sender's wire, and the port stores and forwards the last packet.
fn alone(setup: &Setup, size: u64) -> f64 {
    let (whole, last) = on_link(setup, size);
    let latency = setup.processing + 2 * setup.propagation;
    whole + last + latency as f64
}

/// One of a sender's connections.
#[derive(Clone, Debug, Default)]
struct Connection {
    /// The number of the connection in the simulation.
    number: usize,
    /// Messages that wait in the application.
    waiting: VecDeque<Message>,
    /// Messages that the application has sent and the receiver does not yet have in full.
    under_way: VecDeque<Message>,
    /// Number of bytes that were sent since the start.
    written: u64,
}

impl Connection {
    fn new(number: usize) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    /// Returns the number of bytes that have not arrived, in messages that were sent or wait.
    fn ahead(&self, simulation: &Simulation) -> u64 {
        let waiting: u64 = self.waiting.iter().map(|message| message.size).sum();
        waiting + self.written - simulation.received(self.number)
    }

    /// Sends waiting messages for as long as the connection accepts them.
    fn send(&mut self, simulation: &mut Simulation, now: Nanos) {
        while let Some(mut message) = self.waiting.front().copied() {
            let ahead = self.written - simulation.received(self.number);
            if ahead > 0 && ahead + message.size > MOST_AHEAD {
                break;
            }
            self.waiting.pop_front();
            simulation.send_at(now, self.number, message.size);
            self.written += message.size;
            message.until = self.written;
            self.under_way.push_back(message);
        }
    }
}

/// Runs the study for one distribution of message sizes and one number of senders. Returns the
/// results.
fn case(common: &Common, options: &Options, sizes: Sizes, senders: usize) -> Line {
    let pool = usize::from(options.pool);
    let one = common.setup(senders, options.bits, options.buffer, Parameters::default());
    let mut simulation = Simulation::new(one.clone());
    let mut messages = messages(&mut simulation, options, sizes);
    let setup = Setup {
        senders: senders * pool,
        pool,
        ..one
    };
    if pool > 1 {
        // The same messages, at the same times after the handshakes.
        let start = simulation.now();
        simulation = Simulation::new(setup.clone());
        let later = simulation.now() - start;
        messages.iter_mut().for_each(|message| message.at += later);
    }
    let number = messages.len();
    let (mut taken, load) = deliver(&mut simulation, messages);
    taken.sort_unstable_by_key(|(size, _)| *size);
    let slowdown = |range: Range<usize>| {
        let mut times: Vec<f64> = taken[range].iter().map(|(_, slowdown)| *slowdown).collect();
        times.sort_by(f64::total_cmp);
        Slowdown {
            median: percentile(&times, 50).unwrap_or(0.0),
            slowest: percentile(&times, 99).unwrap_or(0.0),
        }
    };
    Line {
        sizes,
        senders,
        messages: number,
        load,
        all: slowdown(0..number),
        short: slowdown(0..number / 2),
        long: slowdown(number - number / 10..number),
        peak: simulation.take_peaks().0,
        counts: simulation.counts(),
        setup,
    }
}

/// Returns messages of random senders at random times from now on, ordered by time.
fn messages(simulation: &mut Simulation, options: &Options, sizes: Sizes) -> VecDeque<Message> {
    let setup = simulation.setup().clone();
    let mean = sizes.mean(|size| size as f64);
    let number = ((options.bytes as f64 / mean) as usize).max(1_000);
    let apart = sizes.mean(|size| on_link(&setup, size).0) / options.load;
    let mut at = simulation.now() as f64;
    let rng = simulation.rng();
    let message = |_| {
        at -= (1.0 - rng.f64()).ln() * apart;
        let part = rng.f64();
        Message {
            sender: rng.usize(..setup.senders),
            size: sizes.at(part).max(1),
            at: at as Nanos,
            until: 0,
        }
    };
    (0..number).map(message).collect()
}

/// Sends all messages. Returns the size and the slowdown of each message, and [`Line::load`].
fn deliver(simulation: &mut Simulation, mut to_come: VecDeque<Message>) -> (Vec<(u64, f64)>, f64) {
    let setup = simulation.setup().clone();
    let messages = to_come.len();
    let start = simulation.now();
    let end = to_come.back().map_or(start, |last| last.at);
    let mut connections: Vec<_> = (0..setup.senders).map(Connection::new).collect();
    let mut taken = Vec::with_capacity(messages);
    let mut load = None;
    while taken.len() < messages {
        while let Some(&message) = to_come.front() {
            if simulation.next().is_some_and(|next| message.at > next) {
                break;
            }
            to_come.pop_front();
            let pool = &mut connections[message.sender * setup.pool..][..setup.pool];
            let connection = pool
                .iter_mut()
                .min_by_key(|connection| connection.ahead(simulation))
                .expect("each sender has a connection");
            connection.waiting.push_back(message);
            connection.send(simulation, message.at);
        }
        assert!(simulation.step(), "messages are under way");
        let now = simulation.now();
        let Some(number) = simulation.take_delivery() else {
            continue;
        };
        let connection = &mut connections[number];
        let received = simulation.received(number);
        while let Some(message) = connection.under_way.front() {
            if message.until > received {
                break;
            }
            let time = (now - message.at) as f64;
            taken.push((message.size, time / alone(&setup, message.size)));
            connection.under_way.pop_front();
        }
        connection.send(simulation, now);
        if now >= end && load.is_none() {
            let times = taken.iter().map(|(size, _)| on_link(&setup, *size).0);
            load = Some(times.sum::<f64>() / (now - start) as f64);
        }
    }
    (taken, load.unwrap_or(0.0))
}
