// SPDX-License-Identifier: GPL-2.0-only

//! Some senders of this study announce a transmission and then fall silent. The study measures how
//! long they delay the other senders.

use std::io::{self, Write};

use anyhow::Result;
use clap::Args;
use esp::{ack_queue, Nanos};
use serde::Serialize;

use super::{parameters, Common, Study, GIGABIT};
use crate::report::{millis, Columns, Table};
use crate::rounds::{self, Message, Workload};
use crate::simulation::Simulation;

/// Bytes that each sender has to send.
const BYTES: u64 = 256 << 10;

/// For each case, the number of senders, and how many of them fall silent.
const CASES: [(usize, usize); 5] = [(2, 1), (4, 1), (4, 3), (8, 3), (32, 16)];

/// The results of a case over all its runs. In each run, the silent senders stop after a different
/// number of packets.
#[derive(Debug, Serialize)]
pub struct Line {
    /// Number of senders.
    pub senders: usize,
    /// Number of senders that fall silent.
    pub silent: usize,
    /// Whether all silent senders stop after the same number of packets. Otherwise each stops 40
    /// packets later than the one before it.
    pub together: bool,
    /// The time that the other senders take in a run without the silent senders, nanoseconds.
    pub without: Nanos,
    /// The longest time that the other senders take in any run, nanoseconds.
    pub worst: Nanos,
    /// The number of packets after which the first silent sender stopped in the worst run.
    pub worst_after: u64,
    /// The largest delay that the silence causes in any run, nanoseconds. It is the time that the
    /// other senders took, minus `without`, minus the time that the silent senders' packets take on
    /// the wire.
    pub delay: Nanos,
    /// How often the ACK queue ended a sender's turn (its permission to send) because the sender
    /// was silent, in the worst run.
    pub overruns: u32,
    /// The number of drops, summed over the runs.
    pub drops: u64,
    /// Whether the other senders completed their messages in every run.
    pub complete: bool,
    /// The bound on `delay`, nanoseconds. Each silent sender may delay the others for
    /// `ack_queue::IDLE`, after which the ACK queue lets another sender send.
    pub bound: Nanos,
}

/// Returns the number of packets after which the silent sender `which` stops.
fn last_packet(first: u64, which: usize, together: bool) -> u64 {
    if together {
        first
    } else {
        // The stops are far apart, so that the silent senders have separate turns.
        first + 40 * which as u64
    }
}

/// The options of the study, beyond the common ones.
#[derive(Clone, Debug, Args)]
pub struct Options {}

impl Study for Options {
    type Line = Line;

    const COLUMNS: Columns<Line> = &[
        ("senders", |line| line.senders.to_string()),
        ("silent", |line| line.silent.to_string()),
        ("stop", |line| {
            if line.together { "together" } else { "apart" }.to_string()
        }),
        ("without them", |line| millis(line.without)),
        ("with them", |line| millis(line.worst)),
        ("after packets", |line| line.worst_after.to_string()),
        ("delay by silence", |line| millis(line.delay)),
        ("bound", |line| millis(line.bound)),
        ("turns taken", |line| line.overruns.to_string()),
        ("drops", |line| line.drops.to_string()),
        ("complete", |line| line.complete.to_string()),
    ];

    fn run(&self, common: &Common) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        for (senders, silent) in CASES {
            for together in [true, false] {
                if silent > 1 || together {
                    lines.push(case(common, senders, silent, together));
                }
            }
        }
        Ok(lines)
    }

    fn print(lines: &[Line], out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "256 KiB each at 1 Gbit/s; silent senders stop after 1, 2, ... packets; the worst of all these runs, ms"
        )?;
        Table::of(lines, Self::COLUMNS).write(out)
    }
}

fn workload(common: &Common) -> Workload {
    Workload {
        rounds: 1,
        ..common.workload(Message::Bytes(BYTES))
    }
}

fn case(common: &Common, senders: usize, silent: usize, together: bool) -> Line {
    let esp = parameters(21, 10, 1);
    let setup = |n| common.setup(n, GIGABIT, 128 << 10, esp);
    let others = senders - silent;
    let mut alone = Simulation::new(setup(others));
    let packets = BYTES.div_ceil(u64::from(alone.setup().mss()));
    let packet = 8 * (BYTES / packets + 49);
    let without = rounds::run(&mut alone, &workload(common), |_| true)[0].duration;
    let mut line = Line {
        senders,
        silent,
        together,
        without,
        worst: 0,
        worst_after: 0,
        delay: 0,
        overruns: 0,
        drops: 0,
        complete: true,
        bound: ack_queue::IDLE * silent as u64,
    };
    for after in 1..packets {
        let mut simulation = Simulation::new(setup(senders));
        let mut spent = 0;
        for which in 0..silent {
            let last = last_packet(after, which, together).min(packets - 1);
            simulation.silence(which, last);
            spent += last * packet;
        }
        let round = rounds::run(&mut simulation, &workload(common), |sender| {
            sender >= silent
        })
        .swap_remove(0);
        line.complete &= round.complete;
        line.drops += round.counts.drops;
        if round.duration > line.worst {
            line.worst = round.duration;
            line.worst_after = after;
            line.overruns = round.counts.overruns;
        }
        line.delay = line
            .delay
            .max(round.duration.saturating_sub(without + spent));
    }
    line
}
