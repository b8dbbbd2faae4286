// SPDX-License-Identifier: GPL-2.0-only

//! Measures the throughput of one ESP stream for each pair of `burst_length` and `packets_to_ack`,
//! as a table and a picture. Also checks that the plateau is where `docs/flow-control.md` says.
//!
//! One guest, whose clock counts instructions, has two hosts on `enet-switch` and runs `netgauge -x
//! esp-params`.

use std::fs;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use clap::Args;
use serde::Deserialize;

use crate::commands::{netgauge_rate, Commands, Verb};
use crate::layout::Layout;
use crate::qemu::Clock;
use crate::step;

/// Number of packets that are sent during a round trip at 400 Mbit/s, where the port and each host
/// take some 30 us per frame. The rule for the plateau in `docs/flow-control.md` subtracts the same
/// number from `burst_length`.
const ROUND_TRIP: u32 = 4;

/// The least goodput on the plateau, as a share of the goodput of the best cell.
const PLATEAU: f64 = 0.97;

/// Time limit for a measurement; many times the usual duration.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Options of the parameter measurement.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Values of burst_length.
    #[arg(long, default_value = "1,2,4,8,12,16,21,32,48,64")]
    burst: String,
    /// Values of packets_to_ack.
    #[arg(long, default_value = "1,2,4,6,8,10,16,24,32,48")]
    ack: String,
    /// Bytes of each transfer.
    #[arg(long, default_value = "1M")]
    size: String,
    /// Rate of each port.
    #[arg(long, default_value = "400mbit")]
    rate: String,
    /// Buffer of each port.
    #[arg(long, default_value = "128k")]
    buffer: String,
}

#[derive(Debug, Deserialize)]
struct Report {
    error: Option<String>,
    cells: Vec<Cell>,
}

#[derive(Debug, Deserialize)]
struct Cell {
    burst_length: u32,
    packets_to_ack: u32,
    goodput_bit_per_s: Option<Goodput>,
}

#[derive(Debug, Deserialize)]
struct Goodput {
    median: f64,
}

/// Prints the table and writes `build/esp-params.svg`. Returns true if the plateau is where
/// `docs/flow-control.md` says.
///
/// # Errors
/// If something does not build, the guest does not boot, or its kernel reports a fault.
pub fn run(layout: &Layout, options: &Options) -> Result<bool> {
    let mut guest = Commands::boot(
        layout,
        "params",
        Verb::Commands,
        Clock::Instructions,
        PATIENCE,
    )?;
    let line = format!(
        "enet-switch up --hosts 2 --rate {} --buffer {}",
        options.rate, options.buffer
    );
    let ended = guest.ask(&line)?;
    ensure!(ended.status == 0, "{line}:\n{}", ended.text);
    step::say("one stream for each burst_length and packets_to_ack");
    let rate = netgauge_rate(&options.rate);
    let measure = |format: &str| {
        format!(
            "netgauge -x esp-params --netns h0,h1 --server-index 0 --burst {} --ack {} -s {} -c 1 --warmup 0 \
             --rate {rate} --plot /tmp/params.svg --format {format} 2>/tmp/errors || {{ cat /tmp/errors; false; }}",
            options.burst, options.ack, options.size
        )
    };
    let ended = guest.ask(&measure("json"))?;
    let report: Report = ended.report()?;
    let picture = guest.ask("cat /tmp/params.svg")?;
    guest.end()?;
    if let Some(error) = report.error {
        eprintln!("esp-params: {error}");
        return Ok(false);
    }
    ensure!(
        picture.text.trim_start().starts_with("<svg"),
        "no picture: {}",
        picture.text
    );
    let path = layout.build().join("esp-params.svg");
    fs::write(&path, &picture.text).with_context(|| path.display().to_string())?;
    let good = judge(&report.cells)?;
    println!("the picture is {}", path.display());
    Ok(good)
}

/// Prints the cells by rows of `burst_length`, and compares the plateau with the document's rule.
fn judge(cells: &[Cell]) -> Result<bool> {
    let goodput = |cell: &Cell| cell.goodput_bit_per_s.as_ref().map_or(0.0, |g| g.median);
    let best = cells.iter().map(goodput).fold(0.0, f64::max);
    ensure!(best > 0.0, "nothing was measured");
    let mut acks: Vec<_> = cells.iter().map(|cell| cell.packets_to_ack).collect();
    acks.sort_unstable();
    acks.dedup();
    println!("Goodput of one stream, share of the best; columns are packets_to_ack, rows burst_length.\n");
    print!("     |");
    for ack in &acks {
        print!("{ack:>6}");
    }
    println!();
    let mut bursts: Vec<_> = cells.iter().map(|cell| cell.burst_length).collect();
    bursts.sort_unstable();
    bursts.dedup();
    let mut good = true;
    for burst in bursts {
        print!("{burst:>4} |");
        for ack in &acks {
            let cell = cells
                .iter()
                .find(|cell| cell.burst_length == burst && cell.packets_to_ack == *ack);
            match cell {
                Some(cell) => print!("{:>6.3}", goodput(cell) / best),
                None => print!("{:>6}", ""),
            }
        }
        println!();
    }
    for cell in cells {
        let share = goodput(cell) / best;
        let on_plateau = cell.packets_to_ack + ROUND_TRIP <= cell.burst_length;
        if on_plateau && share < PLATEAU {
            println!(
                "burst_length {}, packets_to_ack {}: {share:.3}, and the plateau should reach there",
                cell.burst_length, cell.packets_to_ack
            );
            good = false;
        }
    }
    println!(
        "\nThe plateau: packets_to_ack <= burst_length - {ROUND_TRIP} gives at least {PLATEAU} of the best{}.",
        if good { "" } else { ": not so" }
    );
    Ok(good)
}
