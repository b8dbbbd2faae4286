// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads saved results of any pattern. A run has the results of one transport, and a row has the
//! results of one size. A field of a row is a time if its name ends in `_ns`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{bail, ensure, Context as _, Result};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use crate::group::coordinator::esp_params::{self, ParamsReport};
use crate::report::record::Record;
use crate::transport;

/// A hint for error messages: how to save results in a file.
const HOW: &str = "save results with `netgauge --format json ... > FILE`";

/// A file of results.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Results {
    /// Name of the file without its directory and extension.
    pub(super) name: String,
    /// The record of the run: its time, its command and its hosts.
    pub(super) record: Option<Record>,
    /// The runs, or the report on esp-params.
    pub(super) measured: Measured,
}

/// The results of a file, by the kind of report.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Measured {
    /// Runs of any pattern other than esp-params.
    Runs(Vec<Run>),
    /// The results of esp-params.
    Params(Box<ParamsReport>),
}

/// The results of one transport, measured with one pattern.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    /// Transport's name, and its congestion control if one was chosen.
    pub(super) transport: String,
    /// Pattern's name.
    pub(super) pattern: String,
    /// Number of clients, in patterns with clients.
    pub(super) clients: Option<u64>,
    /// A row per size.
    pub(super) rows: Vec<Row>,
}

/// The results for one size.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// The size, bytes.
    pub(super) size: u64,
    /// The median of each kind of time, nanoseconds. The key is the kind's name, without the unit.
    pub(super) times: BTreeMap<String, f64>,
    /// The throughput, Mbit/s. In patterns between more than two hosts, it is the goodput of all
    /// clients, or the rate of one host.
    pub(super) mbit_per_s: Option<f64>,
}

impl Results {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or has no results of netgauge.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("reading {shown}"))?;
        let name = path.file_stem().unwrap_or(path.as_os_str());
        Self::parse(&name.to_string_lossy(), &text).with_context(|| shown.to_string())
    }

    fn parse(name: &str, text: &str) -> Result<Self> {
        let mut report: Map<String, Value> = serde_json::from_str(text)
            .with_context(|| format!("it is not a JSON object: {HOW}"))?;
        ensure!(
            report.contains_key("netgauge"),
            "it is JSON, but not netgauge's: {HOW}"
        );
        let record = report.remove("record");
        let report = Value::Object(report);
        let pattern = report["pattern"].as_str().unwrap_or_default();
        let measured = if pattern == esp_params::NAME {
            let report = ParamsReport::deserialize(&report);
            Measured::Params(Box::new(
                report.context("it is no whole report on esp-params")?,
            ))
        } else {
            let Some(runs) = report["runs"].as_array() else {
                bail!("it has no list `runs`: {HOW}");
            };
            let runs = runs.iter().filter_map(|of| run(of, pattern));
            let runs: Vec<_> = runs.collect();
            ensure!(
                runs.iter().any(|run| !run.rows.is_empty()),
                "nothing was measured in it, so there is nothing to draw"
            );
            Measured::Runs(runs)
        };
        Ok(Self {
            name: name.to_owned(),
            // A different version of netgauge may have written a record of another format, which is
            // not an error.
            record: record.and_then(|record| serde_json::from_value(record).ok()),
            measured,
        })
    }

    /// Returns the runs; none in results of `esp-params`.
    pub(super) fn runs(&self) -> &[Run] {
        match &self.measured {
            Measured::Runs(runs) => runs,
            Measured::Params(_) => &[],
        }
    }
}

fn run(run: &Value, pattern: &str) -> Option<Run> {
    let text = |name: &str| run[name].as_str();
    let own = text("pattern").filter(|own| !own.is_empty());
    let rows = run["rows"].as_array()?.iter();
    Some(Run {
        transport: transport::medium(text("transport").unwrap_or_default(), text("congestion")),
        pattern: own.unwrap_or(pattern).to_owned(),
        clients: run["clients"].as_u64(),
        rows: rows.filter_map(row).collect(),
    })
}

fn row(row: &Value) -> Option<Row> {
    let object = row.as_object()?;
    // Only positive values are kept, because a logarithmic axis cannot show others.
    let is_positive = |value: &f64| value.is_finite() && *value > 0.0;
    let positive = |value: &Value| value.as_f64().filter(is_positive);
    let median = |value: &Value| match value {
        Value::Object(summary) => summary.get("median").and_then(positive),
        value => positive(value),
    };
    let time = |(name, value): (&String, &Value)| {
        Some((name.strip_suffix("_ns")?.to_owned(), median(value)?))
    };
    let rate = |(name, unit): (&str, f64)| Some(object.get(name).and_then(median)? / unit);
    let rates = [
        ("mbit_per_s", 1.0),
        ("goodput_bit_per_s", 1e6),
        ("host_bit_per_s", 1e6),
    ];
    Some(Row {
        size: row["size"].as_u64().filter(|size| *size > 0)?,
        times: object.iter().filter_map(time).collect(),
        mbit_per_s: rates.into_iter().find_map(rate),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::group::coordinator::print::samples as many;
    use crate::report::format::Format;
    use crate::report::{record, samples};

    /// Returns a file of a client's results.
    pub(crate) fn two(name: &str) -> Results {
        let mut report = samples::report();
        report.record = Some(record::tests::sample());
        let mut text = Vec::new();
        report.write(Format::Json, &mut text).unwrap();
        Results::parse(name, std::str::from_utf8(&text).unwrap()).unwrap()
    }

    /// Returns a file with this text.
    pub(crate) fn parsed(text: &str) -> Results {
        Results::parse("file", text).unwrap()
    }

    /// Returns a file of results of a pattern between more than two hosts.
    pub(crate) fn of_many() -> Results {
        let text = serde_json::to_string(&many::many()).unwrap();
        Results::parse("many", &text).unwrap()
    }

    #[test]
    fn a_clients_results_are_times_and_throughput_over_sizes() {
        let results = two("file");
        assert_eq!(results.record, Some(record::tests::sample()));
        let runs = results.runs();
        assert_eq!(runs.len(), 4);
        assert_eq!(
            (&runs[0].transport[..], &runs[0].pattern[..]),
            ("tcp", "one-one")
        );
        let expected = Row {
            size: 64,
            times: [("half_rtt".to_owned(), 17_064.0)].into(),
            mbit_per_s: runs[0].rows[1].mbit_per_s,
        };
        assert_eq!(runs[0].rows[1], expected);
        assert!(expected
            .mbit_per_s
            .is_some_and(|rate| rate > 30.0 && rate < 30.1));
        assert!(runs[2].rows.is_empty());
        assert_eq!(runs[3].rows[0].times["total"], 1_048_576.0);
    }

    #[test]
    fn patterns_of_many_have_clients_and_goodput() {
        let results = of_many();
        let run = &results.runs()[0];
        assert_eq!(
            (&run.transport[..], &run.pattern[..], run.clients),
            ("tcp reno", "one-many", Some(2))
        );
        assert_eq!(run.rows[1].mbit_per_s, Some(190.0));
        assert!(run.rows[1].times.is_empty());
        // A row without numbers is a size whose rounds all failed.
        assert_eq!(results.runs()[1].rows[0].mbit_per_s, None);
    }

    #[test]
    fn patterns_without_a_server_have_the_rate_of_a_host() {
        let text = serde_json::to_string(&many::all()).unwrap();
        let results = parsed(&text);
        let [run] = results.runs() else {
            panic!("{results:?}")
        };
        assert_eq!(
            (&run.transport[..], &run.pattern[..], run.clients),
            ("tcp reno", "all-to-all", None)
        );
        let rates: Vec<_> = run.rows.iter().map(|row| row.mbit_per_s).collect();
        assert_eq!(rates, [Some(70.0), Some(180.0)]);
    }

    #[test]
    fn unknown_patterns_are_read_by_the_names_of_their_numbers() {
        let text = r#"{"netgauge": "9", "runs": [
            {"transport": "esp", "pattern": "new", "rows": [
                {"size": 8, "send_overhead_ns": {"median": 900, "mood": 1}, "gap_ns": 0, "latency_ns": 1200,
                 "stalls": 3, "messages_per_s": 1e6, "mbit_per_s": 0.0},
                {"size": 0, "mbit_per_s": 1.0}, {"mbit_per_s": 1.0}, 7]},
            {"transport": "tcp"}, 7]}"#;
        let results = Results::parse("file", text).unwrap();
        assert_eq!(results.record, None);
        let [run] = results.runs() else {
            panic!("{results:?}")
        };
        let times = [("send_overhead", 900.0), ("latency", 1200.0)];
        let expected = Row {
            size: 8,
            times: times.map(|(name, time)| (name.to_owned(), time)).into(),
            mbit_per_s: None,
        };
        assert_eq!(run.rows, [expected]);
    }

    #[test]
    fn params_are_a_report_of_their_own() {
        let report = many::params();
        let text = serde_json::to_string(&report).unwrap();
        let results = Results::parse("params", &text).unwrap();
        assert_eq!(results.measured, Measured::Params(Box::new(report)));
        assert!(results.runs().is_empty());
    }

    #[test]
    fn errors_of_a_file_name_the_cause() {
        for (text, expected) in [
            ("", "not a JSON object: save results"),
            ("transport,pattern,size", "not a JSON object"),
            ("[1, 2]", "not a JSON object"),
            (r#"{"a": 1}"#, "not netgauge's"),
            (r#"{"netgauge": "9"}"#, "no list `runs`"),
            (r#"{"netgauge": "9", "runs": {}}"#, "no list `runs`"),
            (r#"{"netgauge": "9", "runs": []}"#, "nothing was measured"),
            (
                r#"{"netgauge": "9", "pattern": "esp-params"}"#,
                "esp-params",
            ),
        ] {
            let error = format!("{:#}", Results::parse("file", text).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
        let deep = "[".repeat(100_000);
        assert!(Results::parse("file", &format!("{{\"netgauge\":{deep}")).is_err());
        let error = Results::read(Path::new("/absent/file.json")).unwrap_err();
        assert!(format!("{error:#}").contains("/absent/file.json"));
    }
}
