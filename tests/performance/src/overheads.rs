// SPDX-License-Identifier: GPL-2.0-only

//! Redraws the figures of processor costs: the overhead within a program's calls, and the hidden
//! overhead outside of calls.

use std::fmt::Write as _;

use anyhow::Result;
use netgauge::plot::axis::Scale;

use crate::page::{ahead, line, lines, over_sizes, table, Section};
use crate::results::{at, Results, Series, ALL, ESP, EZDP, PLAIN_TCP, TCP, UDP};
use crate::topics::Topic;
use crate::words::{beside, number, Better, KIB, MIB};

/// Redraws figures 17 and 18 of Treydte (2007).
pub fn logp(results: &Results) -> Result<Section> {
    let topic = "logp";
    let mut section = Section {
        title: "Send and receive overhead".to_owned(),
        sources: "Treydte 2007, figures 17 (averages, there measured through Open MPI, here on sockets as in 18) and 18 (minima), \
                  by the parameterised LogP model: the time of the call that sends a message, o_s(s), and of the call that \
                  receives a message which is already there, o_r(s)."
            .to_owned(),
        commands: vec![Topic::LogP.command()],
        ..Section::default()
    };
    for (name, title, field) in [
        ("send-overhead", "Send overhead", "send_overhead_ns"),
        (
            "receive-overhead",
            "Receive overhead",
            "receive_overhead_ns",
        ),
    ] {
        for (what, path) in [("average", "avg"), ("minimum", "min")] {
            let lines = lines(results, topic, &format!("{field}.{path}"));
            let title = format!("{title}, {what}");
            let chart = over_sizes(&title, "instructions", Scale::Logarithmic, lines);
            section.draw(&format!("{name}-{what}"), &chart)?;
        }
    }
    let send = "send_overhead_ns.min";
    section.table = Some(table(
        &lines(results, topic, send),
        "send overhead, minimum, instructions",
        &[1.0, 256.0, KIB, 4.0 * KIB, 64.0 * KIB],
    ));
    section.sentences.push(
        "On one processor the send call passes the packets to the other host before it returns, so o_s includes the receiving \
         host's softirq."
            .to_owned(),
    );
    let words = |path| ahead(results, (topic, path), ESP, &[TCP, PLAIN_TCP], Better::Less);
    for (what, path) in [("Sending", send), ("Receiving", "receive_overhead_ns.min")] {
        for sentence in words(path) {
            section.sentences.push(format!("{what}: {sentence}"));
        }
    }
    Ok(section)
}

/// One of the costs in the table, and the keys of its numbers in the results.
struct Cost {
    /// The cost's name within the keys of [`Results::numbers`]: `byte` in `softirq-byte/esp`, for
    /// example.
    key: &'static str,
    /// The cost's name in the page.
    name: &'static str,
    topic: Topic,
    size: f64,
    path: &'static str,
}

const COSTS: [Cost; 2] = [
    Cost {
        key: "message-1",
        name: "A message",
        topic: Topic::Dialogue,
        size: 1.0,
        path: "half_rtt_ns.median",
    },
    Cost {
        key: "byte",
        name: "A byte in bulk",
        topic: Topic::Bulk,
        size: 4.0 * MIB,
        path: "ns_per_byte",
    },
];

impl Cost {
    /// Returns the number of instructions of this cost, summed over both hosts.
    fn all(&self, results: &Results, series: Series) -> Option<f64> {
        let points = results.points(&self.topic.key(), series, self.path);
        at(&points, self.size)
    }

    /// Returns the share of the instructions that is executed in `part`, the kernel or its
    /// softirqs.
    fn share(&self, results: &Results, part: &str, series: Series) -> Option<f64> {
        results.number(&format!("{part}-{}", self.key), series)
    }

    /// Returns how many of this cost's instructions are executed in `part`, the kernel or its
    /// softirqs.
    fn part(&self, results: &Results, part: &str, series: Series) -> Option<f64> {
        Some(self.share(results, part, series)? * self.all(results, series)?)
    }

    /// Returns sentences about the share of the instructions that is executed in softirqs. A
    /// program does not see this share.
    fn sentences(&self, results: &Results) -> Vec<String> {
        let mut sentences = Vec::new();
        let share = |series| Some(self.share(results, "softirq", series)? * 100.0);
        if let (Some(esp), Some(tcp)) = (share(ESP), share(TCP)) {
            sentences.push(format!(
                "Of the instructions of {} {esp:.0} % are hidden over ESP and {tcp:.0} % over TCP.",
                self.name.to_lowercase()
            ));
        }
        let hidden = |series| self.part(results, "softirq", series);
        for other in [TCP, PLAIN_TCP] {
            if let (Some(esp), Some(tcp)) = (hidden(ESP), hidden(other)) {
                sentences.push(format!(
                    "{} has {} hidden instructions over ESP, {} the {} over {}.",
                    self.name,
                    number(esp),
                    beside(esp, tcp),
                    number(tcp),
                    other.name
                ));
            }
        }
        sentences
    }
}

/// Returns the table of all costs by series.
fn costs(results: &Results) -> String {
    let mut text = String::from(
        "| instructions, both ends | message | kernel | softirqs | byte | kernel | softirqs |\n|---|---:|---:|---:|---:|---:|---:|",
    );
    for series in ALL.into_iter().filter(|series| *series != EZDP) {
        let _ = write!(text, "\n| {} |", series.name);
        for cost in &COSTS {
            for cell in [
                cost.all(results, series),
                cost.part(results, "kernel", series),
                cost.part(results, "softirq", series),
            ] {
                let _ = write!(text, " {} |", cell.map_or_else(String::new, number));
            }
        }
    }
    text
}

/// Returns the section on overhead that Treydte's programs could not see (Treydte 2007, 6.4).
pub fn hidden(results: &Results) -> Section {
    Section {
        title: "The hidden overhead".to_owned(),
        sources: "Treydte 2007, 6.4, which has no figure: the part of a message's cost that no call of the program contains. The table \
                  has, for half a round trip of one byte and for a byte in bulk: all instructions of both hosts; those of them in the \
                  kernel; and those of them in softirqs, in which a host receives packets and acknowledgements and runs its timers. \
                  The last are hidden."
            .to_owned(),
        commands: vec![
            "make bench".to_owned(),
            Topic::Dialogue.command(),
            Topic::Bulk.command(),
        ],
        table: Some(costs(results)),
        sentences: COSTS.iter().flat_map(|cost| cost.sentences(results)).collect(),
        ..Section::default()
    }
}

/// Redraws figure 21 of Treydte (2007).
pub fn flood(results: &Results) -> Result<Section> {
    let path = "send_overhead_ns.avg";
    let records = "records";
    let with_records = |path: &str| {
        let mut drawn = lines(results, "flood", path);
        for series in [ESP, TCP, PLAIN_TCP] {
            let points = results.points(records, series, path);
            drawn.push(line(format!("{}, --eor", series.name), series, points));
        }
        drawn
    };
    let drawn = with_records(path);
    let mut section = Section {
        title: "Floods of small messages".to_owned(),
        sources: "Treydte 2007, figure 21: the send overhead of a flood, with and without several small messages in one packet. With \
                  `--eor` each call has a packet of its own."
            .to_owned(),
        commands: vec![Topic::Flood.command(), Topic::Records.command()],
        table: Some(table(
            &drawn,
            "send overhead, average, instructions",
            &[1.0, 16.0, 64.0, 256.0, KIB],
        )),
        ..Section::default()
    };
    let chart = over_sizes(
        "Send overhead of a flood",
        "instructions",
        Scale::FromZero,
        drawn,
    );
    section.draw("flood", &chart)?;
    let one = |topic, series| at(&results.points(topic, series, path), 1.0);
    if let (Some(before), Some(after)) = (one(records, ESP), one("flood", ESP)) {
        section.sentences.push(format!(
            "Over ESP a message of one byte takes {} instructions, {} the {} with a packet for each message.",
            number(after),
            beside(after, before),
            number(before)
        ));
    }
    let packets = |topic| at(&results.points(topic, ESP, "packets_per_message"), 1.0);
    if let (Some(before), Some(after)) = (packets(records), packets("flood")) {
        section.sentences.push(format!(
            "It takes {} packets per message instead of {}.",
            number(after),
            number(before)
        ));
    }
    section.sentences.extend(ahead(
        results,
        ("flood", path),
        ESP,
        &[TCP, PLAIN_TCP, UDP],
        Better::Less,
    ));
    Ok(section)
}
