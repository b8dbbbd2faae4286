// SPDX-License-Identifier: GPL-2.0-only

//! This study checks, case by case, whether the protocol is fast enough in a rack. A case requires
//! at least a share of the possible rate, or at most a multiple of the ideal time.
//!
//! All cases have the default parameters. A card that coalesces interrupts delivers its collected
//! packets one by one, but all at the same simulated time. GRO, which would merge these packets, is
//! not simulated.
//!
//! Messages of published sizes do not depend on each other, so a message takes an idle one of the
//! `POOL` streams of its sender. A second case of each distribution has one stream for each
//! sender, where a short message waits for the long ones before it, since a stream delivers in
//! order. The distributions with the longest messages require nothing of this case.

use std::io::{self, Write};

use anyhow::{ensure, Result};
use clap::Args;
use esp::Nanos;
use serde::Serialize;

use super::{beside, workloads, Common, Study, GIGABIT};
use crate::conditions::{Conditions, Uplink, SLOW};
use crate::network::Rate;
use crate::report::{Columns, Table};
use crate::rounds::{self, jain, Message};
use crate::simulation::{Parameters, Setup};
use crate::sizes::Sizes;
use crate::streams::{Measured, Streams};

/// Length of a measurement, as the number of full packets that a stream's port can carry in it.
const PACKETS: u64 = 60_000;
/// The switch's buffer per port in bytes, by the port's rate in Gbit/s.
const BUFFERS: [(u64, u32); 4] = [
    (1, 512 << 10),
    (10, 512 << 10),
    (25, 1 << 20),
    (100, 2 << 20),
];

/// Number of streams that each sender keeps open to its receiver, for messages that are independent
/// of each other.
const POOL: u16 = 8;

/// Options of the study.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Run only cases whose name contains one of these texts
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Simulate a quarter of the time and of the messages
    #[arg(long)]
    pub quick: bool,
    /// Fail if a case does not hold
    #[arg(long)]
    pub check: bool,
}

/// A requirement of a case on its measured value.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Must {
    /// The measured rate must be at least this share of the possible rate.
    Least(f64),
    /// The measured time must be at most this multiple of the ideal time.
    Most(f64),
    /// The value is only shown.
    Nothing,
}

/// One measured value of a case, with its requirement.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    case: String,
    measured: f64,
    must: Must,
    drops: u64,
    retransmissions: u64,
    /// Whether the case allows no drops.
    lossless: bool,
}

impl Line {
    /// Returns the name of the line's case.
    pub fn name(&self) -> &str {
        &self.case
    }

    /// Returns whether the measured value meets the requirement.
    pub fn holds(&self) -> bool {
        let reached = match self.must {
            Must::Least(least) => self.measured >= least,
            Must::Most(most) => self.measured <= most,
            Must::Nothing => true,
        };
        reached && !(self.lossless && self.drops > 0)
    }

    /// Returns whether the case requires anything of the value.
    fn requires(&self) -> bool {
        !matches!(self.must, Must::Nothing)
    }

    fn must(&self) -> String {
        let bound = match self.must {
            Must::Least(least) => format!(">= {least:.2}"),
            Must::Most(most) => format!("<= {most:.1}"),
            Must::Nothing => "-".into(),
        };
        let drops = if self.lossless { ", no drop" } else { "" };
        bound + drops
    }
}

impl Study for Options {
    type Line = Line;

    const COLUMNS: Columns<Line> = &[
        ("case", |line| line.case.clone()),
        ("measured", |line| format!("{:.3}", line.measured)),
        ("must", Line::must),
        ("drops", |line| line.drops.to_string()),
        ("resent", |line| line.retransmissions.to_string()),
        ("", |line| {
            match (line.requires(), line.holds()) {
                (false, _) => "",
                (true, true) => "holds",
                (true, false) => "FAILS",
            }
            .into()
        }),
    ];

    fn run(&self, common: &Common) -> Result<Vec<Line>> {
        let rack = Rack {
            common,
            part: if self.quick { 4 } else { 1 },
        };
        let wanted = |name: &str| {
            self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
        };
        let mut lines = Vec::new();
        for (name, case) in cases() {
            if wanted(&name) {
                lines.extend(case.run(&rack, &name));
            }
        }
        ensure!(!lines.is_empty(), "--only names no case");
        let failed = lines.iter().filter(|line| !line.holds()).count();
        if self.check && failed > 0 {
            Self::print(&lines, &mut io::stdout())?;
            anyhow::bail!("{failed} of {} figures do not hold", lines.len());
        }
        Ok(lines)
    }

    fn print(lines: &[Line], out: &mut dyn Write) -> io::Result<()> {
        Table::of(lines, Self::COLUMNS).write(out)?;
        let required: Vec<_> = lines.iter().filter(|line| line.requires()).collect();
        let held = required.iter().filter(|line| line.holds()).count();
        writeln!(out, "{held} of {} figures hold", required.len())
    }
}

/// The setup and the requirement of a case.
#[derive(Clone, Debug)]
enum Case {
    /// Streams between hosts, in the network that the [`Shape`] describes.
    Streams(Shape),
    /// Rounds in which each of `senders` sends 64 KiB to one receiver.
    Incast {
        gigabits: u64,
        buffer: u32,
        senders: usize,
        least: f64,
    },
    /// The time from a request of 10 kB to its answer while 16 streams run.
    Beside { gigabits: u64 },
    /// Messages whose sizes have a published distribution, at a load of 0.8 of what the receiver's
    /// port can carry. Each sender has `pool` streams.
    Workload { sizes: Sizes, pool: u16, must: Must },
}

/// Streams between hosts, and the share of the bottleneck's rate that they must reach.
#[derive(Clone, Debug)]
struct Shape {
    gigabits: u64,
    mtu: u16,
    loss: f64,
    /// The time from a packet to its answer, nanoseconds; `None` if the case keeps the propagation
    /// delay of option `--propagation`.
    round_trip: Option<Nanos>,
    conditions: Conditions,
    pairs: Vec<(u32, u32)>,
    /// The number of streams whose rates are summed, and the number of links that these streams
    /// share.
    counted: (usize, f64),
    least: f64,
    /// The least value of Jain's index that the case requires.
    fair: Option<f64>,
    lossless: bool,
}

impl Shape {
    /// Returns a case of one stream at this rate, without deviations from a plain network.
    fn one(gigabits: u64, least: f64) -> Self {
        Self {
            gigabits,
            mtu: 1500,
            loss: 0.0,
            round_trip: None,
            conditions: Conditions::default(),
            pairs: vec![(0, 1)],
            counted: (1, 1.0),
            least,
            fair: None,
            lossless: false,
        }
    }

    /// Returns a case of one stream at this rate, under these conditions.
    fn under(conditions: Conditions, gigabits: u64, least: f64) -> Self {
        Self {
            conditions,
            ..Self::one(gigabits, least)
        }
    }
}

/// Returns all cases, with their names.
fn cases() -> Vec<(String, Case)> {
    let mut cases = Vec::new();
    let mut streams = |name: String, shape| cases.push((name, Case::Streams(shape)));
    let losses = [0.0001, 0.001, 0.01];
    for (gigabits, least) in [
        (10, [0.99, 0.98, 0.93]),
        (25, [0.99, 0.96, 0.88]),
        (100, [0.96, 0.90, 0.75]),
    ] {
        for (loss, least) in losses.into_iter().zip(least) {
            let shape = Shape {
                loss,
                ..Shape::one(gigabits, least)
            };
            streams(
                format!("loss of {} %, {gigabits} Gbit/s", loss * 100.0),
                shape,
            );
        }
    }
    for (gigabits, least) in [(10, 0.98), (100, 0.95)] {
        let conditions = Conditions {
            late: 0.01,
            ..Conditions::default()
        };
        let shape = Shape::under(conditions, gigabits, least);
        streams(
            format!("1 % late by 1 to 3 places, {gigabits} Gbit/s"),
            shape,
        );
    }
    let conditions = Conditions {
        lanes: 2,
        ..Conditions::default()
    };
    let shape = Shape {
        counted: (1, 2.0),
        ..Shape::under(conditions, 10, 0.90)
    };
    streams("balance-rr of two links, 10 Gbit/s".into(), shape);
    for (gigabits, mtu, least) in [(10, 1500, 0.97), (25, 1500, 0.95), (100, 9000, 0.90)] {
        let shape = Shape {
            mtu,
            round_trip: Some(100_000),
            ..Shape::one(gigabits, least)
        };
        streams(format!("round trip of 100 us, {gigabits} Gbit/s"), shape);
    }
    for (gigabits, least) in [(1, 0.95), (10, 0.90)] {
        let shape = Shape {
            round_trip: Some(2_000_000),
            ..Shape::one(gigabits, least)
        };
        streams(format!("round trip of 2 ms, {gigabits} Gbit/s"), shape);
    }
    for (gigabits, least) in [(10, 0.97), (25, 0.95)] {
        let conditions = Conditions {
            coalescing: 50_000,
            ..Conditions::default()
        };
        let shape = Shape::under(conditions, gigabits, least);
        streams(
            format!("interrupts coalesced for 50 us, {gigabits} Gbit/s"),
            shape,
        );
    }
    streams("outcast to 8 receivers, 10 Gbit/s".into(), outcast(8));
    for gigabits in [1, 10, 100] {
        let conditions = Conditions {
            slow: vec![1],
            ..Conditions::default()
        };
        let pairs = vec![(1, 0), (2, 0)];
        let shape = Shape {
            conditions,
            pairs,
            counted: (2, 1.0),
            ..Shape::one(gigabits, 0.95)
        };
        streams(
            format!("a host of a {SLOW}th of the rate beside a full one, {gigabits} Gbit/s"),
            shape,
        );
    }
    for (gigabits, least) in [(10, 0.90), (100, 0.92)] {
        let shape = Shape {
            least,
            ..shuffle(16, gigabits)
        };
        streams(format!("shuffle of 16 hosts, {gigabits} Gbit/s"), shape);
    }
    streams("64 pairs over one uplink, 10 Gbit/s".into(), uplink(64));
    for (gigabits, buffer, least) in [
        (1, 128 << 10, 0.94),
        (10, 128 << 10, 0.90),
        (100, 2 << 20, 0.90),
    ] {
        for senders in [64, 128, 512, 1000] {
            let name = format!("incast of 64 KiB from {senders}, {gigabits} Gbit/s");
            cases.push((
                name,
                Case::Incast {
                    gigabits,
                    buffer,
                    senders,
                    least,
                },
            ));
        }
    }
    for gigabits in [1, 10, 100] {
        cases.push((
            format!("10 kB beside 16 streams, {gigabits} Gbit/s"),
            Case::Beside { gigabits },
        ));
    }
    let most = Must::Most;
    for (sizes, pools, one) in [
        (Sizes::W1, most(10.0), most(10.0)),
        (Sizes::W2, most(10.0), most(10.0)),
        (Sizes::W3, most(10.0), Must::Nothing),
        (Sizes::W4, most(10.0), Must::Nothing),
        (Sizes::W5, most(15.0), Must::Nothing),
    ] {
        for (pool, must, streams) in [(POOL, pools, ""), (1, one, ", one stream each")] {
            cases.push((
                format!("{sizes:?} at load 0.8, 10 Gbit/s{streams}"),
                Case::Workload { sizes, pool, must },
            ));
        }
    }
    cases
}

/// Returns a case in which one host sends to `k` receivers. Each receiver has a second sender,
/// which sends to no other receiver. If the shares are max-min fair, each receiver's port is full.
fn outcast(k: u32) -> Shape {
    let shared = (1..=k).map(|receiver| (0, receiver));
    let own = (1..=k).map(|receiver| (k + receiver, receiver));
    Shape {
        pairs: shared.chain(own).collect(),
        counted: (2 * k as usize, f64::from(k)),
        ..Shape::one(10, 0.95)
    }
}

/// Returns a case in which all hosts have a stream to all others.
fn shuffle(hosts: u32, gigabits: u64) -> Shape {
    let pairs = (0..hosts).flat_map(|from| {
        (0..hosts)
            .filter(move |to| *to != from)
            .map(move |to| (from, to))
    });
    let pairs: Vec<_> = pairs.collect();
    Shape {
        counted: (pairs.len(), f64::from(hosts)),
        pairs,
        lossless: true,
        ..Shape::one(gigabits, 0.90)
    }
}

/// Returns a case of `pairs` pairs of hosts. The hosts of each pair are at different switches, and
/// all pairs share the link between the two switches.
fn uplink(pairs: u32) -> Shape {
    let uplink = Uplink {
        first: pairs,
        rate: Rate {
            bits: 10 * GIGABIT,
            framing: 24,
        },
        buffer: 512 << 10,
    };
    Shape {
        conditions: Conditions {
            uplink: Some(uplink),
            ..Conditions::default()
        },
        pairs: (0..pairs).map(|pair| (pair, pairs + pair)).collect(),
        counted: (pairs as usize, 1.0),
        fair: Some(0.9),
        ..Shape::one(10, 0.95)
    }
}

/// The settings that all cases share.
struct Rack<'a> {
    common: &'a Common,
    /// The number by which the length of each measurement is divided.
    part: u64,
}

impl Case {
    /// Runs the case, and returns its lines. Most cases have one line.
    fn run(&self, rack: &Rack<'_>, name: &str) -> Vec<Line> {
        match self {
            Self::Streams(shape) => rack.streams(shape, name),
            Self::Incast {
                gigabits,
                buffer,
                senders,
                least,
            } => rack.incast(*gigabits, *buffer, *senders, *least, name),
            Self::Beside { gigabits } => rack.beside(*gigabits, name),
            Self::Workload { sizes, pool, must } => rack.workload(*sizes, *pool, *must, name),
        }
    }
}

impl Rack<'_> {
    fn setup(&self, hosts: usize, gigabits: u64, buffer: u32) -> Setup {
        self.common
            .setup(hosts, gigabits * GIGABIT, buffer, Parameters::default())
    }

    fn streams(&self, shape: &Shape, name: &str) -> Vec<Line> {
        let buffer = BUFFERS.iter().find(|(rate, _)| *rate == shape.gigabits);
        let buffer = buffer.map_or(512 << 10, |(_, buffer)| *buffer);
        let mut setup = self.setup(0, shape.gigabits, buffer);
        setup.mtu = shape.mtu;
        setup.loss = shape.loss;
        setup.conditions = shape.conditions.clone();
        if let Some(round_trip) = shape.round_trip {
            // The packets of a round trip cross four links: two there and two back.
            setup.propagation = round_trip.saturating_sub(2 * setup.processing) / 4;
        }
        let possible = setup.most_goodput() * setup.rate.bits as f64;
        let full_packet = f64::from(setup.mss()) * 8e9 / possible;
        // Windows start small, so some round trips must pass before the measurement.
        let round_trips = 50 * shape.round_trip.unwrap_or(20_000);
        let time = (full_packet * PACKETS as f64) as Nanos / self.part;
        let mut streams = Streams::new(setup, &shape.pairs);
        let measured = streams.measure((time / 2).max(round_trips), time.max(round_trips));
        lines_of(shape, &measured, possible, name)
    }

    fn incast(
        &self,
        gigabits: u64,
        buffer: u32,
        senders: usize,
        least: f64,
        name: &str,
    ) -> Vec<Line> {
        const BYTES: u64 = 64 << 10;
        let setup = self.setup(senders, gigabits, buffer);
        let rounds = if self.part > 1 { 2 } else { 5 };
        let workload = rounds::Workload {
            rounds,
            ..self.common.workload(Message::Bytes(BYTES))
        };
        let possible = setup.most_goodput() * setup.rate.bits as f64;
        let latency = setup.processing + 2 * setup.propagation;
        let ideal = (senders as u64 * BYTES * 8) as f64 * 1e9 / possible + latency as f64;
        let summary = rounds::measure(setup.clone(), &workload);
        let line = |case: String, measured, must| Line {
            case,
            measured,
            must,
            drops: summary.counts.drops,
            retransmissions: summary.counts.retransmissions,
            lossless: true,
        };
        let goodput = summary.goodput / setup.most_goodput();
        let slowest = if summary.complete {
            summary.completion_99 as f64 / ideal
        } else {
            f64::INFINITY
        };
        vec![
            line(name.to_owned(), goodput, Must::Least(least)),
            line(format!("{name}: p99"), slowest, Must::Most(1.3)),
        ]
    }

    fn beside(&self, gigabits: u64, name: &str) -> Vec<Line> {
        let buffer = if gigabits == 100 { 2 << 20 } else { 512 << 10 };
        let options = beside::Options {
            streams: vec![16],
            sizes: vec![10_000],
            questions: if self.part > 1 { 100 } else { 300 },
            bits: gigabits * GIGABIT,
            buffer,
            ..beside::Options::default()
        };
        let lines = options.run(self.common).unwrap_or_default();
        let line = |line: &beside::Line| Line {
            case: name.to_owned(),
            measured: line.slowest as f64 / line.unloaded.max(1) as f64,
            must: Must::Most(5.0),
            drops: line.counts.drops,
            retransmissions: line.counts.retransmissions,
            lossless: false,
        };
        lines.iter().map(line).collect()
    }

    fn workload(&self, sizes: Sizes, pool: u16, must: Must, name: &str) -> Vec<Line> {
        let options = workloads::Options {
            sizes: vec![sizes],
            pool,
            senders: vec![100],
            bytes: (128 << 20) / self.part,
            ..workloads::Options::default()
        };
        let lines = options.run(self.common).unwrap_or_default();
        let line = |line: &workloads::Line| Line {
            case: name.to_owned(),
            measured: line.all.slowest,
            must,
            drops: line.counts.drops,
            retransmissions: line.counts.retransmissions,
            lossless: false,
        };
        lines.iter().map(line).collect()
    }
}

/// Returns the report's lines for a case with streams: the streams' goodput as a share of what the
/// counted links can carry (`possible` for each link), and Jain's index if the case requires one.
fn lines_of(shape: &Shape, measured: &Measured, possible: f64, name: &str) -> Vec<Line> {
    let (streams, links) = shape.counted;
    let sum: f64 = measured.rates.iter().take(streams).sum();
    let line = |case: String, measured_part, must| Line {
        case,
        measured: measured_part,
        must,
        drops: measured.drops,
        retransmissions: measured.retransmissions,
        lossless: shape.lossless,
    };
    let mut lines = vec![line(
        name.to_owned(),
        sum / (links * possible),
        Must::Least(shape.least),
    )];
    if let Some(fair) = shape.fair {
        let fairness = jain(measured.rates.iter().copied());
        lines.push(line(format!("{name}: Jain"), fairness, Must::Least(fair)));
    }
    lines
}
