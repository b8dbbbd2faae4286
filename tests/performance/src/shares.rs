// SPDX-License-Identifier: GPL-2.0-only

//! Redraws the figures of a shared link, and of a new connection.

use std::fmt::Write as _;

use anyhow::Result;
use netgauge::plot::axis::Scale;

use crate::page::{lines, over_sizes, table, Section};
use crate::results::{at, Results, Series, ESP, TCP};
use crate::topics::{Topic, BUFFER, CONGESTIONS, LONG, LONG_CABLE, MARKS, RATE};
use crate::words::{beside, list, number, KIB, MIB};

/// Returns the section on new connections (Treydte 2007, 6.1.2).
pub fn ramp_up(results: &Results) -> Result<Section> {
    let (topic, path) = ("ramp-up", "connection_ns.median");
    let mut drawn = lines(results, topic, path);
    for line in &mut drawn {
        for point in &mut line.points {
            point.1 /= 1e3;
        }
    }
    let (rate, round_trip) = LONG;
    // The minimum is two round trips, one for the handshake and one for the message with its echo,
    // plus the transmission times of message and echo.
    let least = |size: f64| (2.0 * round_trip + 2.0 * size * 8e9 / rate) / 1e3;
    let mut section = Section {
        title: "Ramp-up".to_owned(),
        sources: format!(
            "Treydte 2007, 6.1.2, which calculates it: how fast a new connection fills the link. Each connection carries one message \
             and its echo, by a cable with {} Gbit/s and a round trip of {} us, and is closed.",
            number(rate / 1e9),
            number(round_trip / 1e3)
        ),
        commands: vec![
            format!("tc qdisc add dev DEVICE root netem {LONG_CABLE}"),
            Topic::RampUp.command(),
        ],
        table: Some(table(
            &drawn,
            "us from connect to close",
            &[KIB, 4.0 * KIB, 16.0 * KIB, 64.0 * KIB, 256.0 * KIB, MIB],
        )),
        ..Section::default()
    };
    for size in [64.0 * KIB, MIB] {
        let time = |series: Series| Some(at(&results.points(topic, series, path), size)? / 1e3);
        if let (Some(esp), Some(tcp)) = (time(ESP), time(TCP)) {
            section.sentences.push(format!(
                "At {} a new connection of ESP takes {} us, {} TCP's {}; two round trips and the bytes alone are {} us.",
                crate::words::size(size),
                number(esp),
                beside(esp, tcp),
                number(tcp),
                number(least(size))
            ));
        }
    }
    let chart = over_sizes(
        "A message and its echo by a new connection",
        "us",
        Scale::Logarithmic,
        drawn,
    );
    section.draw("ramp-up", &chart)?;
    Ok(section)
}

/// Returns the section on ESP and TCP streams that share a port (Treydte 2007, 6.1.3).
pub fn beside_tcp(results: &Results) -> Section {
    let share = |congestion: &str, series| {
        let topic = format!("{}-{congestion}", Topic::Beside.key());
        Some(results.points(&topic, series, "share.median").first()?.1)
    };
    let mut text =
        String::from("| part of the port's rate | ESP | TCP | both |\n|---|---:|---:|---:|");
    let mut of_both = Vec::new();
    for congestion in CONGESTIONS {
        if let (Some(esp), Some(tcp)) = (share(congestion, ESP), share(congestion, TCP)) {
            let both = esp + tcp;
            let _ = write!(
                text,
                "\n| TCP {congestion} | {esp:.2} | {tcp:.2} | {both:.2} |"
            );
            of_both.push(format!("{:.0} % beside {congestion}", 100.0 * esp / both));
        }
    }
    Section {
        title: "Beside TCP on one port".to_owned(),
        sources: format!(
            "Treydte 2007, 6.1.3, which calculates 10 % for ESP beside Reno and 56 % beside Vegas: a stream of ESP and one of TCP from \
             two hosts to a third, by a port of {} Mbit/s with 128 KiB; each is measured while the other one goes on. For dctcp the port \
             marks packets from 30 KiB on.",
            number(RATE.2 / 1e6)
        ),
        commands: vec![
            format!(
                "enet-switch up --hosts 3 --rate {} --buffer {BUFFER}        # for dctcp with --ecn {MARKS}",
                RATE.0
            ),
            format!("netgauge -m esp {}", Topic::Beside.arguments()),
            "netgauge -m tcp --congestion NAME ...        # from h2 at the same time".to_owned(),
        ],
        table: Some(text),
        sentences: vec![
            format!("Of what both carry ESP has {}.", list(&of_both)),
            "A stream of TCP with reno or cubic fills the port's buffer until it loses packets, vegas aims at two to four packets in it, \
             and ESP's window is at most what the receiver grants. So the shares follow the packets that each has in the buffer, as \
             the thesis says."
                .to_owned(),
        ],
        ..Section::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_shares_beside_vegas_are_told_as_the_others() {
        let mut results = Results::default();
        for congestion in CONGESTIONS {
            let topic = format!("{}-{congestion}", Topic::Beside.key());
            for (series, share) in [(ESP, 0.3), (TCP, 0.6)] {
                let rows = [json!({"size": 1 << 23, "share": {"median": share}})];
                let runs = [json!({"transport": series.transport, "rows": rows})];
                results.take(&topic, &[series], &json!({ "runs": runs }));
            }
        }
        let section = beside_tcp(&results);
        let table = section.table.unwrap();
        assert!(
            table.contains("\n| TCP vegas | 0.30 | 0.60 | 0.90 |"),
            "{table}"
        );
        let told = &section.sentences[0];
        assert!(told.contains("33 % beside vegas"), "{told}");
    }
}
