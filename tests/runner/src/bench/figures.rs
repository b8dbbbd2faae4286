//! What is measured: numbers, each of a transport and with a name.

use serde::Deserialize;

/// The transports, as netgauge calls them.
pub const TRANSPORTS: [&str; 5] = ["tcp", "udp", "raw", "edp", "esp"];

/// Message sizes, bytes.
pub const SIZES: [u64; 3] = [1, 64, 1024];

/// Size of the messages that are also measured where the MTU is large, bytes.
const JUMBO_SIZE: u64 = 1;

/// What stands before the names of figures that are measured with a large MTU.
pub const JUMBO: &str = "jumbo-";

/// One number; both ends' work is in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// One of [`TRANSPORTS`].
    pub transport: String,
    /// Its name in the budgets: `message-1` is half a round trip of one byte, `byte` is a byte in bulk;
    /// `kernel-` and `softirq-` before it tell the share that is executed there, [`JUMBO`] that the MTU was large.
    pub name: String,
    /// Instructions; `None` if they could not be counted.
    pub count: Option<f64>,
}

/// The part of netgauge's JSON report that is used here.
#[derive(Debug, Deserialize)]
pub struct Report {
    /// One for each transport.
    pub runs: Vec<Run>,
}

/// One transport's part.
#[derive(Debug, Deserialize)]
pub struct Run {
    /// Its name.
    pub transport: String,
    /// What was done.
    pub pattern: String,
    /// Why it was not.
    pub error: Option<String>,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    size: u64,
    half_rtt_ns: Option<Summary>,
    ns_per_byte: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Summary {
    median: u64,
}

/// The name of half a round trip.
pub fn message(size: u64) -> String {
    format!("message-{size}")
}

/// The name of a byte in bulk.
pub const BYTE: &str = "byte";

impl Report {
    /// Every transport's half round trips by size, and its byte; of latency and bulk together.
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for transport in TRANSPORTS {
            let mut add = |name, count| {
                figures.push(Figure {
                    transport: transport.to_owned(),
                    name,
                    count,
                });
            };
            for size in SIZES {
                add(message(size), self.half_round_trip(transport, size));
            }
            add(BYTE.to_owned(), self.per_byte(transport));
        }
        figures
    }

    /// Every transport's half round trip with a large MTU; of latency.
    pub fn jumbo_figures(&self) -> Vec<Figure> {
        let figure = |transport: &str| Figure {
            transport: transport.to_owned(),
            name: format!("{JUMBO}{}", message(JUMBO_SIZE)),
            count: self.half_round_trip(transport, JUMBO_SIZE),
        };
        TRANSPORTS.map(figure).into()
    }

    fn rows(&self, transport: &str, pattern: &str) -> &[Row] {
        self.runs
            .iter()
            .find(|run| run.transport == transport && run.pattern == pattern && run.error.is_none())
            .map_or(&[], |run| &run.rows)
    }

    fn half_round_trip(&self, transport: &str, size: u64) -> Option<f64> {
        let mut rows = self.rows(transport, "one-one").iter();
        let row = rows.find(|row| row.size == size)?;
        Some(row.half_rtt_ns.as_ref()?.median as f64)
    }

    fn per_byte(&self, transport: &str) -> Option<f64> {
        self.rows(transport, "bulk").first()?.ns_per_byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"netgauge": "0.1.0", "peer": "10.0.0.2:2805", "runs": [
        {"transport": "tcp", "about": "", "pattern": "one-one", "status": "ok", "rows": [
            {"size": 1, "tests": 9, "lost": 0, "mbit_per_s": 1.0,
             "half_rtt_ns": {"min": 1, "avg": 1, "median": 17000, "max": 1}}]},
        {"transport": "esp", "about": "", "pattern": "one-one", "status": "failed", "error": "no", "rows": []},
        {"transport": "tcp", "about": "", "pattern": "bulk", "status": "ok", "rows": [
            {"size": 8388608, "tests": 3, "lost": 0, "mbit_per_s": 1.0,
             "total_ns": {"min": 1, "avg": 1, "median": 1, "max": 1}, "ns_per_byte": 0.94}]}]}"#;

    #[test]
    fn a_report_gives_every_figure_or_says_that_it_is_missing() {
        let report: Report = serde_json::from_str(REPORT).unwrap();
        let figures = report.figures();
        assert_eq!(figures.len(), TRANSPORTS.len() * (SIZES.len() + 1));
        let count = |transport: &str, name: &str| {
            let mut figures = figures.iter();
            let found = figures.find(|f| f.transport == transport && f.name == name);
            found.unwrap().count
        };
        assert_eq!(count("tcp", "message-1"), Some(17000.0));
        assert_eq!(count("tcp", "message-64"), None);
        assert_eq!(count("tcp", "byte"), Some(0.94));
        assert_eq!(count("esp", "message-1"), None);
        let jumbo = report.jumbo_figures();
        assert_eq!(jumbo.len(), TRANSPORTS.len());
        assert_eq!(
            (jumbo[0].name.as_str(), jumbo[0].count),
            ("jumbo-message-1", Some(17000.0))
        );
    }
}
