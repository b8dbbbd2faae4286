//! Figures of what communication costs a processor: overheads that a program sees, and those that it does not.

use std::fmt::Write as _;

use anyhow::Result;
use netgauge::plot::axis::Scale;

use crate::page::{ahead, line, lines, over_sizes, table, Section};
use crate::results::{at, Results, ALL, ESP, PLAIN_TCP, TCP, UDP};
use crate::topics::Topic;
use crate::words::{beside, number, Better, KIB, MIB};

/// Treydte 17 and 18.
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

/// Treydte 6.4: what his programs could not see.
pub fn hidden(results: &Results) -> Section {
    let figures = [
        (
            "message-1",
            "A message",
            Topic::Dialogue,
            1.0,
            "half_rtt_ns.median",
        ),
        (
            "byte",
            "A byte in bulk",
            Topic::Bulk,
            4.0 * MIB,
            "ns_per_byte",
        ),
    ];
    let all = |(_, _, topic, size, path): (&str, &str, Topic, f64, &str), series| {
        at(&results.points(&topic.key(), series, path), size)
    };
    let part = |part: &str, figure: (&str, &str, Topic, f64, &str), series| {
        let share = results.number(&format!("{part}-{}", figure.0), series)?;
        Some(share * all(figure, series)?)
    };
    let mut text = String::from(
        "| instructions, both ends | message | kernel | softirqs | byte | kernel | softirqs |\n|---|---:|---:|---:|---:|---:|---:|",
    );
    for series in ALL {
        let _ = write!(text, "\n| {} |", series.name);
        for figure in figures {
            let cells = [
                all(figure, series),
                part("kernel", figure, series),
                part("softirq", figure, series),
            ];
            for cell in cells {
                let _ = write!(text, " {} |", cell.map_or_else(String::new, number));
            }
        }
    }
    let mut section = Section {
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
        table: Some(text),
        ..Section::default()
    };
    for figure in figures {
        let share = |series| results.number(&format!("softirq-{}", figure.0), series);
        if let (Some(esp), Some(tcp)) = (share(ESP), share(TCP)) {
            section.sentences.push(format!(
                "Of the instructions of {} {:.0} % are hidden over ESP and {:.0} % over TCP.",
                figure.1.to_lowercase(),
                esp * 100.0,
                tcp * 100.0
            ));
        }
        for other in [TCP, PLAIN_TCP] {
            let hidden = |series| part("softirq", figure, series);
            if let (Some(esp), Some(tcp)) = (hidden(ESP), hidden(other)) {
                section.sentences.push(format!(
                    "{} has {} hidden instructions over ESP, {} the {} over {}.",
                    figure.1,
                    number(esp),
                    beside(esp, tcp),
                    number(tcp),
                    other.name
                ));
            }
        }
    }
    section
}

/// Treydte 21.
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
