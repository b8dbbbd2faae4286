// SPDX-License-Identifier: GPL-2.0-only

//! Stores the results of the measurements: netgauge's own reports, by topic and by series.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A transport in the comparison, with or without offloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    /// The series' key in the results.
    pub key: &'static str,
    /// The series' name in the page.
    pub name: &'static str,
    /// The transport's name in netgauge.
    pub transport: &'static str,
    /// Whether TSO, GSO and GRO are off.
    pub plain: bool,
}

const fn series(key: &'static str, name: &'static str, transport: &'static str) -> Series {
    Series {
        key,
        name,
        transport,
        plain: false,
    }
}

/// ESP.
pub const ESP: Series = series("esp", "ESP", "esp");
/// EDP.
pub const EDP: Series = series("edp", "EDP", "edp");
/// TCP with the kernel's default offloads.
pub const TCP: Series = series("tcp", "TCP", "tcp");
/// TCP without offloads. The packets pass through the kernel one by one.
pub const PLAIN_TCP: Series = Series {
    plain: true,
    ..series("tcp-plain", "TCP without offloads", "tcp")
};
/// UDP.
pub const UDP: Series = series("udp", "UDP", "udp");
/// Packet sockets.
pub const RAW: Series = series("raw", "AF_PACKET", "raw");

/// EDP that sends without copies. Only its dialogues are measured.
pub const EZDP: Series = series("ezdp", "EZDP", "edp-zerocopy");

/// All compared series, in the order of the figures.
pub const ALL: [Series; 7] = [ESP, EDP, EZDP, TCP, PLAIN_TCP, UDP, RAW];
/// The points of a curve: pairs of a size and a value, in ascending order of the sizes.
pub type Points = Vec<(f64, f64)>;

/// All results of the measurements.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// The release of the kernel that was measured.
    pub release: String,
    /// The runs in netgauge's reports, by `topic/series`.
    pub runs: BTreeMap<String, Vec<Value>>,
    /// Shares of a cost's instructions. Each key is `part-cost/series`, such as `softirq-byte/esp`.
    pub numbers: BTreeMap<String, f64>,
    /// The cells of the table that netgauge's `esp-params` measured.
    pub parameters: Vec<Value>,
    /// Pictures drawn by netgauge, by name.
    pub pictures: BTreeMap<String, String>,
}

impl Results {
    /// Reads the file that [`Results::save`] wrote.
    ///
    /// # Errors
    /// If the file does not exist, or another version of this program wrote it.
    pub fn load(path: &Path) -> Result<Self> {
        let text = fs::read(path)
            .with_context(|| format!("{}: measure first, without --redraw", path.display()))?;
        serde_json::from_slice(&text)
            .with_context(|| format!("{}: measure anew, without --redraw", path.display()))
    }

    /// Writes all results to a file, from which the figures can be drawn again.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        }
        fs::write(path, serde_json::to_vec_pretty(self)?)
            .with_context(|| path.display().to_string())
    }

    /// Stores each run of `report` under `topic` and its series: the element of `series` with the
    /// run's transport. A report does not say whether offloads were on, so `series` may contain
    /// only one of TCP and TCP without offloads.
    pub fn take(&mut self, topic: &str, series: &[Series], report: &Value) {
        for run in report["runs"].as_array().into_iter().flatten() {
            let of = series.iter().find(|one| run["transport"] == one.transport);
            if let Some(one) = of {
                let runs = self.runs.entry(format!("{topic}/{}", one.key)).or_default();
                runs.push(run.clone());
            }
        }
    }

    /// Returns the errors of failed runs, by transport.
    pub fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for (key, runs) in &self.runs {
            for run in runs {
                if let Some(error) = run["error"].as_str() {
                    failures.push(format!("{key}: {error}"));
                }
            }
        }
        failures
    }

    /// Returns the values at `path`, such as `half_rtt_ns.median`, of every row that has this path,
    /// by size.
    pub fn points(&self, topic: &str, series: Series, path: &str) -> Points {
        self.rows(topic, series)
            .filter_map(|row| {
                let value = path.split('.').fold(row, |value, name| &value[name]);
                Some((row["size"].as_f64()?, value.as_f64()?))
            })
            .collect()
    }

    /// Returns the rows of all runs, in the order of measurement.
    pub fn rows(&self, topic: &str, series: Series) -> impl Iterator<Item = &Value> {
        let runs = self.runs.get(&format!("{topic}/{}", series.key));
        let runs = runs.into_iter().flatten();
        runs.flat_map(|run| run["rows"].as_array().into_iter().flatten())
    }

    /// Returns the number in [`Self::numbers`] for a series. `topic` names the part and the cost,
    /// as in `softirq-byte`.
    pub fn number(&self, topic: &str, series: Series) -> Option<f64> {
        self.numbers
            .get(&format!("{topic}/{}", series.key))
            .copied()
    }
}

/// Returns the value of the point at `size`.
pub fn at(points: &[(f64, f64)], size: f64) -> Option<f64> {
    points
        .iter()
        .find(|point| point.0 == size)
        .map(|point| point.1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn runs_are_found_by_topic_and_series() {
        let mut results = Results::default();
        let report = |transport: &str, size: u64, median: u64| {
            json!({"runs": [{"transport": transport, "rows": [
                {"size": size, "half_rtt_ns": {"median": median}}]}]})
        };
        results.take("x", &[TCP, ESP], &report("tcp", 1, 7));
        results.take("x", &[TCP, ESP], &report("tcp", 2, 8));
        results.take("x", &[PLAIN_TCP], &report("tcp", 1, 9));
        let median = |series| results.points("x", series, "half_rtt_ns.median");
        assert_eq!(median(TCP), [(1.0, 7.0), (2.0, 8.0)]);
        assert_eq!(median(PLAIN_TCP), [(1.0, 9.0)]);
        assert_eq!(median(ESP), []);
        assert_eq!(results.points("x", TCP, "mbit_per_s"), []);
        assert_eq!(at(&median(TCP), 2.0), Some(8.0));
        assert!(results.failures().is_empty());
        let failed = json!({"runs": [{"transport": "esp", "error": "no module", "rows": []}]});
        results.take("x", &[ESP], &failed);
        assert_eq!(results.failures(), ["x/esp: no module"]);
    }
}
