//! How buffer use, goodput and fairness grow with the number of senders.

use std::io::Write;
use std::path::Path;

use serde::Serialize;

use super::{parameters, Common};
use crate::plot::{self, Curve, Panel, SeriesLabelPosition};
use crate::report::{kib, millis, part, Table};
use crate::rounds::{measure, Message, Summary};
use crate::simulation::Setup;

/// What is scaled.
#[derive(Clone, Debug)]
pub struct Options {
    /// The numbers of senders.
    pub senders: Vec<usize>,
    /// Of every link, bits per second.
    pub bits: u64,
    /// Of every port, bytes.
    pub buffer: u32,
    /// What each sender sends in a round, bytes.
    pub bytes: u64,
    /// The protocol's parameters: burst_length, packets_to_ack, and initial_ack_burst_length, for which several
    /// values can be compared.
    pub burst_length: u16,
    /// See above.
    pub packets_to_ack: u16,
    /// See above.
    pub initial: Vec<u16>,
}

/// One number of senders.
#[derive(Debug, Serialize)]
pub struct Line {
    setup: Setup,
    bytes: u64,
    #[serde(flatten)]
    summary: Summary,
}

/// Runs all numbers of senders.
pub fn run(common: &Common, options: &Options) -> Vec<Line> {
    let mut lines = Vec::new();
    for &initial in &options.initial {
        for &senders in &options.senders {
            let esp = parameters(options.burst_length, options.packets_to_ack, initial);
            let setup = common.setup(senders, options.bits, options.buffer, esp);
            let workload = common.workload(Message::Bytes(options.bytes));
            lines.push(Line {
                summary: measure(setup.clone(), &workload),
                setup,
                bytes: options.bytes,
            });
        }
    }
    lines
}

/// Prints the table.
pub fn print(lines: &[Line], out: &mut dyn Write) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        "N",
        "initial",
        "goodput",
        "worst",
        "peak/KiB",
        "drops",
        "fairness",
        "resent",
        "duplicates",
        "requests",
        "spurious",
        "waiting",
        "median ms",
        "worst ms",
    ]);
    for line in lines {
        let Summary { counts, .. } = &line.summary;
        table.line([
            line.setup.senders.to_string(),
            line.setup.esp.initial_ack_burst_length.to_string(),
            part(line.summary.goodput),
            part(line.summary.worst_goodput),
            kib(line.summary.peak),
            counts.drops.to_string(),
            part(line.summary.fairness),
            counts.retransmissions.to_string(),
            counts.duplicates.to_string(),
            counts.requests.to_string(),
            counts.spurious_requests.to_string(),
            line.summary.waiting.to_string(),
            millis(line.summary.completion),
            millis(line.summary.completion_worst),
        ]);
    }
    table.write(out)?;
    Ok(())
}

/// Draws buffer use, goodput and fairness over the number of senders.
pub fn draw(lines: &[Line], file: &Path) -> anyhow::Result<()> {
    let mut initial: Vec<u16> = lines
        .iter()
        .map(|line| line.setup.esp.initial_ack_burst_length)
        .collect();
    initial.dedup();
    let curves = |pick: fn(&Summary) -> f64| -> Vec<Curve> {
        initial
            .iter()
            .map(|&initial| Curve {
                name: format!("initial_ack_burst_length {initial}"),
                points: lines
                    .iter()
                    .filter(|line| line.setup.esp.initial_ack_burst_length == initial)
                    .map(|line| (line.setup.senders as f64, pick(&line.summary)))
                    .collect(),
            })
            .collect()
    };
    let worst = |values: fn(&Summary) -> f64| {
        let all = lines.iter().map(|line| values(&line.summary));
        all.fold(1.0, f64::min)
    };
    let floor = worst(|s| s.worst_goodput.min(s.fairness));
    let buffer = lines
        .iter()
        .map(|line| f64::from(line.setup.buffer) / 1024.0)
        .fold(0.0, f64::max);
    let peak = lines
        .iter()
        .map(|line| f64::from(line.summary.peak) / 1024.0)
        .fold(buffer, f64::max);
    plot::curves(
        file,
        &[
            Panel {
                title: "most KiB in the receiver's port".into(),
                x: "senders".into(),
                log_y: true,
                y: (8.0, peak * 1.2),
                curves: curves(|s| f64::from(s.peak) / 1024.0),
                mark: Some((buffer, "the port's buffer".into())),
                legend: SeriesLabelPosition::LowerRight,
            },
            Panel {
                title: "goodput of the worst round, part of the rate".into(),
                x: "senders".into(),
                log_y: false,
                y: ((floor * 10.0).floor() / 10.0, 1.0),
                curves: curves(|s| s.worst_goodput),
                mark: None,
                legend: SeriesLabelPosition::LowerMiddle,
            },
            Panel {
                title: "fairness (Jain) when the first is done".into(),
                x: "senders".into(),
                log_y: false,
                y: ((floor * 10.0).floor() / 10.0, 1.005),
                curves: curves(|s| s.fairness),
                mark: None,
                legend: SeriesLabelPosition::LowerMiddle,
            },
        ],
    )
}
