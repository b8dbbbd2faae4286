// SPDX-License-Identifier: GPL-2.0-only

//! This study measures goodput for several links and numbers of senders.

use anyhow::Result;
use clap::Args;
use esp::Config;

use super::{parameters, senders, size, Common, Measured, Study, GIGABIT};
use crate::report::{kib, part, rate, Columns};
use crate::simulation::Parameters;

/// For each link: the rate, the switch's buffer, `burst_length` with `packets_to_ack`, and the
/// bytes that each sender sends in a round. With so many bytes, the start of a round hardly affects
/// its goodput.
const LINKS: [(u64, u32, (u16, u16), u64); 7] = [
    (GIGABIT / 5, 128 << 10, (21, 10), 64 << 10),
    (GIGABIT / 5, 128 << 10, (21, 10), 256 << 10),
    (GIGABIT, 128 << 10, (21, 10), 256 << 10),
    (10 * GIGABIT, 256 << 10, (21, 10), 1 << 20),
    (10 * GIGABIT, 256 << 10, (64, 32), 1 << 20),
    (25 * GIGABIT, 512 << 10, (96, 48), 2 << 20),
    (100 * GIGABIT, 2 << 20, (256, 96), 4 << 20),
];

/// Options of the study.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Numbers of senders
    #[arg(long, value_delimiter = ',', default_value = "1,2,8,32", value_parser = senders)]
    senders: Vec<usize>,
    /// The parameter initial_ack_burst_length
    #[arg(long, default_value_t = 1)]
    initial: u16,
    /// Bytes that each sender sends in a round; without this option, 256K to 4M, more for faster
    /// links
    #[arg(long, value_parser = size)]
    bytes: Option<u64>,
}

impl Study for Options {
    type Line = Measured;

    const COLUMNS: Columns<Measured> = &[
        ("link", |line| rate(line.setup.rate.bits)),
        ("buffer/KiB", |line| (line.setup.buffer >> 10).to_string()),
        ("burst/ack", |line| window(line.setup.esp)),
        ("KiB", |line| (line.bytes >> 10).to_string()),
        ("N", |line| line.setup.senders.to_string()),
        ("goodput", |line| part(line.summary.goodput)),
        ("worst", |line| part(line.summary.worst_goodput)),
        ("of possible", |line| {
            part(line.summary.goodput / line.setup.most_goodput())
        }),
        ("peak/KiB", |line| kib(line.summary.peak)),
        ("drops", |line| line.summary.counts.drops.to_string()),
        ("fairness", |line| part(line.summary.fairness)),
        ("resent", |line| {
            line.summary.counts.retransmissions.to_string()
        }),
        ("requests", |line| line.summary.counts.requests.to_string()),
        ("spurious", |line| {
            line.summary.counts.spurious_requests.to_string()
        }),
        ("waiting", |line| line.summary.waiting.to_string()),
    ];

    fn run(&self, common: &Common) -> Result<Vec<Measured>> {
        common.check_message(self.bytes.unwrap_or(0))?;
        let mut lines = Vec::new();
        for (bits, buffer, (burst_length, packets_to_ack), bytes) in LINKS {
            let granted = Parameters {
                initial_ack_burst_length: self.initial,
                ..Parameters::default()
            };
            let fixed = parameters(burst_length, packets_to_ack, self.initial);
            for (esp, n) in self
                .senders
                .iter()
                .flat_map(|&n| [(fixed, n), (granted, n)])
            {
                let setup = common.setup(n, bits, buffer, esp);
                lines.push(Measured::new(common, setup, self.bytes.unwrap_or(bytes)));
            }
        }
        Ok(lines)
    }
}

/// Formats `burst_length` and `packets_to_ack`, or "granted" if the receiver grants other windows.
fn window(esp: Parameters) -> String {
    if Config::from(esp).is_adaptive() {
        "granted".to_owned()
    } else {
        format!("{}/{}", esp.burst_length, esp.packets_to_ack)
    }
}
