// SPDX-License-Identifier: GPL-2.0-only

//! This study measures goodput for several values of `burst_length` and `packets_to_ack`. The
//! results show which values suit these parameters in `/proc/sys/esp/`.

use std::io::{self, Write};
use std::iter::once;
use std::path::Path;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::{parameters, Common, Picture, Study, GIGABIT};
use crate::plot::{self, Map};
use crate::report::{kib, part, rate, Columns, Table};
use crate::rounds::Message;
use crate::simulation::Parameters;

const BURSTS: [u16; 13] = [4, 8, 12, 16, 21, 32, 48, 64, 96, 128, 192, 256, 384];
const ACKS: [u16; 12] = [1, 2, 4, 8, 10, 16, 24, 32, 48, 64, 96, 128];
const SENDERS: [usize; 3] = [1, 2, 8];

/// For each link: the rate, the bytes that each sender sends in a round, and the port's buffer in
/// bytes.
const LINKS: [(u64, u64, u32); 4] = [
    (GIGABIT, 1 << 20, 128 << 10),
    (10 * GIGABIT, 2 << 20, 256 << 10),
    (25 * GIGABIT, 4 << 20, 512 << 10),
    (100 * GIGABIT, 8 << 20, 2 << 20),
];

/// A pair of parameters saturates a link if its goodput is at least this share of the best pair's
/// goodput on that link.
const SATURATED: f64 = 0.98;

/// Maximum ratio of `burst_length` to `packets_to_ack`. The receiver passes the turn on after
/// `packets_to_ack` packets, and each turn permits the sender to send `burst_length` packets. With
/// a larger ratio, the bursts of several senders accumulate in the port.
const MOST_OVERLAP: u16 = 3;

/// The results of one pair of parameters on one link, over several numbers of senders.
#[derive(Debug, Serialize)]
pub struct Cell {
    bits: u64,
    burst_length: u16,
    packets_to_ack: u16,
    /// Whether the receiver may grant windows larger than `burst_length`, as with the default
    /// parameters.
    granted: bool,
    /// The least median goodput, over all numbers of senders, as a share of the largest possible
    /// goodput.
    median: f64,
    /// The least goodput, over all numbers of senders, as a share of the largest possible goodput.
    goodput: f64,
    /// The number of senders at which the goodput is least.
    senders: usize,
    /// The most bytes that the port has held at once, in any of the runs with different numbers of
    /// senders.
    peak: u32,
    drops: u64,
    spurious_requests: u64,
}

/// The options of the study, beyond the common ones.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    picture: Picture,
}

impl Study for Options {
    type Line = Cell;

    const COLUMNS: Columns<Cell> = &[
        ("smallest that saturate", |cell| rate(cell.bits)),
        ("burst_length", |cell| cell.burst_length.to_string()),
        ("packets_to_ack", |cell| cell.packets_to_ack.to_string()),
        ("goodput", |cell| part(cell.goodput)),
        ("peak/KiB", |cell| kib(cell.peak)),
        ("drops", |cell| cell.drops.to_string()),
        ("spurious", |cell| cell.spurious_requests.to_string()),
    ];

    fn run(&self, common: &Common) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for link in LINKS {
            for burst_length in BURSTS {
                for packets_to_ack in ACKS.into_iter().filter(|&ack| ack <= burst_length) {
                    let esp = parameters(burst_length, packets_to_ack, 1);
                    cells.push(cell(common, link, esp));
                }
            }
            cells.push(cell(common, link, Parameters::default()));
        }
        Ok(cells)
    }

    fn print(cells: &[Cell], out: &mut dyn Write) -> io::Result<()> {
        print(cells, out)
    }

    fn draw(&self, cells: &[Cell]) -> Result<()> {
        self.picture.draw(|file| draw(cells, file))
    }
}

fn cell(common: &Common, link: (u64, u64, u32), esp: Parameters) -> Cell {
    let (bits, bytes, buffer) = link;
    let mut cell = Cell {
        bits,
        burst_length: esp.burst_length,
        packets_to_ack: esp.packets_to_ack,
        granted: esp.burst_length_max > esp.burst_length,
        median: f64::INFINITY,
        goodput: f64::INFINITY,
        senders: 0,
        peak: 0,
        drops: 0,
        spurious_requests: 0,
    };
    for senders in SENDERS {
        let setup = common.setup(senders, bits, buffer, esp);
        let possible = setup.most_goodput();
        let summary = common.measure(&setup, Message::Bytes(bytes));
        cell.median = cell.median.min(summary.goodput / possible);
        let goodput = summary.worst_goodput / possible;
        if goodput < cell.goodput {
            cell.goodput = goodput;
            cell.senders = senders;
        }
        cell.peak = cell.peak.max(summary.peak);
        cell.drops += summary.counts.drops;
        cell.spurious_requests += summary.counts.spurious_requests;
    }
    cell
}

/// Prints a grid for each link, and the smallest window that saturates the link.
fn print(cells: &[Cell], out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "goodput of the worst round with N = 1, 2, 8 senders, part of what is possible; rows burst_length, columns packets_to_ack"
    )?;
    for (bits, ..) in LINKS {
        writeln!(out, "\n{}", rate(bits))?;
        let acks = ACKS.iter().map(ToString::to_string);
        let mut table = Table::new(once(String::new()).chain(acks));
        for burst in BURSTS {
            let row = pairs(cells, bits)
                .filter(|cell| cell.burst_length == burst)
                .map(|cell| part(cell.goodput));
            table.line(once(burst.to_string()).chain(row));
        }
        table.write(out)?;
        let granted = |cell: &&Cell| cell.bits == bits && cell.granted;
        for cell in cells.iter().filter(granted) {
            let best = pairs(cells, bits).map(|cell| cell.median);
            writeln!(
                out,
                "granted {}, in the worst round {}; the best pair {} (medians of the rounds)",
                part(cell.median),
                part(cell.goodput),
                part(best.fold(0.0, f64::max)),
            )?;
        }
    }
    writeln!(out)?;
    let smallest = LINKS.iter().filter_map(|&(bits, ..)| smallest(cells, bits));
    Table::of(smallest, Options::COLUMNS).write(out)
}

/// Returns a link's cells for fixed windows, without the cell for granted windows.
fn pairs(cells: &[Cell], bits: u64) -> impl Iterator<Item = &Cell> {
    let link = cells.iter().filter(move |cell| cell.bits == bits);
    link.filter(|cell| !cell.granted)
}

/// Returns the cell with the smallest window that saturates a link without accumulating bursts. If
/// several cells have this window, returns the cell with the fewest acknowledgements.
fn smallest(cells: &[Cell], bits: u64) -> Option<&Cell> {
    let link = || pairs(cells, bits);
    let best = link().map(|cell| cell.goodput).fold(0.0, f64::max);
    link()
        .filter(|cell| cell.goodput >= SATURATED * best)
        .filter(|cell| cell.burst_length <= MOST_OVERLAP * cell.packets_to_ack)
        .min_by_key(|cell| (cell.burst_length, std::cmp::Reverse(cell.packets_to_ack)))
}

/// Draws a map per link.
fn draw(cells: &[Cell], file: &Path) -> Result<()> {
    let maps: Vec<Map> = LINKS
        .iter()
        .map(|&(bits, ..)| Map {
            title: rate(bits),
            cells: pairs(cells, bits)
                .filter_map(|cell| {
                    let x = ACKS.iter().position(|&ack| ack == cell.packets_to_ack)?;
                    let y = BURSTS
                        .iter()
                        .position(|&burst| burst == cell.burst_length)?;
                    Some((x, y, cell.goodput))
                })
                .collect(),
        })
        .collect();
    plot::maps(
        file,
        "packets_to_ack",
        &ACKS.map(|ack| ack.to_string()),
        "burst_length",
        &BURSTS.map(|burst| burst.to_string()),
        &maps,
    )
}
