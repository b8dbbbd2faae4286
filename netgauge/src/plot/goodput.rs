// SPDX-License-Identifier: MIT OR Apache-2.0

//! The picture of patterns between more than two hosts: goodput over the number of clients or the
//! size of messages. Each transport has a line, with bars from the worst round to the best.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{bail, Result};

use super::axis::Axis;
use super::chart::{index_of, Base, Chart};
use super::figure::{lay, Number, Origin};
use crate::group::coordinator::patterns;
use crate::group::coordinator::report::GroupReport;
use crate::picture;
use crate::report::clients;
use crate::sizes::human;

/// Draws a report. If the report has several numbers of clients, the horizontal axis shows them,
/// otherwise the sizes.
///
/// # Errors
///
/// Fails if there is nothing to draw, or if the file cannot be written.
pub(crate) fn draw(report: &GroupReport, path: &Path) -> Result<()> {
    let chart = chart_of(report);
    if chart.lines.is_empty() {
        bail!(
            "{}: nothing was measured that could be drawn",
            path.display()
        );
    }
    picture::save(&chart, path)
}

fn chart_of(report: &GroupReport) -> Chart {
    let mut order = Vec::new();
    let mut numbers = Vec::new();
    for run in &report.runs {
        let medium = run.medium();
        for row in &run.rows {
            let Some(rates) = row.goodput_bit_per_s.or(row.host_bit_per_s) else {
                continue;
            };
            let [worst, value, best] = [rates.worst, rates.usual(), rates.best].map(mbit);
            numbers.push(Number {
                of: Origin::new(index_of(&mut order, &medium), 0, ["", &medium, "", ""]),
                size: row.size,
                clients: run.cast.as_ref().map(|cast| cast.clients as u64),
                value,
                ends: Some((worst, best)),
            });
        }
    }
    let laid = lay(numbers);
    let alike = report.runs.iter().all(|run| run.cast.is_none());
    let does = patterns::named(&report.pattern).title;
    let (sizes, y) = match alike {
        true => ("message", "what a host gets, average, Mbit/s"),
        false => ("message of each client", "goodput of all together, Mbit/s"),
    };
    let only = match laid.is_over_clients() {
        true => only(&laid.sizes).map(|size| format!(", {} each", human(size))),
        false => only(&laid.clients).map(|count| format!(", {}", clients(count as usize))),
    };
    let what = match alike {
        true => format!("{} hosts, {does}", report.participants.len()),
        false => format!("{does}{}", only.unwrap_or_default()),
    };
    let title = format!("{}: {what}", report.pattern);
    let rate = report.rate_bit_per_s.map(mbit);
    let base = rate.map(|value| Base {
        label: "rate of the link".to_owned(),
        value,
    });
    let mut chart = laid.draw(title, Some(sizes), y, base);
    // The axis reaches from 0 to the greatest value or to the link's rate, whichever is greater.
    let bars = chart.lines.iter().flat_map(|line| &line.bars);
    let values = bars.map(|(_, _, best)| *best).chain(rate);
    chart.y = Axis::from_zero(y, values);
    chart
}

/// Returns the value of a set with a single value, and `None` for other sets.
fn only(values: &BTreeSet<u64>) -> Option<u64> {
    values.first().copied().filter(|_| values.len() == 1)
}

fn mbit(bit_per_s: u64) -> f64 {
    bit_per_s as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::coordinator::print::samples;

    fn names(chart: &Chart) -> Vec<&str> {
        chart.lines.iter().map(|line| &line.label[..]).collect()
    }

    #[test]
    fn several_numbers_of_clients_are_the_axis_and_sizes_are_lines() {
        let mut report = samples::many();
        let mut more = report.runs[0].clone();
        more.cast.as_mut().unwrap().clients = 8;
        report.runs.push(more);
        let chart = chart_of(&report);
        assert_eq!(chart.title, "one-many: many clients to one server");
        // A transport without results has no line.
        assert_eq!(names(&chart), ["tcp reno, 1 KiB", "tcp reno, 64 KiB"]);
        assert_eq!(chart.lines[0].points, [(2.0, 80.0), (8.0, 80.0)]);
        assert_eq!(chart.lines[0].bars, [(2.0, 79.0, 82.0), (8.0, 79.0, 82.0)]);
        // The vertical axis includes 0 and the link's rate.
        assert!(chart.y.range().start == 0.0 && chart.y.range().end > 200.0);
        let svg = picture::svg(&chart).unwrap();
        for text in [
            "tcp reno, 64 KiB",
            "clients",
            "rate of the link",
            "goodput",
            ">8<",
        ] {
            assert!(svg.replace('\n', "").contains(text), "{text}: {svg}");
        }
    }

    #[test]
    fn one_number_of_clients_leaves_the_axis_to_sizes() {
        let mut report = samples::many();
        report.pattern = "many-one".to_owned();
        let chart = chart_of(&report);
        assert_eq!(
            chart.title,
            "many-one: one server to many clients, 2 clients"
        );
        assert_eq!(names(&chart), ["tcp reno"]);
        assert_eq!(chart.lines[0].points, [(1024.0, 80.0), (65_536.0, 190.0)]);
        for run in &mut report.runs {
            run.rows.truncate(1);
        }
        let mut more = report.runs[0].clone();
        more.cast.as_mut().unwrap().clients = 8;
        report.runs.push(more);
        let title = chart_of(&report).title;
        assert_eq!(title, "many-one: one server to many clients, 1 KiB each");
    }

    #[test]
    fn patterns_without_a_server_show_the_rate_of_a_host() {
        let chart = chart_of(&samples::all());
        assert_eq!(chart.title, "all-to-all: 3 hosts, each to all others");
        assert_eq!(names(&chart), ["tcp reno"]);
        let points = [(1024.0, 69.0), (65_536.0, 179.0)];
        assert_eq!(chart.lines[0].points, points);
        assert_eq!(chart.lines[0].bars[0], (1024.0, 67.0, 72.0));
    }

    #[test]
    fn nothing_measured_is_not_drawn() {
        let mut report = samples::many();
        report.runs.clear();
        let error = draw(&report, Path::new("unwritten.svg")).unwrap_err();
        assert!(
            error.to_string().contains("nothing was measured"),
            "{error}"
        );
        assert!(!Path::new("unwritten.svg").exists());
    }
}
