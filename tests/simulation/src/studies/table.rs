//! Goodput over links and numbers of senders.

use std::io::Write;

use esp::Config;
use serde::Serialize;

use super::{parameters, Common, GIGABIT};
use crate::report::{kib, part, rate, Table};
use crate::rounds::{measure, Message, Summary};
use crate::simulation::{Parameters, Setup};

/// A link, its switch's buffer and the parameters for it.
struct Link {
    bits: u64,
    buffer: u32,
    burst_length: u16,
    packets_to_ack: u16,
    /// What each sender sends in a round, bytes: enough that the beginning does not tell.
    bytes: u64,
}

const LINKS: [Link; 7] = [
    Link {
        bits: GIGABIT / 5,
        buffer: 128 << 10,
        burst_length: 21,
        packets_to_ack: 10,
        bytes: 64 << 10,
    },
    Link {
        bits: GIGABIT / 5,
        buffer: 128 << 10,
        burst_length: 21,
        packets_to_ack: 10,
        bytes: 256 << 10,
    },
    Link {
        bits: GIGABIT,
        buffer: 128 << 10,
        burst_length: 21,
        packets_to_ack: 10,
        bytes: 256 << 10,
    },
    Link {
        bits: 10 * GIGABIT,
        buffer: 256 << 10,
        burst_length: 21,
        packets_to_ack: 10,
        bytes: 1 << 20,
    },
    Link {
        bits: 10 * GIGABIT,
        buffer: 256 << 10,
        burst_length: 64,
        packets_to_ack: 32,
        bytes: 1 << 20,
    },
    Link {
        bits: 25 * GIGABIT,
        buffer: 512 << 10,
        burst_length: 96,
        packets_to_ack: 48,
        bytes: 2 << 20,
    },
    Link {
        bits: 100 * GIGABIT,
        buffer: 2 << 20,
        burst_length: 256,
        packets_to_ack: 96,
        bytes: 4 << 20,
    },
];

/// One line of the table.
#[derive(Debug, Serialize)]
pub struct Line {
    setup: Setup,
    bytes: u64,
    #[serde(flatten)]
    summary: Summary,
}

/// Runs all links with all numbers of senders; `bytes`: instead of each link's own.
pub fn run(
    common: &Common,
    senders: &[usize],
    initial_ack_burst_length: u16,
    bytes: Option<u64>,
) -> Vec<Line> {
    let mut lines = Vec::new();
    for link in &LINKS {
        let granted = Parameters {
            initial_ack_burst_length,
            ..Parameters::default()
        };
        let fixed = parameters(
            link.burst_length,
            link.packets_to_ack,
            initial_ack_burst_length,
        );
        for (esp, n) in senders.iter().flat_map(|&n| [(fixed, n), (granted, n)]) {
            let setup = common.setup(n, link.bits, link.buffer, esp);
            let bytes = bytes.unwrap_or(link.bytes);
            let workload = common.workload(Message::Bytes(bytes));
            lines.push(Line {
                summary: measure(setup.clone(), &workload),
                setup,
                bytes,
            });
        }
    }
    lines
}

/// Prints the table.
pub fn print(lines: &[Line], out: &mut dyn Write) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        "link",
        "buffer/KiB",
        "burst/ack",
        "KiB",
        "N",
        "goodput",
        "worst",
        "of possible",
        "peak/KiB",
        "drops",
        "fairness",
        "resent",
        "requests",
        "spurious",
        "waiting",
    ]);
    for line in lines {
        let Summary { counts, .. } = &line.summary;
        table.line([
            rate(line.setup.rate.bits),
            (line.setup.buffer >> 10).to_string(),
            match line.setup.esp {
                esp if Config::from(esp).is_adaptive() => "granted".to_owned(),
                esp => format!("{}/{}", esp.burst_length, esp.packets_to_ack),
            },
            (line.bytes >> 10).to_string(),
            line.setup.senders.to_string(),
            part(line.summary.goodput),
            part(line.summary.worst_goodput),
            part(line.summary.goodput / line.setup.most_goodput()),
            kib(line.summary.peak),
            counts.drops.to_string(),
            part(line.summary.fairness),
            counts.retransmissions.to_string(),
            counts.requests.to_string(),
            counts.spurious_requests.to_string(),
            line.summary.waiting.to_string(),
        ]);
    }
    table.write(out)?;
    Ok(())
}
