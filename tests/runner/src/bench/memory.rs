// SPDX-License-Identifier: GPL-2.0-only

//! `make bench OPTIONS=--memory`: measures the memory accesses for a message, and for a KiB of a
//! stream. The plugin of `tests/plugin` counts the accesses, in a guest like the guest that `make
//! bench` boots for its other figures.
//!
//! Two runs differ only in their number of messages or bytes, and the difference of their counts
//! gives the figure; `make profile` counts in the same way. Before and after each run the guest
//! makes a system call that nothing else makes. At each of these calls the plugin records its
//! totals. The counts between two runs are not used, because the guest then waits for the runner.
//! During this wait the guest's clock runs ahead, and the kernel's timers run with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::series::{BYTE, MESSAGE, STREAMS, TRANSPORTS};
use super::{over, strings, Link, PATIENCE, UNLIMITED};
use crate::architecture::Architecture;
use crate::commands::{Commands, Ended, Verb};
use crate::layout::Layout;
use crate::profile::Symbols;
use crate::programs;
use crate::qemu::Clock;
use crate::step;

/// The guest's clock counts instructions, as the plugin does. The two counts may differ by at most
/// this share of the clock's count.
const TOLERANCE: f64 = 0.01;

/// For each figure, the plugin's number of instructions may differ from netgauge's number by at
/// most this share. netgauge's number is the time that it measures by the guest's clock. It
/// excludes netgauge's work between two messages, some 130 instructions, and includes the time in
/// which both ends wait for a timer.
const TOLERANCE_OF_FIGURES: f64 = 0.02;

/// How many blocks the shorter and the longer run copy from `/dev/zero` to `/dev/null`. These runs
/// compare the plugin with the clock.
const BLOCKS: [u64; 2] = [2000, 22_000];

/// A string instruction is listed if it takes at least this share of a figure's instructions.
const LISTED: f64 = 0.002;

/// No ratio is printed if its divisor is below this number. The guest's other activity changes a
/// count by more than this number, so the ratio would mean nothing.
const LEAST: f64 = 0.5;

/// Names of the numbers in the table.
const NUMBERS: [&str; 7] = [
    "instructions",
    "loads",
    "stores",
    "locked",
    "string steps",
    "L1 misses",
    "L2 misses",
];

/// One of the figures of `make bench`.
#[derive(Debug)]
struct Section {
    name: &'static str,
    link: Link,
    /// Groups of transports, each group with the work of its runs.
    parts: &'static [(&'static [&'static str], Work)],
}

/// The work of two runs. The difference between the runs is measured.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Round trips of one byte: the number of round trips in each run.
    Messages([u64; 2]),
    /// Streams: the KiB that each run transfers.
    Stream([u64; 2]),
}

/// Longer streams, for links that carry many packets at a time through the kernel. There they take
/// about as many instructions as [`STREAM`] takes on other links. The guest's other activity is
/// small in comparison: some hundred thousand instructions.
const LONG_STREAM: Work = Work::Stream([4 << 10, 132 << 10]);
const STREAM: Work = Work::Stream([4 << 10, 28 << 10]);

/// Transports of datagrams.
const DATAGRAMS: [&str; 3] = ["udp", "raw", "edp"];

/// All sections, in order.
const SECTIONS: &[Section] = &[
    Section {
        name: MESSAGE,
        link: Link::Usual,
        parts: &[(&TRANSPORTS, Work::Messages([500, 5500]))],
    },
    Section {
        name: BYTE,
        link: Link::Usual,
        parts: &[(&STREAMS, LONG_STREAM), (&DATAGRAMS, STREAM)],
    },
    Section {
        name: "cut-byte",
        link: Link::Cut,
        parts: &[(&STREAMS, STREAM)],
    },
    Section {
        name: "joined-byte",
        link: Link::Joined,
        parts: &[(&STREAMS, STREAM)],
    },
];

impl Work {
    /// Returns netgauge's options for the second run if `long` is true, otherwise for the first,
    /// shorter run.
    fn arguments(self, long: bool) -> String {
        let run = usize::from(long);
        match self {
            Self::Messages(counts) => format!("-x one-one -s 1 -c {} --warmup 100", counts[run]),
            Self::Stream(kib) => format!("-x bulk -s {}K -c 1 --warmup 0", kib[run]),
        }
    }

    /// Returns by how many half round trips or KiB the second run exceeds the first.
    fn units(self) -> f64 {
        match self {
            Self::Messages([few, many]) => 2.0 * (many - few) as f64,
            Self::Stream([little, much]) => (much - little) as f64,
        }
    }

    /// Returns the name of the unit of work.
    fn unit(self) -> &'static str {
        match self {
            Self::Messages(_) => "half a round trip",
            Self::Stream(_) => "a KiB",
        }
    }

    /// Returns the total time in `report`, netgauge's report of a run, in nanoseconds of the
    /// guest's clock.
    fn time(self, report: &Value) -> Result<f64> {
        let run = &report["runs"][0];
        let row = &run["rows"][0];
        let (times, of_each) = match self {
            Self::Messages(_) => (&row["half_rtt_ns"], 2.0),
            Self::Stream(_) => (&row["total_ns"], 1.0),
        };
        let average = times["avg"].as_f64();
        let tests = row["tests"].as_f64();
        average
            .zip(tests)
            .map(|(average, tests)| average * of_each * tests)
            .with_context(|| format!("netgauge measured nothing: {run}"))
    }
}

/// The plugin's counts since the guest started.
#[derive(Clone, Debug, Deserialize)]
struct Totals {
    instructions: u64,
    loads: u64,
    stores: u64,
    locked: u64,
    l1_misses: u64,
    l2_misses: u64,
    strings: Vec<StringTotal>,
}

/// How many steps a repeated string instruction has taken.
#[derive(Clone, Debug, Deserialize)]
struct StringTotal {
    address: u64,
    name: String,
    steps: u64,
}

/// The counts of one run, or the difference of two runs per unit of work.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// The numbers, in the order of [`NUMBERS`].
    numbers: [f64; NUMBERS.len()],
    /// Steps of string instructions, by address and name.
    strings: BTreeMap<(u64, String), f64>,
}

impl From<Totals> for Counts {
    fn from(totals: Totals) -> Self {
        let steps = totals.strings.iter().map(|one| one.steps).sum();
        let numbers = [
            totals.instructions,
            totals.loads,
            totals.stores,
            totals.locked,
            steps,
            totals.l1_misses,
            totals.l2_misses,
        ];
        let strings = totals.strings.into_iter();
        Self {
            numbers: numbers.map(|number| number as f64),
            strings: strings
                .map(|one| ((one.address, one.name), one.steps as f64))
                .collect(),
        }
    }
}

impl Counts {
    /// Returns the difference between `self` and `less`, divided by `units`. `less` was counted
    /// earlier, or for less work.
    fn beyond(&self, less: &Self, units: f64) -> Self {
        let mut more = self.clone();
        for (number, other) in more.numbers.iter_mut().zip(less.numbers) {
            *number = (*number - other) / units;
        }
        for (string, steps) in &mut more.strings {
            *steps -= less.strings.get(string).copied().unwrap_or_default();
            *steps /= units;
        }
        more
    }

    fn instructions(&self) -> f64 {
        self.numbers[0]
    }
}

/// One transport's results in a section.
#[derive(Debug)]
struct Row {
    transport: &'static str,
    /// The counts of one unit of work: half a round trip or a KiB.
    counts: Counts,
    /// The number of instructions for one unit, by the time that netgauge measured. The guest's
    /// clock advances by a nanosecond with each instruction.
    clock: f64,
}

impl Row {
    /// Returns all numbers that the table shows.
    fn numbers(&self) -> impl Iterator<Item = f64> + '_ {
        self.counts.numbers.into_iter().chain([self.clock])
    }

    /// Returns by how much the plugin's number of instructions exceeds the clock's number, as a
    /// share of the clock's number.
    fn deviation(&self) -> f64 {
        self.counts.instructions() / self.clock - 1.0
    }
}

/// The kernel function at whose first instruction the plugin records its totals, and a command that
/// calls this function.
const MARK: (&str, &str) = ("__x64_sys_sethostname", "hostname enet");

/// The kernel frees some objects of an ended process with a delay. This command waits until they
/// are freed.
const SETTLE: &str = "usleep 300000";

/// The connection to the plugin.
#[derive(Debug)]
struct Counter {
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl Counter {
    /// Makes the plugin record its totals at the function [`MARK`]. The guest must not have called
    /// this function yet, because the plugin cannot mark an instruction that QEMU has already
    /// translated.
    fn new(guest: &Commands, symbols: &Symbols) -> Result<Self> {
        let to = guest.counts()?;
        let from = BufReader::new(to.try_clone()?);
        let mut counter = Self { to, from };
        counter.ask(&format!("{:x}", symbols.range(MARK.0)?.start))?;
        Ok(counter)
    }

    /// Sends a request. Returns the totals recorded since the previous request.
    fn ask(&mut self, line: &str) -> Result<Vec<Totals>> {
        writeln!(self.to, "{line}")?;
        let mut line = String::new();
        ensure!(
            self.from.read_line(&mut line)? > 0,
            "QEMU's plugin has ended"
        );
        serde_json::from_str(&line).context("the plugin's counts")
    }

    /// Runs `command` in the guest's shell. Returns what the plugin counted while the command ran,
    /// and the command's output.
    fn count(&mut self, guest: &mut Commands, command: &str) -> Result<(Counts, Ended)> {
        let mark = MARK.1;
        let line = format!(
            "! {SETTLE}; {mark}; {{ {command}; }} >/tmp/printed 2>&1; {SETTLE}; {mark}; cat /tmp/printed"
        );
        let ended = guest.ask(&line)?;
        let marked: Result<[Totals; 2], _> = self.ask("")?.try_into();
        let Ok([before, after]) = marked else {
            bail!("the plugin has not seen the two marks: {}", ended.text);
        };
        let (before, after) = (Counts::from(before), Counts::from(after));
        Ok((after.beyond(&before, 1.0), ended))
    }

    /// Compares the number of instructions that the plugin counts with the number that the guest's
    /// clock counts. The guest never idles during the compared work, so the clock counts all
    /// instructions of this work.
    fn check(&mut self, guest: &mut Commands) -> Result<()> {
        let mut run = |blocks: u64| {
            let now = "grep 'now at' /proc/timer_list";
            let command = format!(
                "{now}; dd if=/dev/zero of=/dev/null bs=16k count={blocks} 2>/dev/null; {now}"
            );
            let (more, ended) = self.count(guest, &command)?;
            Ok::<_, anyhow::Error>((more.instructions(), between(&ended.text)?))
        };
        run(BLOCKS[0])?;
        let (few, short) = run(BLOCKS[0])?;
        let (many, long) = run(BLOCKS[1])?;
        let (counted, clock) = (many - few, long - short);
        step::say(&format!(
            "the plugin counts {counted:.0} instructions where the guest's clock counts {clock:.0}: {:+.2} %",
            100.0 * (counted / clock - 1.0)
        ));
        ensure!(
            (counted / clock - 1.0).abs() <= TOLERANCE,
            "the plugin's instructions are not those by the guest's clock"
        );
        Ok(())
    }

    fn measure(
        &mut self,
        guest: &mut Commands,
        link: Link,
        transport: &'static str,
        work: Work,
    ) -> Result<Row> {
        let mut run = |long| {
            let command = format!(
                "ip netns exec a chrt -f 1 netgauge -m {transport} {} {UNLIMITED} {} 2>/tmp/errors || cat /tmp/errors",
                over(link),
                work.arguments(long)
            );
            let (counts, ended) = self.count(guest, &command)?;
            let time = work.time(&ended.report()?);
            Ok::<_, anyhow::Error>((counts, time.with_context(|| transport.to_owned())?))
        };
        // The first execution costs more, so it is not counted.
        run(false)?;
        let (little, short) = run(false)?;
        let (much, long) = run(true)?;
        Ok(Row {
            transport,
            counts: much.beyond(&little, work.units()),
            clock: (long - short) / work.units(),
        })
    }
}

/// Returns the time between two lines `now at NUMBER nsecs`, in nanoseconds.
fn between(text: &str) -> Result<f64> {
    let times: Vec<f64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("now at ")?.strip_suffix(" nsecs"))
        .filter_map(|number| number.parse().ok())
        .collect();
    match times[..] {
        [start, end] if start < end => Ok(end - start),
        _ => bail!("the guest's clock says {text}"),
    }
}

/// Prints the tables.
///
/// # Errors
/// If something does not build, the guest does not boot, a transport fails, or the plugin's
/// instructions deviate from the instructions by the guest's clock.
pub fn run(layout: &Layout) -> Result<()> {
    ensure!(
        layout.architecture == Architecture::Amd64,
        "--memory knows the instructions of x86-64 alone"
    );
    programs::build_packages(layout, &["qemu-memory"])?;
    let mut guest = Commands::boot(layout, "memory", Verb::Bench, Clock::Watched, 4 * PATIENCE)?;
    strings::check(&mut guest)?;
    let symbols = Symbols::read(&mut guest)?;
    let mut counter = Counter::new(&guest, &symbols)?;
    counter.check(&mut guest)?;
    let mut wrong = Vec::new();
    let mut text = String::new();
    for section in SECTIONS {
        section.link.set_up(&mut guest)?;
        let mut rows = Vec::new();
        for (transports, work) in section.parts {
            for transport in *transports {
                step::say(&format!("counting {} of {transport}", section.name));
                let row = counter.measure(&mut guest, section.link, transport, *work)?;
                if row.deviation().abs() > TOLERANCE_OF_FIGURES {
                    wrong.push(format!(
                        "{} of {transport}: {:+.1} %",
                        section.name,
                        100.0 * row.deviation()
                    ));
                }
                rows.push(row);
            }
        }
        text += &table(section, &rows);
        text += &string_steps(&rows, &symbols);
        text.push('\n');
    }
    guest.end()?;
    println!("{HEAD}\n{text}");
    if !wrong.is_empty() {
        bail!(
            "the plugin's instructions are not those by the guest's clock: {}",
            wrong.join(", ")
        );
    }
    Ok(())
}

const HEAD: &str = "What a message and a KiB of a stream do to memory, both ends together. Locked instructions have the prefix\n\
    lock or are an xchg with memory; each step of a repeated string instruction counts as an instruction. Misses are those\n\
    of a modelled processor that runs both ends: L1 for data with 32 KiB in 8 ways, L2 with 1 MiB in 16 ways, lines of 64\n\
    bytes, LRU, no prefetching. \"clock\" are the instructions by netgauge's reading of the guest's clock.\n";

/// Formats the numbers of a section by transport, and ESP's ratios.
fn table(section: &Section, rows: &[Row]) -> String {
    let unit = section.parts.first().map_or("", |(_, work)| work.unit());
    let mut text = format!("{}, of {unit}\n{:10}", section.name, "");
    for name in NUMBERS {
        let _ = write!(text, "{name:>14}");
    }
    text += "         clock\n";
    for row in rows {
        let _ = write!(text, "{:10}", row.transport);
        for number in row.numbers() {
            let digits = if number < 100.0 { 2 } else { 0 };
            let _ = write!(text, "{number:>14.digits$}");
        }
        text.push('\n');
    }
    let of = |transport: &str| rows.iter().find(|row| row.transport == transport);
    for base in ["tcp", "raw"] {
        let (Some(esp), Some(other)) = (of("esp"), of(base)) else {
            continue;
        };
        let _ = write!(text, "{:10}", format!("esp/{base}"));
        for (number, other) in esp.numbers().zip(other.numbers()) {
            let ratio = if other < LEAST {
                "-".to_owned()
            } else {
                format!("{:.3}", number / other)
            };
            let _ = write!(text, "{ratio:>14}");
        }
        text.push('\n');
    }
    text
}

/// Formats, by function, the string instructions that take at least the share [`LISTED`] of all
/// instructions.
fn string_steps(rows: &[Row], symbols: &Symbols) -> String {
    let mut text = String::new();
    for row in rows {
        let mut by_function: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        for ((address, name), steps) in &row.counts.strings {
            *by_function
                .entry((name, symbols.name(*address)))
                .or_default() += steps;
        }
        let mut listed: Vec<_> = by_function
            .into_iter()
            .filter(|(_, steps)| *steps >= LISTED * row.counts.instructions())
            .collect();
        listed.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        for ((name, function), steps) in listed {
            let _ = writeln!(
                text,
                "{:10}{steps:>14.2} steps of {name} in {function}, {:.1} % of the instructions",
                row.transport,
                100.0 * steps / row.counts.instructions()
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str) -> Counts {
        serde_json::from_str::<Totals>(text).unwrap().into()
    }

    const BEFORE: &str = r#"{"instructions": 1000, "loads": 300, "stores": 200, "locked": 10, "l1_misses": 5, "l2_misses": 1,
        "strings": [{"address": 4096, "name": "rep stosq", "steps": 64}]}"#;
    const AFTER: &str = r#"{"instructions": 21000, "loads": 6300, "stores": 4200, "locked": 210, "l1_misses": 105, "l2_misses": 1,
        "strings": [{"address": 4096, "name": "rep stosq", "steps": 664},
                    {"address": 8192, "name": "rep movsq", "steps": 20}]}"#;

    #[test]
    fn figures_are_the_difference_of_two_runs_by_unit() {
        let more = counts(AFTER).beyond(&counts(BEFORE), 10.0);
        assert_eq!(more.numbers, [2000.0, 600.0, 400.0, 20.0, 62.0, 10.0, 0.0]);
        let steps: Vec<_> = more.strings.values().copied().collect();
        assert_eq!(steps, [60.0, 2.0]);
    }

    fn row(transport: &'static str, scale: f64, clock: f64) -> Row {
        let counts = counts(AFTER).beyond(&counts(BEFORE), scale);
        Row {
            transport,
            counts,
            clock,
        }
    }

    #[test]
    fn ratios_are_esps_and_those_to_nothing_are_left_out() {
        let rows = [row("tcp", 10.0, 2000.0), row("esp", 20.0, 1000.0)];
        let text = table(&SECTIONS[0], &rows);
        let ratios = text.lines().find(|line| line.starts_with("esp/tcp"));
        let ratios: Vec<_> = ratios.unwrap().split_whitespace().collect();
        let half = "0.500";
        assert_eq!(
            ratios,
            ["esp/tcp", half, half, half, half, half, half, "-", half]
        );
        assert!(!text.contains("esp/raw"), "{text}");
    }

    #[test]
    fn a_deviating_clock_is_noticed() {
        assert!(row("tcp", 10.0, 2000.0).deviation().abs() < TOLERANCE);
        assert!(row("tcp", 10.0, 2050.0).deviation() < -TOLERANCE_OF_FIGURES);
        assert!(row("tcp", 10.0, 1950.0).deviation() > TOLERANCE_OF_FIGURES);
    }

    #[test]
    fn the_time_between_two_readings_is_told() {
        assert_eq!(
            between("now at 1000 nsecs\nnow at 4500 nsecs\n").unwrap(),
            3500.0
        );
        for text in [
            "",
            "now at 1000 nsecs\n",
            "now at 2 nsecs\nnow at 1 nsecs\n",
        ] {
            assert!(between(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_clocks_time_is_that_of_all_tests() {
        let report = |row: &str| {
            serde_json::from_str(&format!(r#"{{"runs": [{{"rows": [{row}]}}]}}"#)).unwrap()
        };
        let message = report(r#"{"tests": 300, "half_rtt_ns": {"avg": 10000, "median": 9000}}"#);
        assert_eq!(Work::Messages([100, 300]).time(&message).unwrap(), 6e6);
        let stream = report(r#"{"tests": 1, "total_ns": {"avg": 5000000}}"#);
        assert_eq!(STREAM.time(&stream).unwrap(), 5e6);
        assert!(STREAM.time(&message).is_err());
    }
}
