// SPDX-License-Identifier: GPL-2.0-only

//! Reads the measured figures from netgauge's reports. A figure is a number with a transport and a
//! name.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::series::Series;

/// Prefix of the names of figures that are measured with a large MTU.
pub const JUMBO: &str = "jumbo-";

/// A measured number of instructions. It includes the work of both ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// netgauge's name for the transport.
    pub transport: String,
    /// The figure's name in the budgets, one of the names in [`super::series::SERIES`]. With the
    /// prefix `kernel-` or `softirq-`, the figure counts only the instructions that are executed in
    /// the kernel or in softirqs.
    pub name: String,
    /// Number of instructions; `None` if they could not be counted.
    pub count: Option<f64>,
}

/// The value in netgauge's report from which a figure is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Median of half a round trip with this number of bytes.
    HalfRoundTrip(u64),
    /// 99th percentile of half round trips with this number of bytes.
    Percentile99(u64),
    /// Time per byte of a stream, or of a series of datagrams.
    Byte,
    /// Time per message of a flood, from the first send to the last receive.
    Flood,
}

/// The part of netgauge's JSON report that is used here.
#[derive(Debug, Deserialize)]
pub struct Report {
    /// The runs, one per transport.
    pub runs: Vec<Run>,
}

/// The run of one transport.
#[derive(Debug, Deserialize)]
pub struct Run {
    /// The transport's name.
    pub transport: String,
    /// The pattern's name.
    pub pattern: String,
    /// The error, if the run failed.
    pub error: Option<String>,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    size: u64,
    half_rtt_ns: Option<Summary>,
    ns_per_byte: Option<f64>,
    messages_per_s: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Summary {
    median: u64,
    #[serde(default)]
    percentiles: BTreeMap<String, u64>,
}

impl Row {
    fn read(&self, reading: Reading) -> Option<f64> {
        match reading {
            Reading::HalfRoundTrip(_) => Some(self.half_rtt_ns.as_ref()?.median as f64),
            Reading::Percentile99(_) => {
                let percentiles = &self.half_rtt_ns.as_ref()?.percentiles;
                percentiles.get("99").map(|time| *time as f64)
            }
            Reading::Byte => self.ns_per_byte,
            Reading::Flood => self.messages_per_s.map(|rate| 1e9 / rate),
        }
    }
}

impl Report {
    /// Returns the figures of `series`. `self` must be the report of the run of `series`.
    pub fn figures(&self, series: &Series) -> Vec<Figure> {
        let of = |transport: &&'static str| {
            let figure = |(name, reading): &(&str, Reading)| Figure {
                transport: (*transport).to_owned(),
                name: (*name).to_owned(),
                count: self.read(transport, *reading),
            };
            series.figures.iter().map(figure).collect::<Vec<_>>()
        };
        series.transports.iter().flat_map(of).collect()
    }

    /// Returns the value of `reading` in the results of `transport`; `None` if measuring the
    /// transport failed.
    pub fn read(&self, transport: &str, reading: Reading) -> Option<f64> {
        let mut runs = self.runs.iter();
        let run = runs.find(|run| run.transport == transport && run.error.is_none())?;
        let row = match reading {
            Reading::HalfRoundTrip(size) | Reading::Percentile99(size) => {
                run.rows.iter().find(|row| row.size == size)
            }
            Reading::Byte | Reading::Flood => run.rows.first(),
        };
        row?.read(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::link::Link;

    fn figures(
        runs: &str,
        figures: &'static [(&'static str, Reading)],
    ) -> Vec<(String, Option<f64>)> {
        let text = format!(r#"{{"netgauge": "0.1.0", "peer": "10.0.0.2:2805", "runs": [{runs}]}}"#);
        let report: Report = serde_json::from_str(&text).unwrap();
        let series = Series {
            link: Link::Usual,
            transports: &["tcp", "esp"],
            pattern: "",
            tests: 1,
            warmup: 0,
            figures,
        };
        let figures = report.figures(&series).into_iter();
        figures
            .map(|figure| {
                (
                    format!("{} {}", figure.transport, figure.name),
                    figure.count,
                )
            })
            .collect()
    }

    #[test]
    fn a_report_gives_every_figure_or_says_that_it_is_missing() {
        let runs = r#"
            {"transport": "tcp", "about": "", "pattern": "one-one", "status": "ok", "rows": [
                {"size": 1, "tests": 9, "lost": 0, "mbit_per_s": 1.0, "half_rtt_ns":
                    {"min": 1, "avg": 1, "median": 17000, "max": 1, "percentiles": {"90": 1, "99": 18000}}}]},
            {"transport": "esp", "about": "", "pattern": "one-one", "status": "failed", "error": "no", "rows": []}"#;
        let wanted = &[
            ("message-1", Reading::HalfRoundTrip(1)),
            ("p99-message-1", Reading::Percentile99(1)),
            ("message-64", Reading::HalfRoundTrip(64)),
        ];
        let expected = [
            ("tcp message-1", Some(17_000.0)),
            ("tcp p99-message-1", Some(18_000.0)),
            ("tcp message-64", None),
            ("esp message-1", None),
            ("esp p99-message-1", None),
            ("esp message-64", None),
        ];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(figures(runs, wanted), expected);
    }

    #[test]
    fn bytes_and_floods_are_read() {
        let runs = r#"
            {"transport": "tcp", "about": "", "pattern": "bulk", "status": "ok", "rows": [
                {"size": 8388608, "tests": 3, "lost": 0, "mbit_per_s": 1.0,
                 "total_ns": {"min": 1, "avg": 1, "median": 1, "max": 1}, "ns_per_byte": 0.94}]}"#;
        let read = figures(runs, &[("byte", Reading::Byte)]);
        assert_eq!(read[0].1, Some(0.94));
        let runs = r#"
            {"transport": "esp", "about": "", "pattern": "flood", "status": "ok", "rows": [
                {"size": 1, "tests": 3, "lost": 0, "mbit_per_s": 1.0, "messages_per_s": 500000.0}]}"#;
        let read = figures(runs, &[("flood-1", Reading::Flood)]);
        assert_eq!(read[1].1, Some(2000.0));
    }
}
