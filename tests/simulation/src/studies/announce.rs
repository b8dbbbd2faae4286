// SPDX-License-Identifier: GPL-2.0-only

//! This study measures the load that announcements put on a port. An announcement is the first
//! packet of a transmission; a sender sends it before the receiver permits anything. The study
//! shows drops and completion times over `initial_ack_burst_length`, the number of senders and the
//! port's buffer.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::{parameters, Common, Picture, Study, GIGABIT};
use crate::plot::{self, Curve, Panel, SeriesLabelPosition};
use crate::report::{millis, rate, Table};
use crate::rounds::{Message, Summary};
use crate::simulation::Setup;

const INITIAL: [u16; 5] = [0, 1, 2, 4, 8];
/// The numbers of senders for which the tables have a column.
const SENDERS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// The numbers of senders that the picture and the JSON show.
const ALL_SENDERS: [usize; 14] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];
const BUFFERS: [u32; 5] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];

/// The rates of the links, each with its `burst_length` and `packets_to_ack`.
const LINKS: [(u64, u16, u16); 2] = [(GIGABIT, 21, 10), (10 * GIGABIT, 64, 32)];

const MESSAGES: [(&str, Message); 2] = [
    ("2 to 6 packets", Message::Packets(2, 6)),
    ("64 KiB", Message::Bytes(64 << 10)),
];

/// The results for one setting of the study, which become one cell of a table.
#[derive(Debug, Serialize)]
pub struct Line {
    setup: Setup,
    message: &'static str,
    rounds: u16,
    #[serde(flatten)]
    summary: Summary,
}

/// The options of the study, beyond the common ones.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    picture: Picture,
}

impl Study for Options {
    type Line = Line;

    fn run(&self, common: &Common) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        for (bits, burst_length, packets_to_ack) in LINKS {
            for (name, message) in MESSAGES {
                for initial in INITIAL {
                    for buffer in BUFFERS {
                        for senders in ALL_SENDERS {
                            let esp = parameters(burst_length, packets_to_ack, initial);
                            let setup = common.setup(senders, bits, buffer, esp);
                            lines.push(Line {
                                summary: common.measure(&setup, message),
                                setup,
                                message: name,
                                rounds: common.rounds,
                            });
                        }
                    }
                }
            }
        }
        Ok(lines)
    }

    /// Prints, per link and message, the drops per round and the median completion time, each with
    /// its worst value.
    fn print(lines: &[Line], out: &mut dyn Write) -> io::Result<()> {
        for (bits, burst_length, packets_to_ack) in LINKS {
            for (message, _) in MESSAGES {
                for (figure, cell) in FIGURES {
                    writeln!(
                        out,
                        "{}, burst/ack {burst_length}/{packets_to_ack}, messages of {message}: {figure}",
                        rate(bits)
                    )?;
                    table(lines, bits, message, cell).write(out)?;
                    writeln!(out)?;
                }
            }
        }
        Ok(())
    }

    fn draw(&self, lines: &[Line]) -> Result<()> {
        self.picture.draw(|file| draw(lines, file))
    }
}

/// A figure that the tables show: its title, and the function that formats it for a cell.
type Figure = (&'static str, fn(&Line) -> String);

fn find<'a>(
    lines: &'a [Line],
    bits: u64,
    message: &str,
    initial: u16,
    buffer: u32,
    senders: usize,
) -> Option<&'a Line> {
    lines.iter().find(|line| {
        line.setup.rate.bits == bits
            && line.message == message
            && line.setup.esp.initial_ack_burst_length == initial
            && line.setup.buffer == buffer
            && line.setup.senders == senders
    })
}

const FIGURES: [Figure; 3] = [
    ("packets dropped at the receiver's port, per round", drops),
    ("median completion of a message, ms", |line| {
        millis(line.summary.completion)
    }),
    ("99th percentile of it, ms", |line| {
        millis(line.summary.completion_99)
    }),
];

fn drops(line: &Line) -> String {
    let drops = line.summary.counts.drops as f64 / f64::from(line.rounds);
    if drops > 0.0 && drops < 10.0 {
        format!("{drops:.1}")
    } else {
        format!("{drops:.0}")
    }
}

/// Returns the table for one link and one size of messages.
fn table(lines: &[Line], bits: u64, message: &str, cell: fn(&Line) -> String) -> Table {
    let columns = SENDERS.iter().map(|n| format!("N={n}"));
    let names = ["initial".to_owned(), "buffer/KiB".to_owned()];
    let mut table = Table::new(names.into_iter().chain(columns));
    for initial in INITIAL {
        for buffer in BUFFERS {
            let cells = SENDERS.iter().map(|&senders| {
                find(lines, bits, message, initial, buffer, senders).map_or_else(String::new, cell)
            });
            let names = [initial.to_string(), (buffer >> 10).to_string()];
            table.line(names.into_iter().chain(cells));
        }
    }
    table
}

/// Draws two panels for 1 Gbit/s. The first shows the largest number of senders without a drop,
/// over the port's buffer. The second shows the 99th percentile of small messages' completion
/// times, over the number of senders.
fn draw(lines: &[Line], file: &Path) -> Result<()> {
    let small = MESSAGES[0].0;
    let dropless = |initial: u16, buffer: u32| {
        let lossless = |senders: &&usize| {
            MESSAGES.iter().all(|(message, _)| {
                find(lines, GIGABIT, message, initial, buffer, **senders)
                    .is_some_and(|line| line.summary.counts.drops == 0)
            })
        };
        ALL_SENDERS.iter().take_while(lossless).last()
    };
    let name = |initial: u16| format!("initial_ack_burst_length {initial}");
    let reach = INITIAL.map(|initial| Curve {
        name: name(initial),
        points: BUFFERS
            .iter()
            .map(|&buffer| {
                let most = dropless(initial, buffer).map_or(0.5, |&n| n as f64);
                (f64::from(buffer >> 10), most)
            })
            .collect(),
    });
    let completion = INITIAL.map(|initial| Curve {
        name: name(initial),
        points: ALL_SENDERS
            .iter()
            .filter_map(|&n| {
                let line = find(lines, GIGABIT, small, initial, 128 << 10, n)?;
                Some((n as f64, line.summary.completion_99 as f64 / 1e6))
            })
            .collect(),
    });
    plot::curves(
        file,
        &[
            Panel {
                title: "most senders (of 128) without a drop, 1 Gbit/s".into(),
                x: "buffer of the port, KiB".into(),
                log_y: true,
                y: (0.4, 200.0),
                curves: reach.into(),
                mark: None,
                legend: SeriesLabelPosition::LowerRight,
            },
            Panel {
                title: "99 % of messages of 2 to 6 packets within, ms; 1 Gbit/s, 128 KiB".into(),
                x: "senders".into(),
                log_y: true,
                y: (0.03, 100.0),
                curves: completion.into(),
                mark: None,
                legend: SeriesLabelPosition::UpperLeft,
            },
        ],
    )
}
