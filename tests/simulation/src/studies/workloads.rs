//! Messages of published sizes at random times: how much longer they take than on an idle network.

use std::collections::VecDeque;

use anyhow::Result;
use clap::builder::TypedValueParser;
use clap::{value_parser, Args, ValueEnum};
use esp::Nanos;
use serde::Serialize;

use super::{buffer, megabits, senders, size, Common, Study};
use crate::network::frame_bytes;
use crate::report::{kib, part, rate, Columns};
use crate::rounds::percentile;
use crate::simulation::{Counts, Parameters, Setup, Simulation};

/// A connection has at most so much on its way, bytes: further messages wait in the application. Sequence numbers allow 32,000
/// packets.
const MOST_AHEAD: u64 = 32 << 20;

/// Distributions of message sizes, by which Homa was measured (Montazeri et al., SIGCOMM 2018, figure 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Sizes {
    /// Memcached servers
    W1,
    /// A search application
    W2,
    /// All applications of a data centre
    W3,
    /// A Hadoop cluster
    W4,
    /// Web search, as DCTCP was measured by
    W5,
}

impl Sizes {
    /// Some points: the part of the messages that have at most so many bytes. Between them the logarithm of the size grows
    /// evenly.
    fn points(self) -> &'static [(f64, u64)] {
        match self {
            Self::W1 => &[
                (0.311, 8),
                (0.418, 11),
                (0.472, 16),
                (0.513, 33),
                (0.548, 50),
                (0.602, 79),
                (0.649, 110),
                (0.702, 151),
                (0.749, 197),
                (0.801, 264),
                (0.850, 354),
                (0.901, 503),
                (0.950, 804),
                (0.990, 1_876),
                (0.999, 4_924),
                (0.9999, 12_188),
                (0.99999, 26_835),
                (1.0, 100_000),
            ],
            Self::W2 => &[
                (0.170, 8),
                (0.244, 40),
                (0.326, 64),
                (0.342, 128),
                (0.464, 256),
                (0.598, 301),
                (0.687, 341),
                (0.821, 427),
                (0.910, 512),
                (0.958, 1_024),
                (0.972, 1_463),
                (0.99935, 65_536),
                (0.99987, 131_072),
                (0.999975, 262_144),
                (1.0, 3_529_904),
            ],
            Self::W3 => &[
                (0.065, 8),
                (0.097, 32),
                (0.155, 64),
                (0.352, 128),
                (0.498, 256),
                (0.785, 512),
                (0.863, 1_024),
                (0.909, 2_048),
                (0.935, 4_096),
                (0.964, 8_192),
                (0.985, 16_384),
                (0.9904, 32_768),
                (0.9933, 65_536),
                (0.9971, 131_072),
                (0.9985, 262_144),
                (0.9995, 524_288),
                (0.99988, 1_996_529),
                (1.0, 15_158_197),
            ],
            Self::W4 => &[
                (0.015, 217),
                (0.041, 271),
                (0.138, 326),
                (0.203, 376),
                (0.264, 480),
                (0.459, 600),
                (0.517, 679),
                (0.576, 800),
                (0.610, 1_042),
                (0.667, 1_664),
                (0.693, 5_210),
                (0.708, 7_830),
                (0.721, 31_946),
                (0.740, 39_973),
                (0.816, 51_046),
                (0.872, 81_565),
                (0.907, 133_013),
                (0.954, 288_520),
                (0.972, 940_700),
                (0.987, 2_169_118),
                (1.0, 10_000_000),
            ],
            Self::W5 => &[
                (0.025, 1_430),
                (0.150, 8_580),
                (0.200, 19_110),
                (0.300, 27_930),
                (0.400, 48_510),
                (0.530, 77_910),
                (0.600, 195_510),
                (0.700, 980_490),
                (0.800, 1_959_510),
                (0.900, 4_899_510),
                (0.9025, 10_291_470),
                (1.0, 29_400_000),
            ],
        }
    }

    /// The size that this part of the messages does not exceed, bytes.
    fn at(self, part: f64) -> u64 {
        let mut before = (0.0, 1);
        for &(upto, size) in self.points() {
            if part <= upto {
                let along = (part - before.0) / (upto - before.0);
                let (low, high) = ((before.1 as f64).ln(), (size as f64).ln());
                return (low + along * (high - low)).exp().round() as u64;
            }
            before = (upto, size);
        }
        before.1
    }

    /// The mean of something over all messages.
    fn mean(self, of: impl Fn(u64) -> f64) -> f64 {
        const STEPS: u32 = 100_000;
        let parts = (0..STEPS).map(|step| (f64::from(step) + 0.5) / f64::from(STEPS));
        parts.map(|part| of(self.at(part).max(1))).sum::<f64>() / f64::from(STEPS)
    }
}

/// What is sent.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Distributions of sizes
    #[arg(long, value_delimiter = ',', default_value = "w1,w2,w3,w4,w5")]
    sizes: Vec<Sizes>,
    /// Numbers of senders
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000", value_parser = senders)]
    senders: Vec<usize>,
    /// What all of them send, percent of what the receiver's port can carry
    // With headers; here a part of one.
    #[arg(long, default_value = "80", value_parser = percent())]
    load: f64,
    /// Bytes in all
    // And a thousand messages at least.
    #[arg(long, default_value = "256M", value_parser = size)]
    bytes: u64,
    /// Rate of every link, Mbit/s
    #[arg(long = "megabits", value_name = "MEGABITS", default_value = "10000", value_parser = megabits())]
    bits: u64,
    /// Buffer of every port
    #[arg(long, default_value = "2M", value_parser = buffer)]
    buffer: u32,
}

fn percent() -> impl TypedValueParser<Value = f64> {
    value_parser!(u8)
        .range(1..=99)
        .map(|percent| f64::from(percent) / 100.0)
}

impl Study for Options {
    type Line = Line;

    const COLUMNS: Columns<Line> = &[
        ("sizes", |line| format!("{:?}", line.sizes)),
        ("link", |line| rate(line.setup.rate.bits)),
        ("senders", |line| line.senders.to_string()),
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

/// A message.
#[derive(Clone, Copy, Debug)]
struct Message {
    sender: usize,
    size: u64,
    /// When the application sent it.
    at: Nanos,
    /// What the connection will have delivered with it.
    until: u64,
}

/// How many times as long as on an idle network some messages took: the median and the 99th percentile.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Slowdown {
    /// The median.
    pub median: f64,
    /// The 99th percentile.
    pub slowest: f64,
}

/// One distribution with one number of senders.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    setup: Setup,
    /// The distribution.
    pub sizes: Sizes,
    /// Senders.
    pub senders: usize,
    /// Messages.
    pub messages: usize,
    /// What had arrived when the last message was sent, part of what the port could carry, with headers.
    pub load: f64,
    /// All messages.
    pub all: Slowdown,
    /// The shorter half.
    pub short: Slowdown,
    /// The longest tenth.
    pub long: Slowdown,
    /// The most bytes in the receiver's port.
    pub peak: u32,
    /// What was counted.
    #[serde(flatten)]
    pub counts: Counts,
}

/// What a message's packets take on a link, and the last of them alone, nanoseconds.
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

/// How long a message takes on an idle network: packets follow each other on the sender's wire, and the last one is
/// stored once more in the port. Nanoseconds.
fn alone(setup: &Setup, size: u64) -> f64 {
    let (whole, last) = on_link(setup, size);
    let latency = setup.processing + 2 * setup.propagation;
    whole + last + latency as f64
}

fn case(common: &Common, options: &Options, sizes: Sizes, senders: usize) -> Line {
    let setup = common.setup(senders, options.bits, options.buffer, Parameters::default());
    let mut simulation = Simulation::new(setup.clone());
    let mean = sizes.mean(|size| size as f64);
    let messages = ((options.bytes as f64 / mean) as usize).max(1_000);
    let apart = sizes.mean(|size| on_link(&setup, size).0) / options.load;
    let mut at = simulation.now() as f64;
    let mut to_come = VecDeque::with_capacity(messages);
    for _ in 0..messages {
        at -= (1.0 - simulation.rng().f64()).ln() * apart;
        let part = simulation.rng().f64();
        to_come.push_back(Message {
            sender: simulation.rng().usize(..senders),
            size: sizes.at(part).max(1),
            at: at as Nanos,
            until: 0,
        });
    }
    let start = simulation.now();
    let end = at as Nanos;
    let (mut waiting, mut under_way) = (
        vec![VecDeque::new(); senders],
        vec![VecDeque::new(); senders],
    );
    let mut written = vec![0; senders];
    let mut taken: Vec<(u64, f64)> = Vec::with_capacity(messages);
    let mut load = None;
    while taken.len() < messages {
        while to_come
            .front()
            .is_some_and(|message| simulation.next().is_none_or(|next| message.at <= next))
        {
            let message: Message = to_come.pop_front().expect("there is one");
            waiting[message.sender].push_back(message);
            send(
                &mut simulation,
                message.sender,
                message.at,
                &mut waiting,
                &mut under_way,
                &mut written,
            );
        }
        assert!(simulation.step(), "messages are under way");
        let now = simulation.now();
        let Some(sender) = simulation.take_delivery() else {
            continue;
        };
        let received = simulation.received(sender);
        let under: &mut VecDeque<Message> = &mut under_way[sender];
        while let Some(message) = under.front().filter(|message| message.until <= received) {
            let time = (now - message.at) as f64;
            taken.push((message.size, time / alone(&setup, message.size)));
            under.pop_front();
        }
        send(
            &mut simulation,
            sender,
            now,
            &mut waiting,
            &mut under_way,
            &mut written,
        );
        if now >= end && load.is_none() {
            let times = taken.iter().map(|(size, _)| on_link(&setup, *size).0);
            load = Some(times.sum::<f64>() / (now - start) as f64);
        }
    }
    taken.sort_unstable_by_key(|(size, _)| *size);
    let slowdown = |range: std::ops::Range<usize>| {
        let mut times: Vec<f64> = taken[range].iter().map(|(_, slowdown)| *slowdown).collect();
        times.sort_by(f64::total_cmp);
        Slowdown {
            median: percentile(&times, 50).unwrap_or(0.0),
            slowest: percentile(&times, 99).unwrap_or(0.0),
        }
    };
    let (peak, _) = simulation.take_peaks();
    Line {
        sizes,
        senders,
        messages,
        load: load.unwrap_or(0.0),
        all: slowdown(0..messages),
        short: slowdown(0..messages / 2),
        long: slowdown(messages - messages / 10..messages),
        peak,
        counts: simulation.counts(),
        setup,
    }
}

/// Sends what waits in a sender's application, as far as its connection takes it.
fn send(
    simulation: &mut Simulation,
    sender: usize,
    now: Nanos,
    waiting: &mut [VecDeque<Message>],
    under_way: &mut [VecDeque<Message>],
    written: &mut [u64],
) {
    while let Some(mut message) = waiting[sender].front().copied() {
        let ahead = written[sender] - simulation.received(sender);
        if ahead > 0 && ahead + message.size > MOST_AHEAD {
            break;
        }
        waiting[sender].pop_front();
        simulation.send_at(now, sender, message.size);
        written[sender] += message.size;
        message.until = written[sender];
        under_way[sender].push_back(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_published_parts() {
        assert_eq!(Sizes::W5.at(0.3), 27_930);
        assert_eq!(Sizes::W1.at(1.0), 100_000);
        for sizes in [Sizes::W1, Sizes::W2, Sizes::W3, Sizes::W4, Sizes::W5] {
            let sorted = sizes.points().is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1);
            assert!(sorted, "{sizes:?}");
        }
    }
}
