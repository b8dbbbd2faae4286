// SPDX-License-Identifier: GPL-2.0-only

//! Measures an unmodified program of Debian: redis answers GETs while other hosts stream to redis'
//! host. The GETs are measured twice, over TCP and with `enet run`.

use std::path::PathBuf;

use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;

use crate::beside::RECEIVER;
use crate::commands::{json, Commands};
use crate::layout::Layout;
use crate::step;

/// The guest's script that runs redis-benchmark.
const SCRIPT: &str = "usr/bin/redis-gets";

/// The two runs, over TCP and with `enet run`. For each run: the prefix of all its commands, and
/// its number of requests. The requests take about a second, so that the figures are reproducible.
const RUNS: [(&str, u32); 2] = [("", 300), ("enet run --quiet --require --", 3000)];

/// The port of redis' host must carry at least this share of the port's rate. If the port carries
/// less, the streams did not run during the requests, so the result is an error.
const LEAST_BUSY: f64 = 0.9;

/// The results of redis-benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Gets {
    /// 99th percentile of the requests' times, milliseconds.
    pub p99_ms: f64,
    /// Requests per second.
    pub per_second: f64,
}

/// Returns the files that the guest needs.
pub fn files(layout: &Layout) -> Vec<(PathBuf, PathBuf)> {
    let script = layout.project.join("tests/runner/guest/redis-gets");
    vec![(script, SCRIPT.into())]
}

/// Measures redis over TCP and over ESP, on the switch that exists already.
///
/// # Errors
/// If a program fails, the guest ends, the streams do not run, or ESP does not carry the
/// connections that it should carry.
pub fn measure(guest: &mut Commands) -> Result<[Gets; 2]> {
    let mut by = |(run_by, requests): (&str, u32)| {
        let what = format!(
            "redis beside streams, {}",
            match run_by {
                "" => "as it is",
                _ => "by enet run",
            }
        );
        step::say(&what);
        let ended = guest.shell(&format!("sh /{SCRIPT} {requests} {run_by}"))?;
        ensure!(ended.status == 0, "{what}:\n{}", ended.text);
        read(&ended.text, run_by.is_empty()).with_context(|| format!("{what}:\n{}", ended.text))
    };
    Ok([by(RUNS[0])?, by(RUNS[1])?])
}

/// Parses the script's output.
fn read(text: &str, over_tcp: bool) -> Result<Gets> {
    #[derive(Deserialize)]
    struct Counters {
        rate: f64,
        ports: Vec<Port>,
    }
    #[derive(Deserialize)]
    struct Port {
        host: String,
        sent_bytes: f64,
    }
    let mut lines = text.lines();
    let opened = lines.find_map(|line| line.strip_prefix("tcp "));
    let opened: u32 = opened.context("no count of TCP's connections")?.parse()?;
    ensure!(
        (opened > 0) == over_tcp,
        "{opened} connections are carried by TCP"
    );
    let row = lines.find_map(|line| line.strip_prefix("\"GET\","));
    let numbers = row.context("no report of redis-benchmark's")?.split(',');
    let numbers: Vec<f64> = numbers
        .map(|number| number.trim_matches('"').parse().context("not a number"))
        .collect::<Result<_>>()?;
    // The columns after the test's name: "rps", "avg_latency_ms", "min_latency_ms",
    // "p50_latency_ms", "p95_latency_ms", "p99_latency_ms", "max_latency_ms".
    let [per_second, _, _, _, _, p99_ms, _] = numbers[..] else {
        bail!("another report of redis-benchmark's");
    };
    let counters = json(text).next().context("no counters of the switch")??;
    let counters: Counters = serde_json::from_value(counters)?;
    let port = counters.ports.iter().find(|port| port.host == RECEIVER);
    let bits = port.context("redis' host has no port")?.sent_bytes * 8.0;
    let times = lines.find_map(|line| line.strip_prefix("seconds "));
    let (begin, end) = times
        .and_then(|times| times.split_once(' '))
        .context("no times")?;
    let seconds = end.parse::<f64>()? - begin.parse::<f64>()?;
    let busy = bits / seconds / counters.rate;
    ensure!(busy >= LEAST_BUSY, "its port carried {busy:.2} of its rate");
    Ok(Gets { p99_ms, per_second })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"tcp 9
"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"GET","201.57","4.942","3.768","5.007","5.271","5.415","6.439"
seconds 21.16 26.16
{"rate": 200000000, "ports": [{"host": "h1", "sent_bytes": 1}, {"host": "h0", "sent_bytes": 125000000}]}"#;

    #[test]
    fn a_report_has_the_percentile_and_the_rate() {
        let gets = read(TEXT, true).unwrap();
        assert_eq!((gets.p99_ms, gets.per_second), (5.415, 201.57));
    }

    #[test]
    fn figures_of_another_carrier_or_without_streams_are_refused() {
        let refused = |text: &str, over_tcp| read(text, over_tcp).unwrap_err().to_string();
        assert!(refused(TEXT, false).contains("9 connections are carried by TCP"));
        let mapped = TEXT.replace("tcp 9", "tcp 0");
        assert!(read(&mapped, false).is_ok());
        assert!(refused(&mapped, true).contains("0 connections"));
        let idle = TEXT.replace("125000000", "110000000");
        assert!(refused(&idle, true).contains("carried 0.88 of its rate"));
        let failed = TEXT.replace("\"GET\"", "\"SET\"");
        assert!(refused(&failed, true).contains("no report"));
    }
}
