// SPDX-License-Identifier: MIT OR Apache-2.0

//! The lines of saved results.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, ensure, Result};

use super::axis::{Axis, Unit};
use super::chart::{Base, Chart, Line};
use super::results::{Results, Row, Run};
use super::PlotKind;
use crate::sizes::human;
use crate::transport::transport_of;

/// The word in the name of a time that is an overhead: time that a call keeps the processor.
const OVERHEAD: &str = "overhead";

/// The time of a whole transfer, which is no latency where there is any other.
const WHOLE: &str = "total";

/// The cost of all stalls together, which grows with the number of tests.
const STALLED: &str = "stalled";

/// A number of the results: where it is, and of what.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Number {
    /// The line that it belongs to.
    pub(super) of: Origin,
    /// Bytes of the messages.
    pub(super) size: u64,
    /// Number of clients, in patterns that have many.
    pub(super) clients: Option<u64>,
    /// The number itself.
    pub(super) value: f64,
    /// The least and the greatest of what it stands for, where these are to be shown.
    pub(super) ends: Option<(f64, f64)>,
}

/// The origin of a number: numbers of the same origin are on one line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    /// Where its transport is in the order of the files' runs.
    rank: usize,
    /// The file's number.
    file: usize,
    /// The size that is not on the horizontal axis; 0 if it is.
    aside: u64,
    /// Its name, in parts: those that are the same everywhere need not be said.
    parts: [String; PARTS],
}

/// A place of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    x: f64,
    y: f64,
    /// From where to where values went.
    ends: Option<(f64, f64)>,
}

/// The places of each line, from left to right.
type Places = BTreeMap<Origin, Vec<Place>>;

/// The horizontal axis of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The number of clients.
    Clients,
    /// The size of messages.
    Sizes,
}

impl Over {
    fn axis(self) -> (&'static str, Unit) {
        match self {
            Self::Clients => ("clients", Unit::Count),
            Self::Sizes => ("message size", Unit::Bytes),
        }
    }
}

/// Lines, and what was measured for them.
pub(super) struct Laid {
    /// The lines.
    pub(super) lines: Places,
    /// Their horizontal axis.
    pub(super) over: Over,
    /// The numbers of clients.
    pub(super) clients: BTreeSet<u64>,
    /// The sizes.
    pub(super) sizes: BTreeSet<u64>,
}

/// The transports, in the order of their first runs.
#[derive(Default)]
pub(super) struct Order(Vec<String>);

impl Order {
    /// Where a transport is.
    fn rank(&mut self, transport: &str) -> usize {
        let known = self.0.iter().position(|known| known == transport);
        known.unwrap_or_else(|| {
            self.0.push(transport.to_owned());
            self.0.len() - 1
        })
    }

    /// The origin of what a report has only one kind of.
    pub(super) fn origin(&mut self, transport: String) -> Origin {
        let mut parts: [String; PARTS] = Default::default();
        let rank = self.rank(&transport);
        parts[TRANSPORT] = transport;
        Origin {
            rank,
            file: 0,
            aside: 0,
            parts,
        }
    }
}

/// Parts of a name: file, transport, pattern, which number, the size that is not on the horizontal
/// axis.
const PARTS: usize = 5;
const FILE: usize = 0;
const TRANSPORT: usize = 1;
const ASIDE: usize = 4;

/// The kind of picture that suits files best.
pub(super) fn suitable(files: &[Results]) -> PlotKind {
    let rows = || {
        files
            .iter()
            .flat_map(Results::runs)
            .flat_map(|run| &run.rows)
    };
    if rows().next().is_none() {
        PlotKind::HeatMap
    } else if rows().any(|row| latencies(row).next().is_some()) {
        PlotKind::Latency
    } else if rows().any(|row| row.mbit_per_s.is_some()) {
        PlotKind::Throughput
    } else {
        PlotKind::Overhead
    }
}

/// The chart of `kind`, which is none of the heat map.
///
/// # Errors
///
/// The files have nothing of this kind.
pub(super) fn chart(kind: PlotKind, files: &[Results], transports: &[String]) -> Result<Chart> {
    for wanted in transports {
        let known = files
            .iter()
            .flat_map(Results::runs)
            .map(|run| &run.transport);
        ensure!(
            known.clone().any(|transport| transport == wanted),
            "no file has the transport `{wanted}`: there are {}",
            known
                .cloned()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
                .join(", ")
        );
    }
    let numbers = |pick: fn(&Row) -> Vec<(String, f64)>| numbers(files, transports, pick);
    match kind {
        PlotKind::Latency => {
            let found = numbers(|row| latencies(row).map(microseconds).collect());
            build(found, "Latency", "time, median, us", files)
        }
        PlotKind::Throughput => build(numbers(rates), "Throughput", "Mbit/s, median", files),
        PlotKind::Overhead => {
            let found = numbers(|row| overheads(row).map(microseconds).collect());
            ensure!(
                !found.is_empty(),
                "no file has overheads: measure them with a pattern that does, such as -x logp or -x flood"
            );
            build(found, "Overhead", "time in the call, median, us", files)
        }
        PlotKind::Comparison => {
            let times = numbers(|row| latencies(row).map(microseconds).collect());
            let (what, found) = if times.is_empty() {
                ("throughput", numbers(rates))
            } else {
                ("time", times)
            };
            compare(what, found, files)
        }
        PlotKind::HeatMap => bail!("a heat map is no chart"),
    }
}

/// The times that say how long something takes from here to there.
fn latencies(row: &Row) -> impl Iterator<Item = (&String, &f64)> {
    let only_whole = row.times.keys().all(|name| name == WHOLE);
    row.times.iter().filter(move |(name, _)| {
        !name.contains(OVERHEAD) && *name != STALLED && (only_whole || *name != WHOLE)
    })
}

fn overheads(row: &Row) -> impl Iterator<Item = (&String, &f64)> {
    row.times.iter().filter(|(name, _)| name.contains(OVERHEAD))
}

/// The throughput: there is one, so that it needs no name.
fn rates(row: &Row) -> Vec<(String, f64)> {
    row.mbit_per_s
        .map(|rate| (String::new(), rate))
        .into_iter()
        .collect()
}

fn microseconds((name, nanoseconds): (&String, &f64)) -> (String, f64) {
    (name.replace('_', " "), nanoseconds / 1e3)
}

/// All numbers that `pick` finds in rows, by its names for them.
fn numbers(
    files: &[Results],
    transports: &[String],
    pick: fn(&Row) -> Vec<(String, f64)>,
) -> Vec<Number> {
    let mut order = Order::default();
    let mut numbers = Vec::new();
    for (file, results) in files.iter().enumerate() {
        let wanted = |run: &&Run| transports.is_empty() || transports.contains(&run.transport);
        for run in results.runs().iter().filter(wanted) {
            let rank = order.rank(&run.transport);
            for row in &run.rows {
                numbers.extend(pick(row).into_iter().map(|(name, value)| Number {
                    of: Origin {
                        rank,
                        file,
                        aside: 0,
                        parts: [
                            results.name.clone(),
                            run.transport.clone(),
                            run.pattern.clone(),
                            name,
                            String::new(),
                        ],
                    },
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

/// Puts numbers on lines: over clients if their number differs, else over sizes.
pub(super) fn lay(mut numbers: Vec<Number>) -> Laid {
    let clients: BTreeSet<_> = numbers.iter().filter_map(|number| number.clients).collect();
    let over = match clients.len() {
        0 | 1 => Over::Sizes,
        _ => Over::Clients,
    };
    let sizes: BTreeSet<_> = numbers.iter().map(|number| number.size).collect();
    let mut lines: Places = BTreeMap::new();
    for number in &mut numbers {
        let x = match (over, number.clients) {
            (Over::Clients, Some(clients)) => {
                if sizes.len() > 1 {
                    number.of.aside = number.size;
                    number.of.parts[ASIDE] = human(number.size);
                }
                clients as f64
            }
            // What has no clients in a file that has would be nowhere.
            (Over::Clients, None) => continue,
            (Over::Sizes, _) => number.size as f64,
        };
        lines.entry(number.of.clone()).or_default().push(Place {
            x,
            y: number.value,
            ends: number.ends,
        });
    }
    for places in lines.values_mut() {
        places.sort_by(|one, other| one.x.total_cmp(&other.x));
    }
    Laid {
        lines,
        over,
        clients,
        sizes,
    }
}

/// The names of lines: the parts in which they differ, or the transport.
fn labels(origins: &[&Origin]) -> Vec<String> {
    let differs = |part: usize| {
        let texts: BTreeSet<_> = origins.iter().map(|origin| &origin.parts[part]).collect();
        texts.len() > 1
    };
    let said: Vec<usize> = (0..PARTS)
        .filter(|part| *part == TRANSPORT || differs(*part))
        .collect();
    let label = |origin: &&Origin| {
        let parts = said.iter().map(|part| &origin.parts[*part][..]);
        parts
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(", ")
    };
    origins.iter().map(label).collect()
}

fn build(numbers: Vec<Number>, title: &str, y: &str, files: &[Results]) -> Result<Chart> {
    ensure!(
        !numbers.is_empty(),
        "no file has anything to draw for {}: choose another --kind",
        title.to_lowercase()
    );
    let laid = lay(numbers);
    let mut chart = assemble(laid.lines, title.to_owned(), laid.over.axis(), y);
    chart.notes = notes(files);
    Ok(chart)
}

/// Every line by the one it is compared with: of several files, the same of the first file; of
/// one file, the same of the first transport.
fn compare(what: &str, numbers: Vec<Number>, files: &[Results]) -> Result<Chart> {
    let Laid { lines, over, .. } = lay(numbers);
    let several = files.len() > 1;
    let standard = |origin: &Origin| {
        let same = |part: usize| {
            let others = lines.keys().filter(move |other| {
                (0..PARTS).all(|at| at == part || origin.parts[at] == other.parts[at])
            });
            others
        };
        // Files are told apart by their number, since two may have one name.
        let first = if several {
            same(FILE).find(|other| other.file == 0)
        } else {
            same(TRANSPORT).min_by_key(|other| other.rank)
        };
        first.filter(|first| *first != origin)
    };
    let mut compared = BTreeMap::new();
    let mut standards = BTreeSet::new();
    for (origin, places) in &lines {
        let Some(first) = standard(origin) else {
            continue;
        };
        let by = |x: f64| {
            let place = lines[first].iter().find(|place| place.x == x);
            place.map(|place| place.y)
        };
        let share = |place: &Place| {
            let y = place.y / by(place.x)?;
            Some(Place { y, ..*place })
        };
        let shares: Vec<_> = places.iter().filter_map(share).collect();
        if !shares.is_empty() {
            standards.insert(first.parts[if several { FILE } else { TRANSPORT }].clone());
            compared.insert(origin.clone(), shares);
        }
    }
    ensure!(
        !compared.is_empty(),
        "there is nothing to compare: give several files with the same transport, pattern and sizes, or one with \
         several transports"
    );
    let standard = standards.into_iter().collect::<Vec<_>>().join(", ");
    let title = format!("Comparison with {standard}");
    let y = format!("{what}, by that of {standard}");
    let mut chart = assemble(compared, title, over.axis(), &y);
    chart.notes = notes(files);
    chart.base = Some(Base {
        label: standard,
        value: 1.0,
    });
    let values = chart.lines.iter().flat_map(|line| &line.points);
    // What is compared with is in the picture too.
    let values = values.map(|point| point.1).chain([1.0]);
    chart.y = Axis::new(&y, Unit::Number, values);
    Ok(chart)
}

/// A chart of lines, with nothing below its title.
pub(super) fn assemble(lines: Places, title: String, (x, unit): (&str, Unit), y: &str) -> Chart {
    let labels = labels(&lines.keys().collect::<Vec<_>>());
    let line = |(label, (origin, places)): (String, (Origin, Vec<Place>))| Line {
        label,
        transport: transport_of(&origin.parts[TRANSPORT]).to_owned(),
        points: places.iter().map(|place| (place.x, place.y)).collect(),
        bars: places
            .iter()
            .filter_map(|place| place.ends.map(|(least, most)| (place.x, least, most)))
            .collect(),
    };
    let lines: Vec<_> = labels.into_iter().zip(lines).map(line).collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    Chart {
        title,
        notes: Vec::new(),
        x: Axis::new(x, unit, points().map(|point| point.0)),
        y: Axis::new(y, Unit::Number, points().map(|point| point.1)),
        lines,
        base: None,
    }
}

/// Where and when the results of one file were measured.
fn notes(files: &[Results]) -> Vec<String> {
    let [file] = files else {
        return Vec::new();
    };
    let Some(record) = &file.record else {
        return Vec::new();
    };
    let host = record.hosts.values().next();
    let mut facts: Vec<String> = Vec::new();
    if let Some(host) = host {
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

    /// Times of everything multiplied.
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
        // By their sizes, not by what these are called.
        let expected = ["tcp reno, 1 KiB", "tcp reno, 8 KiB", "tcp reno, 64 KiB"];
        assert_eq!(labels_of(&chart), expected);
        assert!(chart.lines.iter().all(|line| line.transport == "tcp"));
        assert_eq!(chart.lines[2].points, [(2.0, 190.0), (8.0, 190.0)]);
        assert_eq!(chart.x.label, "clients");
    }

    #[test]
    fn what_stalls_cost_together_is_no_latency() {
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
