// SPDX-License-Identifier: MIT OR Apache-2.0

//! The curves of a figure, made from saved results.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, ensure, Result};
use clap::ValueEnum;

use super::axis::{Axis, Unit};
use super::chart::{index_of, Base, Chart, Line};
use super::results::{Results, Row, Run};
use crate::sizes::human;
use crate::transport::transport_of;

/// Kinds of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlotKind {
    /// Times over the size of messages
    Latency,
    /// Throughput over the size of messages, or over the number of clients
    Throughput,
    /// Time in the calls that send and receive, over the size of messages
    Overhead,
    /// Goodput over two parameters (esp-params)
    HeatMap,
    /// Times divided by the times of the first file, or of the first transport
    Comparison,
}

/// The word that the names of all overheads contain. An overhead is the time in which a call
/// occupies the processor.
const OVERHEAD: &str = "overhead";

/// The name of the time of a whole transfer. This time counts as a latency only if the results
/// contain no other time.
const WHOLE: &str = "total";

/// The name of the time that all stalls cost together. It is not a latency, because it grows with
/// the number of tests.
const STALLED: &str = "stalled";

/// A number from the results, with its place in the chart and its origin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Number {
    /// The origin of the number, which determines the line that shows it.
    pub(super) of: Origin,
    /// The size of the messages, bytes.
    pub(super) size: u64,
    /// Number of clients, in patterns with clients.
    pub(super) clients: Option<u64>,
    /// The number, in the unit of the vertical axis.
    pub(super) value: f64,
    /// The range of the value, if the picture shows the range.
    pub(super) ends: Option<(f64, f64)>,
}

/// The origin of a number. Numbers of the same origin are on one line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    /// The index of the transport in a list of all transports, ordered by their first runs in the
    /// files.
    rank: usize,
    /// The index of the file.
    file: usize,
    /// The size in bytes. It is 0 if the horizontal axis shows the size.
    aside: u64,
    /// The parts of the line's name. The legend leaves out the parts that all lines share.
    parts: [String; PARTS],
}

/// The number of parts in a line's name: file, transport, pattern, kind of number, and size. The
/// size is part of the name if the horizontal axis does not show it.
const PARTS: usize = 5;
const FILE: usize = 0;
const TRANSPORT: usize = 1;
const ASIDE: usize = 4;

impl Origin {
    /// Returns an origin of numbers whose sizes the horizontal axis shows.
    pub(super) fn new(rank: usize, file: usize, parts: [&str; PARTS - 1]) -> Self {
        let [of_file, transport, pattern, name] = parts.map(str::to_owned);
        Self {
            rank,
            file,
            aside: 0,
            parts: [of_file, transport, pattern, name, String::new()],
        }
    }
}

/// A point of a line: its horizontal position, its vertical position, and the range of its value.
type Place = (f64, f64, Option<(f64, f64)>);

/// The points of all lines, and two sets of values that the horizontal axis can show: the numbers
/// of clients, and the sizes.
pub(super) struct Laid {
    /// Each line's points, from left to right.
    lines: BTreeMap<Origin, Vec<Place>>,
    /// The numbers of clients. If there are several, the horizontal axis shows them; otherwise it
    /// shows the sizes.
    pub(super) clients: BTreeSet<u64>,
    /// The sizes, bytes.
    pub(super) sizes: BTreeSet<u64>,
}

/// Returns the kind of picture that suits the files best.
pub(super) fn suitable(files: &[Results]) -> PlotKind {
    let runs = files.iter().flat_map(Results::runs);
    let rows: Vec<_> = runs.flat_map(|run| &run.rows).collect();
    if rows.is_empty() {
        PlotKind::HeatMap
    } else if rows.iter().any(|row| latencies(row).next().is_some()) {
        PlotKind::Latency
    } else if rows.iter().any(|row| row.mbit_per_s.is_some()) {
        PlotKind::Throughput
    } else {
        PlotKind::Overhead
    }
}

/// Returns the chart of `kind`, which must not be the heat map.
///
/// # Errors
///
/// Fails if the files have no results of this kind.
pub(super) fn chart(kind: PlotKind, files: &[Results], transports: &[String]) -> Result<Chart> {
    let runs = files.iter().flat_map(Results::runs);
    let known: BTreeSet<_> = runs.map(|run| &run.transport[..]).collect();
    if let Some(wanted) = transports
        .iter()
        .find(|wanted| !known.contains(&wanted[..]))
    {
        let known = Vec::from_iter(known).join(", ");
        bail!("no file has the transport `{wanted}`: there are {known}");
    }
    let numbers = |pick: fn(&Row) -> Vec<(String, f64)>| numbers(files, transports, pick);
    let times = || numbers(|row| latencies(row).map(microseconds).collect());
    let (title, y, found) = match kind {
        PlotKind::Latency => ("Latency", "time, median, us", times()),
        PlotKind::Throughput => ("Throughput", "Mbit/s, median", numbers(rates)),
        PlotKind::Overhead => {
            let found = numbers(|row| overheads(row).map(microseconds).collect());
            ensure!(
                !found.is_empty(),
                "no file has overheads: measure them with a pattern that does, such as -x logp or -x flood"
            );
            ("Overhead", "time in the call, median, us", found)
        }
        PlotKind::Comparison => {
            let times = times();
            return match times.is_empty() {
                true => compare("throughput", numbers(rates), files),
                false => compare("time", times, files),
            };
        }
        PlotKind::HeatMap => bail!("a heat map is no chart"),
    };
    ensure!(
        !found.is_empty(),
        "no file has anything to draw for {}: choose another --kind",
        title.to_lowercase()
    );
    let mut chart = lay(found).draw(title.to_owned(), None, y, None);
    chart.notes = notes(files);
    Ok(chart)
}

/// Returns all times of the row except overheads and the cost of stalls. The time of a whole
/// transfer is left out if there are other times.
fn latencies(row: &Row) -> impl Iterator<Item = (&String, &f64)> {
    let only_whole = row.times.keys().all(|name| name == WHOLE);
    row.times.iter().filter(move |(name, _)| {
        !name.contains(OVERHEAD) && *name != STALLED && (only_whole || *name != WHOLE)
    })
}

fn overheads(row: &Row) -> impl Iterator<Item = (&String, &f64)> {
    row.times.iter().filter(|(name, _)| name.contains(OVERHEAD))
}

/// Returns the row's throughput, with its name. The name is empty, because there is only one kind
/// of throughput.
fn rates(row: &Row) -> Vec<(String, f64)> {
    Vec::from_iter(row.mbit_per_s.map(|rate| (String::new(), rate)))
}

fn microseconds((name, nanoseconds): (&String, &f64)) -> (String, f64) {
    (name.replace('_', " "), nanoseconds / 1e3)
}

/// Returns all numbers that `pick` finds in the rows of the files. `pick` also returns the name of
/// each number.
fn numbers(
    files: &[Results],
    transports: &[String],
    pick: fn(&Row) -> Vec<(String, f64)>,
) -> Vec<Number> {
    let mut order = Vec::new();
    let mut numbers = Vec::new();
    for (file, results) in files.iter().enumerate() {
        let wanted = |run: &&Run| transports.is_empty() || transports.contains(&run.transport);
        for run in results.runs().iter().filter(wanted) {
            let rank = index_of(&mut order, &run.transport);
            for row in &run.rows {
                numbers.extend(pick(row).into_iter().map(|(name, value)| Number {
                    of: Origin::new(
                        rank,
                        file,
                        [&results.name, &run.transport, &run.pattern, &name],
                    ),
                    size: row.size,
                    clients: run.clients,
                    value,
                    ends: None,
                }));
            }
        }
    }
    numbers
}

/// Puts numbers on lines. If there are several numbers of clients, the horizontal axis shows these
/// numbers, otherwise the sizes.
pub(super) fn lay(numbers: Vec<Number>) -> Laid {
    let mut laid = Laid {
        lines: BTreeMap::new(),
        clients: numbers.iter().filter_map(|number| number.clients).collect(),
        sizes: numbers.iter().map(|number| number.size).collect(),
    };
    for mut number in numbers {
        let x = match (laid.is_over_clients(), number.clients) {
            (false, _) => number.size,
            (true, Some(clients)) => clients,
            // The horizontal axis shows numbers of clients. A pattern without clients has no
            // position on it.
            (true, None) => continue,
        };
        if laid.is_over_clients() && laid.sizes.len() > 1 {
            number.of.aside = number.size;
            number.of.parts[ASIDE] = human(number.size);
        }
        let places = laid.lines.entry(number.of).or_default();
        places.push((x as f64, number.value, number.ends));
    }
    for places in laid.lines.values_mut() {
        places.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    laid
}

impl Laid {
    /// Returns whether the horizontal axis shows clients.
    pub(super) fn is_over_clients(&self) -> bool {
        self.clients.len() > 1
    }

    /// Returns the chart of the lines, without [`Chart::notes`]. If the horizontal axis shows
    /// sizes, its label is `x`, or "message size" if `x` is `None`.
    pub(super) fn draw(self, title: String, x: Option<&str>, y: &str, base: Option<Base>) -> Chart {
        let (x, unit) = match self.is_over_clients() {
            true => ("clients", Unit::Count),
            false => (x.unwrap_or("message size"), Unit::Bytes),
        };
        let labels = labels(&self.lines.keys().collect::<Vec<_>>());
        let line = |(label, (origin, places)): (String, (Origin, Vec<Place>))| Line {
            label,
            transport: transport_of(&origin.parts[TRANSPORT]).to_owned(),
            points: places.iter().map(|(x, y, _)| (*x, *y)).collect(),
            bars: places
                .iter()
                .filter_map(|(x, _, ends)| ends.map(|(least, most)| (*x, least, most)))
                .collect(),
        };
        let lines: Vec<_> = labels.into_iter().zip(self.lines).map(line).collect();
        let points = || lines.iter().flat_map(|line| &line.points);
        // The axis includes the horizontal line for comparison.
        let values = points().map(|point| point.1);
        let values = values.chain(base.iter().map(|base| base.value));
        Chart {
            title,
            notes: Vec::new(),
            x: Axis::new(x, unit, points().map(|point| point.0)),
            y: Axis::new(y, Unit::Number, values),
            lines,
            base,
        }
    }
}

/// Returns the names of lines. A name consists of the transport and of the parts in which the lines
/// differ.
fn labels(origins: &[&Origin]) -> Vec<String> {
    let differs = |part: &usize| {
        let mut pairs = origins.windows(2);
        *part == TRANSPORT || pairs.any(|two| two[0].parts[*part] != two[1].parts[*part])
    };
    let said: Vec<usize> = (0..PARTS).filter(differs).collect();
    let label = |origin: &&Origin| {
        let parts = said.iter().map(|part| &origin.parts[*part][..]);
        Vec::from_iter(parts.filter(|part| !part.is_empty())).join(", ")
    };
    origins.iter().map(label).collect()
}

/// Divides the values of each line by the values of a standard, which is another line. If there are
/// several files, the standard is the corresponding line of the first file. Otherwise, it is the
/// corresponding line of the first transport.
fn compare(what: &str, numbers: Vec<Number>, files: &[Results]) -> Result<Chart> {
    let mut laid = lay(numbers);
    let several = files.len() > 1;
    let part = if several { FILE } else { TRANSPORT };
    let standard = |origin: &Origin| {
        let others = laid.lines.keys().filter(|other| {
            let same = |at: usize| at == part || origin.parts[at] == other.parts[at];
            // The first file is found by its index, because two files may have the same name.
            (0..PARTS).all(same) && (!several || other.file == 0)
        });
        let first = others.min_by_key(|other| other.rank);
        first.filter(|first| *first != origin)
    };
    let mut compared = BTreeMap::new();
    let mut standards = BTreeSet::new();
    for (origin, places) in &laid.lines {
        let Some(first) = standard(origin) else {
            continue;
        };
        let share = |&(x, y, ends): &Place| {
            let place = laid.lines[first].iter().find(|place| place.0 == x)?;
            Some((x, y / place.1, ends))
        };
        let shares: Vec<_> = places.iter().filter_map(share).collect();
        if !shares.is_empty() {
            standards.insert(first.parts[part].clone());
            compared.insert(origin.clone(), shares);
        }
    }
    ensure!(
        !compared.is_empty(),
        "there is nothing to compare: give several files with the same transport, pattern and sizes, or one with \
         several transports"
    );
    laid.lines = compared;
    let label = Vec::from_iter(standards).join(", ");
    let title = format!("Comparison with {label}");
    let y = format!("{what}, by that of {label}");
    let mut chart = laid.draw(title, None, &y, Some(Base { label, value: 1.0 }));
    chart.notes = notes(files);
    Ok(chart)
}

/// Returns one line of text: the first host's kernel and device, and the time of the run. Returns
/// no line if there are several files, or if the file has no record.
fn notes(files: &[Results]) -> Vec<String> {
    let [Results {
        record: Some(record),
        ..
    }] = files
    else {
        return Vec::new();
    };
    let mut facts = Vec::new();
    if let Some(host) = record.hosts.values().next() {
        facts.extend(host.kernel.as_ref().map(|kernel| format!("Linux {kernel}")));
        facts.extend(host.device.iter().flat_map(|device| device.facts()));
    }
    facts.push(record.started.clone());
    vec![facts.join(", ")]
}

#[cfg(test)]
mod tests {
    use super::super::results::{
        self,
        tests::{of_many, two},
    };
    use super::*;

    fn draw(kind: PlotKind, files: &[Results]) -> Chart {
        chart(kind, files, &[]).unwrap()
    }

    fn labels_of(chart: &Chart) -> Vec<&str> {
        chart.lines.iter().map(|line| &line.label[..]).collect()
    }

    /// Returns the results of [`two`], with all times multiplied by `factor`.
    fn slower(name: &str, factor: f64) -> Results {
        let mut results = two(name);
        let results::Measured::Runs(runs) = &mut results.measured else {
            unreachable!()
        };
        for row in runs.iter_mut().flat_map(|run| &mut run.rows) {
            row.times.values_mut().for_each(|time| *time *= factor);
        }
        results
    }

    #[test]
    fn latency_has_a_line_per_transport_and_pattern() {
        let chart = draw(PlotKind::Latency, &[two("a")]);
        let expected = [
            "tcp, bulk, total",
            "tcp, one-one, half rtt",
            "udp, one-one, half rtt",
        ];
        assert_eq!(labels_of(&chart), expected);
        let expected = [
            (1.0, 17.001),
            (64.0, 17.064),
            (1024.0, 18.024),
            (65_536.0, 82.536),
        ];
        assert_eq!(chart.lines[1].points, expected);
        assert_eq!(chart.notes.len(), 1);
        assert!(
            chart.notes[0].contains("eth0 (virtio_net)"),
            "{:?}",
            chart.notes
        );
    }

    #[test]
    fn only_the_transports_that_were_named_are_drawn() {
        let udp = ["udp".to_owned()];
        let chart = super::chart(PlotKind::Throughput, &[two("a")], &udp).unwrap();
        assert_eq!(labels_of(&chart), ["udp"]);
        let error = super::chart(PlotKind::Latency, &[two("a")], &["upd".to_owned()]);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("`upd`: there are esp, tcp, udp"), "{error}");
    }

    #[test]
    fn files_are_named_where_there_are_several() {
        let files = [two("before"), two("after")];
        let chart = draw(PlotKind::Throughput, &files);
        let expected = [
            "before, tcp, bulk",
            "before, tcp, one-one",
            "after, tcp, bulk",
            "after, tcp, one-one",
            "before, udp, one-one",
            "after, udp, one-one",
        ];
        assert_eq!(labels_of(&chart), expected);
        assert!(chart.notes.is_empty());
    }

    #[test]
    fn files_are_compared_with_the_first() {
        let files = [two("before"), slower("after", 2.0)];
        let chart = draw(PlotKind::Comparison, &files);
        assert_eq!(chart.title, "Comparison with before");
        assert_eq!(chart.lines.len(), 3);
        for line in &chart.lines {
            assert!(line.label.starts_with("after") || !line.label.contains("before"));
            assert!(line
                .points
                .iter()
                .all(|point| (point.1 - 2.0).abs() < 1e-12));
        }
        let base = chart.base.unwrap();
        assert_eq!((&base.label[..], base.value), ("before", 1.0));
        assert!(chart.y.range().contains(&1.0) && chart.y.range().contains(&2.0));
    }

    #[test]
    fn transports_of_one_file_are_compared_with_the_first() {
        let chart = draw(PlotKind::Comparison, &[two("a")]);
        assert_eq!(chart.title, "Comparison with tcp");
        let [line] = &chart.lines[..] else {
            panic!("{chart:?}")
        };
        assert_eq!(line.label, "udp");
        assert!((line.points[0].1 - 13_701.0 / 17_001.0).abs() < 1e-12);
    }

    #[test]
    fn patterns_of_many_go_over_clients_if_these_differ() {
        let mut file = of_many();
        let chart = draw(PlotKind::Throughput, std::slice::from_ref(&file));
        assert_eq!(chart.lines[0].points, [(1024.0, 80.0), (65_536.0, 190.0)]);
        let results::Measured::Runs(runs) = &mut file.measured else {
            unreachable!()
        };
        let mut more = runs[0].clone();
        more.clients = Some(8);
        runs.push(more);
        for run in runs {
            let mut between = run.rows[0].clone();
            between.size = 8192;
            run.rows.insert(1, between);
        }
        let chart = draw(PlotKind::Throughput, &[file]);
        // The lines are sorted by size, not by the sizes' names.
        let expected = ["tcp reno, 1 KiB", "tcp reno, 8 KiB", "tcp reno, 64 KiB"];
        assert_eq!(labels_of(&chart), expected);
        assert!(chart.lines.iter().all(|line| line.transport == "tcp"));
        assert_eq!(chart.lines[2].points, [(2.0, 190.0), (8.0, 190.0)]);
        assert_eq!(chart.x.label, "clients");
    }

    #[test]
    fn the_time_of_all_stalls_is_no_latency() {
        let text = r#"{"netgauge": "9", "runs": [{"transport": "tcp", "pattern": "recovery", "rows": [
            {"size": 1, "exchange_ns": {"median": 30000}, "stalls": 2, "stalled_ns": 42000000}]}]}"#;
        let chart = draw(PlotKind::Latency, &[results::tests::parsed(text)]);
        assert_eq!(labels_of(&chart), ["tcp"]);
        assert_eq!(chart.lines[0].points, [(1.0, 30.0)]);
    }

    #[test]
    fn the_kind_that_suits_is_what_was_measured() {
        assert_eq!(suitable(&[two("a")]), PlotKind::Latency);
        assert_eq!(suitable(&[of_many()]), PlotKind::Throughput);
        assert_eq!(suitable(&[]), PlotKind::HeatMap);
    }

    #[test]
    fn a_kind_that_was_not_measured_is_refused_with_what_to_do() {
        let refused = |kind, files: &[Results]| chart(kind, files, &[]).unwrap_err().to_string();
        assert!(refused(PlotKind::Overhead, &[two("a")]).contains("-x logp"));
        assert!(refused(PlotKind::Latency, &[of_many()]).contains("--kind"));
        let alone = ["udp".to_owned()];
        let error = chart(PlotKind::Comparison, &[two("a")], &alone).unwrap_err();
        assert!(error.to_string().contains("several"), "{error}");
    }
}
