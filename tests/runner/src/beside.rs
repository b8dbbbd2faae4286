// SPDX-License-Identifier: GPL-2.0-only

//! Measures loaded latency on the switch of [`incast`](super::incast): the time from a short
//! request, called a question, to its answer while streams occupy the port.

use std::fmt::Write as _;

use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;

use crate::commands::json;

/// The host that answers the questions; its port is the bottleneck.
pub const RECEIVER: &str = "h0";

/// Pairs of a question's size in bytes and a limit in microseconds. While at most `MOST_STREAMS`
/// streams run, the 99th percentile of ESP's times must not exceed the limit.
const MOST: [(u64, f64); 2] = [(100, 900.0), (10_000, 2_500.0)];
const MOST_STREAMS: u32 = 16;

/// The least share of the port's rate that the payload of ESP's streams must have. If each question
/// follows the previous answer without a pause, the payload of the questions counts, too. The
/// largest possible share is 0.983: 1489 bytes of payload in a frame of 1514 bytes.
const LEAST_SHARE: f64 = 0.97;

/// The limit for a stream's longest pause: the time in which each stream gets this many turns. In a
/// turn, the receiver permits a stream to send a burst.
const MOST_TURNS: u32 = 4;

/// The bits that a stream sends in a turn: a burst of 21 packets, each in a frame of 1514 bytes.
const TURN: u32 = 21 * 1514 * 8;

/// The results for one size of questions.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    size: u64,
    errors: u64,
    /// Median time from a question to its answer without streams, nanoseconds.
    pub alone_median_ns: u64,
    median_ns: u64,
    /// The 99th percentile of the times while streams run, nanoseconds.
    pub p99_ns: u64,
    p99_slowdown: f64,
    longest_pause_ns: u64,
    share: Share,
}

#[derive(Clone, Debug, Deserialize)]
struct Share {
    median: f64,
}

/// The results of one protocol with one number of streams.
#[derive(Clone, Debug)]
pub struct Line {
    /// ESP, or the congestion control of TCP.
    pub protocol: String,
    /// Number of streams.
    pub streams: u32,
    /// Milliseconds from an answer to the next question.
    pub pause: u32,
    /// Rows by size.
    pub rows: Vec<Row>,
    /// Frames that the receiver's port dropped.
    pub drops: u64,
    /// The port's rate, bit/s.
    pub rate: f64,
}

/// Reads netgauge's report and the switch's counters that follow the report.
///
/// # Errors
/// If either is missing, or netgauge reports an error.
pub fn read(text: &str, protocol: &str, (streams, pause): (u32, u32)) -> Result<Line> {
    #[derive(Deserialize)]
    struct Report {
        rate_bit_per_s: f64,
        runs: Vec<Run>,
    }
    #[derive(Deserialize)]
    struct Run {
        error: Option<String>,
        rows: Vec<Row>,
    }
    #[derive(Deserialize)]
    struct Counters {
        ports: Vec<Port>,
    }
    #[derive(Deserialize)]
    struct Port {
        host: String,
        dropped_packets: u64,
    }
    let mut values = json(text);
    let mut next = || {
        values
            .next()
            .context("netgauge or enet-switch printed no report")?
    };
    let report: Report = serde_json::from_value(next()?).context("netgauge's report")?;
    let counters: Counters = serde_json::from_value(next()?).context("enet-switch's counters")?;
    let run = report.runs.into_iter().next();
    let run = run.context("netgauge measured nothing")?;
    if let Some(error) = run.error {
        bail!("{error}");
    }
    ensure!(
        run.rows.iter().all(|row| row.errors == 0),
        "questions failed"
    );
    let mut ports = counters.ports.iter();
    let port = ports.find(|port| port.host == RECEIVER);
    Ok(Line {
        protocol: protocol.to_owned(),
        streams,
        pause,
        rows: run.rows,
        rate: report.rate_bit_per_s,
        drops: port.context("the receiver has no port")?.dropped_packets,
    })
}

impl Row {
    /// Returns the share of the rate (bit/s) that streams and questions use together. Assumes that
    /// each question takes the median time, and is sent `pause` milliseconds after the previous
    /// answer.
    fn all(&self, rate: f64, pause: u32) -> f64 {
        let every = self.median_ns as f64 + f64::from(pause) * 1e6;
        let questions = self.size as f64 * 8e9 / every.max(1.0);
        self.share.median + questions / rate
    }
}

pub fn print(lines: &[Line]) -> String {
    let mut text = "\nOne host asks, so many ms after each answer, while others stream to the same receiver: times of questions in us,\n\
                    without streams and beside them; the streams' share of the rate, and that of all, and the longest time in ms that a stream waited; frames dropped with all \
                    sizes.\n\n\
                    protocol  streams  pause  question/B |   alone |     p50      p99  slowdown | streams    all   longest |   drops\n\
                    -------------------------------------+---------+---------------------------+--------------------------+--------\n"
        .to_owned();
    let micros = |ns: u64| ns as f64 / 1e3;
    for line in lines {
        for row in &line.rows {
            let _ = writeln!(
                text,
                "{:9} {:7} {:6} {:11} | {:>7.0} | {:>7.0} {:>8.0} {:>9.1} |  {:>6.3} {:>6.3} {:>9.1} | {:>7}",
                line.protocol,
                line.streams,
                line.pause,
                row.size,
                micros(row.alone_median_ns),
                micros(row.median_ns),
                micros(row.p99_ns),
                row.p99_slowdown,
                row.share.median,
                row.all(line.rate, line.pause),
                micros(row.longest_pause_ns) / 1e3,
                line.drops,
            );
        }
    }
    text
}

/// Describes each result of ESP that exceeds a limit.
pub fn judge(lines: &[Line]) -> Vec<String> {
    let mut faults = Vec::new();
    for line in lines.iter().filter(|line| line.protocol == "esp") {
        let mut fault = |what: String| {
            faults.push(format!(
                "esp, questions beside {} streams, {} ms between them: {what}",
                line.streams, line.pause
            ));
        };
        if line.drops > 0 {
            fault(format!("{} frames were dropped", line.drops));
        }
        for row in &line.rows {
            let most = MOST.iter().find(|(size, _)| *size == row.size);
            let most = most.filter(|_| line.streams <= MOST_STREAMS);
            let micros = row.p99_ns as f64 / 1e3;
            if let Some((size, most)) = most.filter(|(_, most)| micros > *most) {
                fault(format!(
                    "{size} bytes take {micros:.0} us, more than {most}"
                ));
            }
            let longest = f64::from(line.streams * MOST_TURNS * TURN) / line.rate * 1e3;
            let pause = row.longest_pause_ns as f64 / 1e6;
            if pause > longest {
                fault(format!(
                    "a stream waited {pause:.1} ms, more than {longest:.1}"
                ));
            }
            let (who, share) = match line.pause {
                0 => ("all have", row.all(line.rate, 0)),
                _ => ("the streams have", row.share.median),
            };
            if share < LEAST_SHARE {
                fault(format!(
                    "{who} {share:.3} of the rate, less than {LEAST_SHARE}"
                ));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"rate_bit_per_s": 200000000, "runs": [{"transport": "esp", "status": "ok", "rows": [{"size": 10000, "rounds": 300, "errors": 0,
        "goodput_bit_per_s": {"worst": 1, "median": 1, "best": 1}, "share": {"worst": 0.7, "median": 0.7, "best": 0.7},
        "alone_median_ns": 592000, "alone_p99_ns": 600000, "median_ns": 1400000, "p90_ns": 1500000, "p99_ns": 1700000,
        "max_ns": 1800000, "median_slowdown": 2.4, "p99_slowdown": 2.9, "longest_pause_ns": 19900000}]}]}
        {"ports": [{"host": "h1", "dropped_packets": 9}, {"host": "h0", "dropped_packets": 0}]}"#;

    #[test]
    fn a_line_has_the_questions_and_the_receivers_drops() {
        let line = read(TEXT, "esp", (16, 0)).unwrap();
        assert_eq!(line.drops, 0);
        let text = print(std::slice::from_ref(&line));
        let expected = "esp            16      0       10000 |     592 |    1400     1700       2.9 |   0.700  0.986      19.9 |       0";
        assert!(text.contains(expected), "{text}");
        assert_eq!(judge(&[line]), Vec::<String>::new());
        assert!(read(&TEXT.replace("h0", "h2"), "esp", (16, 0)).is_err());
    }

    #[test]
    fn only_esp_is_judged() {
        let slow = TEXT
            .replace("1700000", "2600000")
            .replace(r#""median": 0.7"#, r#""median": 0.6"#);
        let judged = |text: &str, protocol, streams| {
            judge(&[read(text, protocol, (streams, 0)).unwrap()]).len()
        };
        assert_eq!(judged(&slow, "esp", 16), 2);
        let pause = TEXT.replace("19900000", "82000000");
        assert_eq!(judged(&pause, "esp", 16), 1);
        assert_eq!(judged(&slow, "esp", 32), 1);
        assert_eq!(judged(&slow, "cubic", 16), 0);
        let drops = TEXT.replace(
            r#""h0", "dropped_packets": 0"#,
            r#""h0", "dropped_packets": 1"#,
        );
        assert_eq!(judged(&drops, "esp", 4), 1);
        // With pauses, the questions need almost no bandwidth, so only the streams' share is
        // judged.
        assert_eq!(judge(&[read(TEXT, "esp", (16, 50)).unwrap()]).len(), 1);
    }
}
