// SPDX-License-Identifier: GPL-2.0-only

//! This study measures loaded latency: the time from a short request (in the code, a question) to
//! its answer while streams occupy the port.

use std::ops::Range;

use anyhow::Result;
use clap::builder::TypedValueParser;
use clap::{value_parser, Args};
use esp::Nanos;
use serde::Serialize;

use super::{buffer, defaults, megabits, size, Common, Study};
use crate::report::{kib, part, Columns};
use crate::rounds::percentile;
use crate::simulation::{Counts, Parameters, Setup, Simulation};

/// If a stream has fewer bytes queued than this, its sender queues more.
const AHEAD: u64 = 512 << 10;
/// Number of bytes by which a stream refills its queue.
const PIECE: u64 = 256 << 10;

/// Length of the warm-up before the measurement: the port can send this many bits in it. During the
/// warm-up, only the streams and the announcers send.
const WARM_UP: u64 = 200_000_000;

/// A run that takes longer than this, in nanoseconds, is aborted.
const LONGEST: Nanos = 600_000_000_000;

/// Options of the study; the defaults are the switch of `make incast`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Numbers of streams
    // Each stream has a host of its own.
    #[arg(long, value_delimiter = ',', default_value = "0,1,4,16,32")]
    pub streams: Vec<usize>,
    /// Bytes of a request
    #[arg(long, value_delimiter = ',', default_value = "100,10000", value_parser = size)]
    pub sizes: Vec<u64>,
    /// Hosts that send requests
    // Each host sends its next request after the answer to the previous one.
    #[arg(long, default_value_t = 1)]
    pub askers: usize,
    /// Number of requests of each of these hosts
    #[arg(long, default_value_t = 300, value_parser = value_parser!(u32).range(1..))]
    pub questions: u32,
    /// Mean time from an answer to the next request, microseconds; 0: at once
    // Stored in nanoseconds.
    #[arg(long, default_value = "0", value_parser = value_parser!(u64).map(|pause| pause * 1_000))]
    pub pause: Nanos,
    /// Connections of one more host, each of which sends one message after the other
    #[arg(long, default_value_t = 0)]
    pub announcers: usize,
    /// Bytes of a message on these connections
    #[arg(long, default_value = "16K", value_parser = size)]
    pub message: u64,
    /// Rate of every link, Mbit/s
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
        ("streams", |line| line.streams.to_string()),
        ("question/B", |line| line.size.to_string()),
        ("alone/us", |line| micros(line.unloaded)),
        ("p50/us", |line| micros(line.median)),
        ("p99/us", |line| micros(line.slowest)),
        ("slowdown", |line| {
            format!("{:.1}", line.slowest as f64 / line.unloaded.max(1) as f64)
        }),
        ("streams'", |line| part(line.bulk)),
        ("least * n", |line| part(line.least)),
        ("announcers'", |line| part(line.announced)),
        ("of possible", |line| part(line.all)),
        ("wait/us", |line| micros(line.longest_wait)),
        ("turns", |line| line.most_turns.to_string()),
        ("peak/KiB", |line| kib(line.peak)),
        ("drops", |line| line.counts.drops.to_string()),
        ("resent", |line| line.counts.retransmissions.to_string()),
        ("overruns", |line| line.counts.overruns.to_string()),
        ("complete", |line| line.complete.to_string()),
    ];

    fn run(&self, common: &Common) -> Result<Vec<Line>> {
        let alone = Self {
            askers: 1,
            announcers: 0,
            ..self.clone()
        };
        let mut lines = Vec::new();
        for &size in &self.sizes {
            let unloaded = case(common, &alone, 0, size).median;
            for &streams in &self.streams {
                lines.push(Line {
                    unloaded,
                    ..case(common, self, streams, size)
                });
            }
        }
        Ok(lines)
    }
}

/// The results for one number of streams and one size of requests.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    setup: Setup,
    /// Number of streams.
    pub streams: usize,
    /// Number of bytes of a request.
    pub size: u64,
    /// Median time from a request to its answer, nanoseconds.
    pub median: Nanos,
    /// The 99th percentile of the time from a request to its answer, nanoseconds.
    pub slowest: Nanos,
    /// Median time from a request to its answer without other load, nanoseconds.
    pub unloaded: Nanos,
    /// Bytes that the streams delivered during the measurement, as a share of the port's rate.
    pub bulk: f64,
    /// The slowest stream's share of the port's rate, times the number of streams. It equals `bulk`
    /// if all streams are equally fast.
    pub least: f64,
    /// Bytes received from the announcers, as a share of the port's rate. Announcers are
    /// connections that send one message after the other, each of which begins with an
    /// announcement.
    pub announced: f64,
    /// Total of the bytes received, as a share of the largest possible total.
    pub all: f64,
    /// The longest time that a stream waited for its turn to send, nanoseconds.
    pub longest_wait: Nanos,
    /// The largest number of turns that other connections had while one stream waited for its turn
    /// to send.
    pub most_turns: u64,
    /// The largest number of bytes in the port at any time.
    pub peak: u32,
    /// Whether all requests were answered.
    pub complete: bool,
    /// The counters of the receiver and its port.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The role of a connection.
enum Role {
    Announcer,
    Stream,
    Asker(usize),
}

/// The state of an asker: a host that sends requests.
#[derive(Clone, Debug, Default)]
struct Asker {
    left: u32,
    asked: Nanos,
    /// The current request is complete when the receiver has this many bytes of the asker, counted
    /// from the start.
    until: u64,
}

/// A run for one number of streams and one size of requests.
struct Case<'a> {
    options: &'a Options,
    size: u64,
    simulation: Simulation,
    /// The connections of the streams. The announcers' connections have lower numbers, the askers'
    /// connections higher ones.
    streams: Range<usize>,
    /// Number of bytes that each announcer and each stream has queued.
    written: Vec<u64>,
    askers: Vec<Asker>,
    /// Number of askers that have requests left.
    asking: usize,
    /// The times from each request to its answer, nanoseconds.
    times: Vec<Nanos>,
}

/// Runs the study for one number of streams and one size of requests. Returns the results.
pub fn case(common: &Common, options: &Options, streams: usize, size: u64) -> Line {
    let mut case = Case::new(common, options, streams, size);
    let start = case.warm_up();
    let received = case.received();
    let counts = case.simulation.counts();
    for id in 0..options.askers {
        case.ask(id, start);
    }
    let deadline = start + LONGEST;
    loop {
        case.step();
        if case.asking == 0 || case.simulation.next().is_none_or(|at| at >= deadline) {
            break case.sum_up(start, &received, &counts);
        }
    }
}

impl<'a> Case<'a> {
    /// Starts the announcers and the streams.
    fn new(common: &Common, options: &'a Options, streams: usize, size: u64) -> Self {
        let streams = options.announcers..options.announcers + streams;
        let senders = streams.end + options.askers;
        let esp = Parameters::default();
        let mut setup = common.setup(senders, options.bits, options.buffer, esp);
        setup.together = options.announcers;
        let asker = Asker {
            left: options.questions,
            ..Asker::default()
        };
        let mut case = Self {
            options,
            size,
            simulation: Simulation::new(setup),
            written: vec![0; streams.end],
            streams,
            askers: vec![asker; options.askers],
            asking: options.askers,
            times: Vec::new(),
        };
        for sender in 0..case.streams.end {
            case.give(sender);
        }
        case
    }

    fn role(&self, sender: usize) -> Role {
        if sender < self.streams.start {
            Role::Announcer
        } else if sender < self.streams.end {
            Role::Stream
        } else {
            Role::Asker(sender - self.streams.end)
        }
    }

    /// Runs the announcers and the streams alone for a while. Returns the time at which the
    /// measurement begins.
    fn warm_up(&mut self) -> Nanos {
        let alone = self.streams.end == 0;
        let bits = if alone { 0 } else { WARM_UP };
        let start = self.simulation.now() + bits * 1_000_000_000 / self.options.bits;
        while self.simulation.next().is_some_and(|at| at < start) {
            self.step();
        }
        let _ = self.simulation.take_peaks();
        for sender in 0..self.simulation.setup().senders {
            let _ = self.simulation.take_longest_wait(sender);
        }
        start
    }

    /// Returns the bytes received so far, by connection.
    fn received(&self) -> Vec<u64> {
        let senders = 0..self.simulation.setup().senders;
        senders.map(|id| self.simulation.received(id)).collect()
    }

    /// Queues more data for an announcer or a stream.
    fn give(&mut self, sender: usize) {
        let bytes = match self.role(sender) {
            Role::Announcer => self.options.message,
            Role::Stream | Role::Asker(_) => PIECE,
        };
        self.written[sender] += bytes;
        let now = self.simulation.now();
        self.simulation.send_at(now, sender, bytes);
    }

    /// Schedules the next request of an asker, after a random time whose mean is the option
    /// `pause`.
    fn ask(&mut self, id: usize, now: Nanos) {
        let sender = self.streams.end + id;
        let later = -(1.0 - self.simulation.rng().f64()).ln() * self.options.pause as f64;
        let asker = &mut self.askers[id];
        asker.asked = now + later as Nanos;
        asker.until = self.simulation.received(sender) + self.size;
        self.simulation.send_at(asker.asked, sender, self.size);
    }

    /// Processes the next event.
    fn step(&mut self) {
        self.simulation.step();
        if let Some(sender) = self.simulation.take_answered() {
            self.answered(sender);
        }
        if let Some(sender) = self.simulation.take_delivery() {
            self.delivered(sender);
        }
    }

    /// Handles an answer that `sender` got from the receiver.
    fn answered(&mut self, sender: usize) {
        let Role::Asker(id) = self.role(sender) else {
            return;
        };
        let now = self.simulation.now();
        let asker = &mut self.askers[id];
        self.times.push(now - asker.asked);
        asker.left -= 1;
        if asker.left == 0 {
            self.asking -= 1;
        } else {
            self.ask(id, now);
        }
    }

    /// Handles data that the receiver got from `sender`.
    fn delivered(&mut self, sender: usize) {
        let received = self.simulation.received(sender);
        match self.role(sender) {
            Role::Announcer if received == self.written[sender] => self.give(sender),
            Role::Stream if received + AHEAD > self.written[sender] => self.give(sender),
            Role::Asker(id) if received == self.askers[id].until => {
                self.simulation.answer(sender, 1);
            }
            _ => {}
        }
    }

    /// Returns the results. `before` and `counts` are the received bytes and the counters at
    /// `start`, the time at which the measurement began.
    fn sum_up(mut self, start: Nanos, before: &[u64], counts: &Counts) -> Line {
        let setup = self.simulation.setup().clone();
        let possible = (self.simulation.now() - start).max(1) as f64 * setup.rate.bits as f64 / 8e9;
        let received = self.received();
        let share = |ids: Range<usize>| {
            let bytes: u64 = ids.map(|id| received[id] - before[id]).sum();
            bytes as f64 / possible
        };
        let streams = self.streams.clone();
        let least = streams.clone().map(|id| share(id..id + 1)).reduce(f64::min);
        let waits: Vec<_> = streams
            .clone()
            .map(|id| self.simulation.take_longest_wait(id))
            .collect();
        self.times.sort_unstable();
        Line {
            streams: streams.len(),
            size: self.size,
            median: percentile(&self.times, 50).unwrap_or(0),
            slowest: percentile(&self.times, 99).unwrap_or(0),
            unloaded: 0,
            least: least.unwrap_or(0.0) * streams.len() as f64,
            announced: share(0..streams.start),
            bulk: share(streams),
            all: share(0..received.len()) / setup.most_goodput(),
            longest_wait: waits.iter().map(|(wait, _)| *wait).max().unwrap_or(0),
            most_turns: waits.iter().map(|(_, turns)| *turns).max().unwrap_or(0),
            peak: self.simulation.take_peaks().0,
            complete: self.asking == 0,
            counts: self.simulation.counts().since(counts),
            setup,
        }
    }
}

/// Formats nanoseconds as microseconds.
fn micros(nanos: Nanos) -> String {
    (nanos / 1_000).to_string()
}
