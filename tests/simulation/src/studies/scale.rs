// SPDX-License-Identifier: GPL-2.0-only

//! This study measures buffer use, goodput and fairness for several numbers of senders.

use std::path::Path;

use anyhow::{ensure, Result};
use clap::{value_parser, Args};

use super::{buffer, gigabits, parameters, senders, size, Common, Measured, Picture, Study};
use crate::plot::{self, Curve, Panel, SeriesLabelPosition};
use crate::report::{kib, millis, part, Columns};
use crate::rounds::Summary;

/// Options of the study.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    picture: Picture,
    /// Numbers of senders
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,2,4,8,16,32,64,128,256,512,1000",
        value_parser = senders
    )]
    senders: Vec<usize>,
    /// Rate of every link, Gbit/s
    #[arg(long = "gigabits", value_name = "GIGABITS", default_value = "100", value_parser = gigabits())]
    bits: u64,
    /// Buffer of every port
    #[arg(long, default_value = "2M", value_parser = buffer)]
    buffer: u32,
    /// Bytes that each sender sends in a round
    #[arg(long, default_value = "4M", value_parser = size)]
    bytes: u64,
    /// The parameter burst_length
    #[arg(long, default_value_t = 256, value_parser = value_parser!(u16).range(1..=32767))]
    burst: u16,
    /// The parameter packets_to_ack
    #[arg(long, default_value_t = 96, value_parser = value_parser!(u16).range(1..=32767))]
    ack: u16,
    /// Values of the parameter initial_ack_burst_length
    #[arg(long, value_delimiter = ',', default_value = "0,1")]
    initial: Vec<u16>,
}

impl Study for Options {
    type Line = Measured;

    const COLUMNS: Columns<Measured> = &[
        ("N", |line| line.setup.senders.to_string()),
        ("initial", |line| {
            line.setup.esp.initial_ack_burst_length.to_string()
        }),
        ("goodput", |line| part(line.summary.goodput)),
        ("worst", |line| part(line.summary.worst_goodput)),
        ("peak/KiB", |line| kib(line.summary.peak)),
        ("drops", |line| line.summary.counts.drops.to_string()),
        ("fairness", |line| part(line.summary.fairness)),
        ("resent", |line| {
            line.summary.counts.retransmissions.to_string()
        }),
        ("duplicates", |line| {
            line.summary.counts.duplicates.to_string()
        }),
        ("requests", |line| line.summary.counts.requests.to_string()),
        ("spurious", |line| {
            line.summary.counts.spurious_requests.to_string()
        }),
        ("waiting", |line| line.summary.waiting.to_string()),
        ("median ms", |line| millis(line.summary.completion)),
        ("worst ms", |line| millis(line.summary.completion_worst)),
    ];

    fn run(&self, common: &Common) -> Result<Vec<Measured>> {
        let Self { burst, ack, .. } = *self;
        common.check_message(self.bytes)?;
        ensure!(
            ack <= burst,
            "--ack {ack} exceeds --burst {burst}: a window would be used up before an acknowledgement is due"
        );
        let mut lines = Vec::new();
        for &initial in &self.initial {
            for &senders in &self.senders {
                let esp = parameters(burst, ack, initial);
                let setup = common.setup(senders, self.bits, self.buffer, esp);
                lines.push(Measured::new(common, setup, self.bytes));
            }
        }
        Ok(lines)
    }

    fn draw(&self, lines: &[Measured]) -> Result<()> {
        self.picture.draw(|file| draw(lines, file))
    }
}

/// Draws buffer use, goodput and fairness over the number of senders.
fn draw(lines: &[Measured], file: &Path) -> Result<()> {
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
