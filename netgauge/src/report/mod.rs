// SPDX-License-Identifier: MIT OR Apache-2.0

//! The results, and the [forms](mod@format) in which they are printed.

pub(crate) mod columns;
mod csv;
pub mod format;
mod measured;
pub mod record;
mod table;

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use measured::Measured;
use record::Record;

use crate::host::descriptors_hint;
use crate::summary::Percent;
use crate::transport::kind::Kind;
use crate::transport::{self, SocketOptions};

/// The results of a client. Programs read them as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// netgauge's version.
    pub netgauge: String,
    /// The server's address. In `netgauge polled`, where one thread holds both ends, the second
    /// end.
    pub peer: String,
    /// The time, the command and the hosts of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
    /// A run per pattern and transport, in the order measured.
    pub runs: Vec<Run>,
    /// Transports that were left out, if the user asked for all transports or all patterns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// A transport that does not work here, or does not suit a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The transport's name.
    pub transport: String,
    /// The name of the pattern that left the transport out. `None` means that all patterns did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The reason, and what the user can do about it.
    pub reason: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "left out: {}: {}", self.title(), self.reason)
    }
}

impl LeftOut {
    /// Returns the entry for a transport that was left out for this reason. If `pattern` is given,
    /// only this pattern left the transport out, otherwise all patterns did.
    pub(crate) fn new(kind: &Kind, pattern: Option<&str>, reason: &anyhow::Error) -> Self {
        Self {
            transport: kind.name.to_owned(),
            pattern: pattern.map(str::to_owned),
            reason: format!("{reason:#}"),
        }
    }

    /// Returns whether all patterns left out `kind` because it does not work here.
    pub(crate) fn is_of(&self, kind: &Kind) -> bool {
        self.pattern.is_none() && self.transport == kind.name
    }

    /// Returns the name of the transport, and the name of the pattern if only one pattern left the
    /// transport out.
    pub fn title(&self) -> String {
        match &self.pattern {
            None => self.transport.clone(),
            Some(pattern) => format!("{}, {pattern}", self.transport),
        }
    }
}

impl Report {
    /// Returns a report without runs.
    pub fn new(peer: impl fmt::Display, record: Record) -> Self {
        Self {
            netgauge: env!("CARGO_PKG_VERSION").to_owned(),
            peer: peer.to_string(),
            record: Some(record),
            runs: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Returns whether all runs were successful.
    pub fn is_complete(&self) -> bool {
        self.runs.iter().all(|run| run.outcome == Outcome::Ok)
    }

    /// Returns the errors of failed runs, with the runs' names. An error that successive runs share
    /// appears once.
    pub fn errors(&self) -> Vec<String> {
        errors(&self.runs)
    }

    /// Returns the percentiles of all times in the report.
    fn percents(&self) -> BTreeSet<Percent> {
        let rows = self.runs.iter().flat_map(|run| &run.rows);
        let percents = rows.flat_map(|row| row.measured.times().percentiles.keys());
        percents.copied().collect()
    }
}

/// The results for one transport and one pattern and, in patterns with clients, for one number of
/// clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run<R = Row> {
    /// Transport's name.
    pub transport: String,
    /// A description of the transport in one line.
    pub about: String,
    /// The pattern's name, if the report may have several patterns.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pattern: String,
    /// Name of TCP's congestion control, if one was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// The server and its clients, in a pattern between more than two hosts that has these roles.
    #[serde(flatten)]
    pub cast: Option<Cast>,
    /// Success, or the error that ended the run.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// A row per size, ascending. A failed run has the rows measured before the failure.
    pub rows: Vec<R>,
}

/// A server and its clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cast {
    /// Number of clients.
    pub clients: usize,
    /// The server's name.
    pub server: String,
    /// The server's index.
    pub server_index: usize,
}

impl<R> Run<R> {
    /// Returns a run of the transport `kind`. `sockets` are the options of the transport's sockets,
    /// and `pattern` is the pattern's name.
    pub fn new(
        kind: &Kind,
        sockets: &SocketOptions,
        pattern: &str,
        outcome: Outcome,
        rows: Vec<R>,
    ) -> Self {
        Self {
            transport: kind.name.to_owned(),
            about: kind.describe(sockets),
            pattern: pattern.to_owned(),
            congestion: None,
            cast: None,
            outcome,
            rows,
        }
    }

    /// Returns the transport's name, with its congestion control if one was chosen.
    pub fn medium(&self) -> String {
        transport::medium(&self.transport, self.congestion.as_deref())
    }

    /// Returns the run's name, for messages to the user.
    pub fn title(&self) -> String {
        let mut parts = vec![self.medium()];
        parts.extend(Some(self.pattern.clone()).filter(|pattern| !pattern.is_empty()));
        parts.extend(self.cast.as_ref().map(|cast| clients(cast.clients)));
        parts.join(", ")
    }

    /// Returns whether both runs failed with the same error, and neither has a row.
    fn failed_like(&self, other: &Self) -> bool {
        let empty = self.rows.is_empty() && other.rows.is_empty();
        empty && self.outcome != Outcome::Ok && self.outcome == other.outcome
    }
}

/// Formats a number of clients in words.
pub(crate) fn clients(count: usize) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} client{s}")
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Outcome {
    /// All sizes were measured.
    Ok,
    /// An error ended the run.
    Failed {
        /// The error, and what the user can do about it.
        error: String,
    },
}

impl Outcome {
    /// Returns the outcome of a run that failed with this error.
    pub(crate) fn failed(error: &anyhow::Error) -> Self {
        let error = match descriptors_hint(error) {
            Some(hint) => format!("{hint}: {error:#}"),
            None => format!("{error:#}"),
        };
        Self::Failed { error }
    }
}

/// Returns the names of runs.
fn titles<R>(runs: &[Run<R>]) -> String {
    let titles: Vec<_> = runs.iter().map(Run::title).collect();
    titles.join("; ")
}

/// Returns the errors of failed runs, with the runs' names. An error that successive runs share
/// appears once.
pub(crate) fn errors<R>(runs: &[Run<R>]) -> Vec<String> {
    let alike = runs.chunk_by(Run::failed_like);
    let failed = alike.filter_map(|runs| match &runs[0].outcome {
        Outcome::Ok => None,
        Outcome::Failed { error } => Some(format!("{}: {error}", titles(runs))),
    });
    failed.collect()
}

/// The results for one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The size of a message, or of a bulk transfer, bytes.
    pub size: u64,
    /// Number of tests measured.
    pub tests: u32,
    /// The number of tests that were lost and repeated. In patterns that do not repeat tests, the
    /// number of tests that were lost.
    pub lost: u32,
    /// Throughput in one direction, 10^6 bit/s. In most patterns, it is the size divided by the
    /// median of the times.
    pub mbit_per_s: f64,
    /// The pattern's results.
    #[serde(flatten)]
    pub measured: Measured,
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::summary::{tests::percents, Summary};

    /// Returns a summary with these four values in nanoseconds. Its other values are derived from
    /// the four.
    pub(crate) fn summary([min, avg, median, max]: [u64; 4]) -> Summary {
        let above = |(percent, distance)| (percent, max - distance);
        Summary {
            min,
            avg,
            median,
            max,
            stddev: (max - min) / 7,
            percentiles: percents()
                .into_iter()
                .zip([300, 200, 100])
                .map(above)
                .collect(),
            outliers: 2,
        }
    }

    fn row(size: u64, median: u64) -> Row {
        let half_rtt_ns = summary([median - 500, median + 7, median, median * 3]);
        Row {
            size,
            tests: 100,
            lost: u32::from(size == 64),
            mbit_per_s: crate::summary::mbit_per_s(size, median),
            measured: Measured::HalfRoundTrip { half_rtt_ns },
        }
    }

    pub(crate) fn run(transport: &str, pattern: &str, outcome: Outcome, rows: Vec<Row>) -> Run {
        let about = format!("about {transport}");
        let (transport, pattern) = (transport.to_owned(), pattern.to_owned());
        Run {
            transport,
            about,
            pattern,
            congestion: None,
            cast: None,
            outcome,
            rows,
        }
    }

    /// Returns a report with several runs: two transports that were measured, one that failed, and
    /// one that was measured with bulk.
    pub(crate) fn report() -> Report {
        let rows = |base| {
            [1, 64, 1024, 65_536]
                .map(|size| row(size, base + size))
                .to_vec()
        };
        let total_ns = summary([900_000, 1_000_000, 1_048_576, 2_000_000]);
        let bulk = Row {
            size: 1 << 20,
            tests: 10,
            lost: 0,
            mbit_per_s: 8000.0,
            measured: Measured::Bulk {
                total_ns,
                ns_per_byte: 1.0,
            },
        };
        let failed = Outcome::Failed {
            error: "no module: run `modprobe enet`, please".to_owned(),
        };
        Report {
            netgauge: "0.1.0".to_owned(),
            peer: "10.0.0.2:2805".to_owned(),
            record: None,
            runs: vec![
                run("tcp", "one-one", Outcome::Ok, rows(17_000)),
                run("udp", "one-one", Outcome::Ok, rows(13_700)),
                run("esp", "one-one", failed, Vec::new()),
                run("tcp", "bulk", Outcome::Ok, vec![bulk]),
            ],
            left_out: vec![LeftOut {
                transport: "tipc".to_owned(),
                pattern: None,
                reason: "no module".to_owned(),
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::format::Format;
    use super::*;
    use serde_json::{json, Value};

    fn printed(format: Format) -> String {
        let mut out = Vec::new();
        samples::report().write(format, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_has_the_documented_names_and_whole_nanoseconds() {
        let report: Value = serde_json::from_str(&printed(Format::Json)).unwrap();
        assert_eq!(report["peer"], "10.0.0.2:2805");
        let run = &report["runs"][0];
        assert_eq!(
            (&run["transport"], &run["pattern"]),
            (&json!("tcp"), &json!("one-one"))
        );
        assert_eq!(run["status"], "ok");
        let row = &run["rows"][1];
        assert_eq!(
            row["half_rtt_ns"],
            json!({
                "min": 16_564, "avg": 17_071, "median": 17_064, "max": 51_192, "stddev": 4946,
                "percentiles": {"90": 50_892, "95": 50_992, "99": 51_092}, "outliers": 2,
            })
        );
        assert_eq!(
            (&row["size"], &row["tests"], &row["lost"]),
            (&json!(64), &json!(100), &json!(1))
        );
        assert!(row["mbit_per_s"].is_f64());

        let failed = &report["runs"][2];
        assert_eq!(failed["status"], "failed");
        assert!(failed["error"].as_str().unwrap().contains("modprobe"));
        assert_eq!(failed["rows"], json!([]));

        let bulk = &report["runs"][3]["rows"][0];
        assert_eq!(bulk["total_ns"]["median"], 1_048_576);
        assert_eq!(bulk["ns_per_byte"], 1.0);
    }

    #[test]
    fn the_record_is_in_every_form_of_a_report() {
        let mut report = samples::report();
        report.record = Some(record::tests::sample());
        let printed = |format| {
            let mut out = Vec::new();
            report.write(format, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let table = printed(Format::Table);
        assert!(
            table.starts_with("2026-11-21T16:00:00Z: netgauge"),
            "{table}"
        );
        assert!(table.contains("\n\ntcp: about tcp (one-one)\n"), "{table}");
        let csv = printed(Format::Csv);
        assert!(
            csv.starts_with("# started: 2026-11-21T16:00:00Z\n"),
            "{csv}"
        );
        assert!(csv.contains("\ntransport,pattern,times,size,"), "{csv}");
        let json: Value = serde_json::from_str(&printed(Format::Json)).unwrap();
        let server = &json["record"]["hosts"]["server"];
        assert_eq!(server["device"]["driver"], "virtio_net");
        assert_eq!(server["esp"]["burst_length"], "32");
        assert_eq!(serde_json::from_value::<Report>(json).unwrap(), report);
    }

    #[test]
    fn json_reads_back_as_what_was_printed() {
        let report: Report = serde_json::from_str(&printed(Format::Json)).unwrap();
        assert_eq!(report, samples::report());
        assert!(!report.is_complete());
    }
}
