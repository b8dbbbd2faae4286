// SPDX-License-Identifier: MIT OR Apache-2.0

//! From the command line to the report of a pattern of more than two.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{bail, ensure, Context as _, Result};

use super::all::{self, AllPlan, AllReport, Together};
use super::args::RoundsPlan;
use super::esp_params::{self, ParamsPlan, ParamsReport};
use super::one_many::{self, Direction, ManyPlan, ManyReport};
use super::participants::Group;
use super::recorded;
use super::rounds::MOST_BYTES;
use super::signals::{Interrupted, Signals};
use super::start::Place;
use crate::cli::Cli;
use crate::progress::{Bar, Progress};
use crate::report::record::Record;
use crate::report::{Format, LeftOut};
use crate::sizes::SizeSpec;

/// A pattern of more than two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupPattern {
    /// Many clients, one server.
    Many(Direction),
    /// All do the same.
    All(Together),
    /// ESP over its parameters.
    EspParams,
}

/// What is to be measured.
enum Plan {
    Many(ManyPlan),
    All(AllPlan),
    EspParams(ParamsPlan),
}

/// What was measured.
enum GroupReport {
    Many(ManyReport),
    All(AllReport),
    EspParams(ParamsReport),
}

impl GroupPattern {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Many(Direction::Gather),
        Self::Many(Direction::Scatter),
        Self::All(Together::AllToAll),
        Self::All(Together::Bisection),
        Self::EspParams,
    ];

    /// Its name in option -x.
    pub fn name(self) -> &'static str {
        match self {
            Self::Many(direction) => direction.name(),
            Self::All(together) => together.name(),
            Self::EspParams => esp_params::NAME,
        }
    }

    /// The one of this name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pattern| pattern.name() == name)
    }

    /// The names of all, for people.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// The one that option -x names; `None` if it names patterns of two.
    ///
    /// # Errors
    ///
    /// It names both kinds, or two of this kind.
    pub fn of(cli: &Cli) -> Result<Option<Self>> {
        let found: Vec<_> = cli.pattern.split(',').map(Self::named).collect();
        match found[..] {
            [only] => Ok(only),
            _ if found.iter().all(Option::is_none) => Ok(None),
            _ => bail!(
                "{} have a report of their own: name one of them alone with -x",
                Self::names()
            ),
        }
    }

    fn default_sizes(self) -> SizeSpec {
        match self {
            Self::Many(_) | Self::All(_) => SizeSpec::several(&[64 << 10, 256 << 10]),
            Self::EspParams => SizeSpec::single(4 << 20),
        }
    }

    fn default_tests(self) -> u32 {
        match self {
            Self::Many(_) | Self::All(Together::AllToAll) => 20,
            // Few pairings say little of a network.
            Self::All(Together::Bisection) => 50,
            Self::EspParams => 5,
        }
    }
}

/// Everything that a coordinator needs, checked before anybody is disturbed.
pub struct Coordinator<'a> {
    cli: &'a Cli,
    places: Vec<Place>,
    plan: Plan,
}

impl<'a> Coordinator<'a> {
    /// What the command line asks for.
    ///
    /// # Errors
    ///
    /// The options do not go together.
    pub fn new(cli: &'a Cli, pattern: GroupPattern) -> Result<Self> {
        ensure!(
            cli.port != 0,
            "port 0 is nobody's: give the servers' with --port"
        );
        ensure!(
            cli.group.peers.is_empty() || cli.interface.is_none(),
            "with --peers, --interface is each server's own option"
        );
        ensure!(
            cli.measuring.sockets.is_default(),
            "options of sockets are for patterns of two"
        );
        for (given, option, pattern) in [
            (cli.pattern_args.eor, "--eor", "flood"),
            (cli.pattern_args.block.is_some(), "--block", "bulk"),
        ] {
            ensure!(
                !given,
                "{option} is an option of pattern {pattern}: leave it out"
            );
        }
        let connect = cli.connect.as_deref();
        let places = cli.group.places(connect, cli.port)?;
        let sizes = cli
            .measuring
            .size
            .clone()
            .unwrap_or_else(|| pattern.default_sizes());
        let rounds = RoundsPlan {
            sizes: sizes.expand(cli.measuring.grade),
            tests: cli
                .measuring
                .tests
                .map_or_else(|| pattern.default_tests(), |n| n.get()),
            warmup: cli.measuring.warmup.unwrap_or(1),
        };
        if let Some(size) = rounds.sizes.iter().find(|size| **size > MOST_BYTES) {
            bail!("size {size} is above what a client has in memory, {MOST_BYTES} bytes: lower -s");
        }
        let (group, measuring, count) = (&cli.group, &cli.measuring, places.len());
        let plan = match pattern {
            GroupPattern::Many(direction) => {
                Plan::Many(group.many_plan(direction, measuring, rounds, connect, count)?)
            }
            GroupPattern::All(together) => {
                Plan::All(group.all_plan(together, measuring, rounds, count)?)
            }
            GroupPattern::EspParams => Plan::EspParams(group.params_plan(rounds, connect, count)?),
        };
        Ok(Self { cli, places, plan })
    }

    /// Measures, and prints the report; says whether everything was measured.
    ///
    /// # Errors
    ///
    /// The participants cannot be brought together. [`Interrupted`] by the user, after what was
    /// measured before has been printed.
    pub fn run(&self, signals: Signals) -> Result<bool> {
        let mut group = Group::gather(&self.places, &self.cli.group_options(), signals)?;
        let record = group.record();
        let bar = Bar::new(self.steps());
        let report = self.measure(&mut group, &bar);
        bar.finish();
        let interrupted = group.was_interrupted();
        // Everybody has ended, and restored what is to be restored, before anything is said of it.
        drop(group);
        report
            .write(&record, self.cli.measuring.format, &mut io::stdout().lock())
            .context("writing the report")?;
        if self.cli.measuring.format != Format::Table {
            for out in report.left_out() {
                eprintln!("netgauge: {out}");
            }
        }
        let plot = self.cli.group.many.plot.as_deref();
        if interrupted {
            // There may be nothing yet to draw.
            let _ = plot.map(|path| report.draw(path));
            bail!(Interrupted);
        }
        if !self.cli.measuring.format.is_seen() {
            for error in report.errors() {
                eprintln!("netgauge: {error}");
            }
        }
        if let Some(path) = plot {
            report.draw(path)?;
        }
        Ok(report.errors().is_empty())
    }

    fn steps(&self) -> u64 {
        let steps = match &self.plan {
            Plan::Many(plan) => plan.media.len() * plan.clients.len() * plan.rounds.sizes.len(),
            Plan::All(plan) => plan.media.len() * plan.rounds.sizes.len(),
            Plan::EspParams(plan) => plan.grid.cells().count(),
        };
        steps as u64
    }

    fn measure(&self, group: &mut Group, progress: &dyn Progress) -> GroupReport {
        let give_up = self.cli.group_options().give_up;
        match &self.plan {
            Plan::Many(plan) => GroupReport::Many(one_many::run(group, plan, give_up, progress)),
            Plan::All(plan) => GroupReport::All(all::run(group, plan, give_up, progress)),
            Plan::EspParams(plan) => {
                GroupReport::EspParams(esp_params::run(group, plan, give_up, progress))
            }
        }
    }
}

impl GroupReport {
    fn write(&self, record: &Record, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Many(report) => recorded::write(report, record, format, out),
            Self::All(report) => recorded::write(report, record, format, out),
            Self::EspParams(report) => recorded::write(report, record, format, out),
        }
    }

    fn errors(&self) -> Vec<String> {
        match self {
            Self::Many(report) => report.errors(),
            Self::All(report) => report.errors(),
            Self::EspParams(report) => report.errors(),
        }
    }

    fn left_out(&self) -> &[LeftOut] {
        match self {
            Self::Many(report) => &report.left_out,
            Self::All(report) => &report.left_out,
            Self::EspParams(_) => &[],
        }
    }

    #[cfg(feature = "pictures")]
    fn draw(&self, path: &Path) -> Result<()> {
        use super::heat_map;
        use crate::plot::goodput;

        match self {
            Self::Many(report) => goodput::draw_many(report, path),
            Self::All(report) => goodput::draw_all(report, path),
            Self::EspParams(report) => heat_map::write(report, path),
        }
    }

    #[cfg(not(feature = "pictures"))]
    fn draw(&self, _path: &Path) -> Result<()> {
        bail!(crate::picture_file::WITHOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn parse(line: &str) -> Cli {
        Cli::parse_from(std::iter::once("netgauge").chain(line.split_whitespace()))
    }

    fn plan(line: &str) -> Result<Plan> {
        let cli = parse(line);
        let pattern = GroupPattern::of(&cli)?.expect("a pattern of many");
        Ok(Coordinator::new(&cli, pattern)?.plan)
    }

    fn many(line: &str) -> ManyPlan {
        match plan(line).unwrap() {
            Plan::Many(plan) => plan,
            _ => panic!("{line}"),
        }
    }

    fn params(line: &str) -> ParamsPlan {
        match plan(line).unwrap() {
            Plan::EspParams(plan) => plan,
            _ => panic!("{line}"),
        }
    }

    #[test]
    fn patterns_of_two_and_of_many_are_told_apart() {
        let of = |line| GroupPattern::of(&parse(line));
        assert_eq!(of("-x one-one,bulk --connect h").unwrap(), None);
        assert_eq!(of("-x all --connect h").unwrap(), None);
        let many = of("-x one-many --connect h").unwrap();
        assert_eq!(many, Some(GroupPattern::Many(Direction::Gather)));
        for line in [
            "-x one-many,bulk --connect h",
            "-x one-many,esp-params --connect h",
        ] {
            assert!(
                of(line).unwrap_err().to_string().contains("alone"),
                "{line}"
            );
        }
    }

    #[test]
    fn one_many_has_its_defaults() {
        let plan = many("-x one-many --netns a,b,c");
        assert_eq!(
            (plan.clients, plan.server, plan.rate),
            (vec![2], None, None)
        );
        let RoundsPlan {
            sizes,
            tests,
            warmup,
        } = plan.rounds;
        assert_eq!((sizes, tests, warmup), (vec![64 << 10, 256 << 10], 20, 1));
        assert_eq!(plan.media.len(), 1);
    }

    #[test]
    fn every_pattern_of_many_is_found_by_its_name() {
        for pattern in GroupPattern::ALL {
            assert_eq!(GroupPattern::named(pattern.name()), Some(pattern));
            let cli = parse(&format!("-x {} --netns a,b", pattern.name()));
            assert_eq!(GroupPattern::of(&cli).unwrap(), Some(pattern));
            assert!(Coordinator::new(&cli, pattern).is_ok(), "{pattern:?}");
        }
        assert_eq!(GroupPattern::named("one-one"), None);
    }

    #[test]
    fn congestion_controls_are_measured_one_by_one_and_esp_has_none() {
        let plan = many("-x one-many -m tcp,esp --congestion cubic,reno --netns a,b");
        let media: Vec<_> = plan
            .media
            .iter()
            .map(|medium| (medium.kind.name, medium.congestion.as_deref()))
            .collect();
        assert_eq!(
            media,
            [("tcp", Some("cubic")), ("tcp", Some("reno")), ("esp", None)]
        );
    }

    #[test]
    fn all_are_those_that_have_streams() {
        let names = |line: &str| {
            let media = many(line).media.into_iter();
            let names = media.map(|medium| (medium.kind.name, medium.optional));
            names.collect::<Vec<_>>()
        };
        assert_eq!(
            names("-x one-many -m all --netns a,b"),
            ["tcp", "esp", "unix", "tipc"].map(|name| (name, true))
        );
        // What is named has to work.
        assert_eq!(
            names("-x many-one -m all --congestion reno --netns a,b")[..2],
            [("tcp", false), ("esp", true)]
        );
        assert_eq!(names("-x one-many -m esp --netns a,b"), [("esp", false)]);
    }

    #[test]
    fn a_connection_makes_that_host_the_server() {
        let plan = params("-x esp-params --connect h --clients 1");
        assert_eq!((plan.server, plan.clients), (Some(0), 1));
        assert_eq!((plan.size, plan.tests, plan.warmup), (4 << 20, 5, 1));
        assert_eq!(plan.grid.cells().count(), 75);
    }

    #[test]
    fn mistakes_are_answered_with_what_to_write() {
        for (line, expected) in [
            (
                "-x one-many --netns a,b --clients 1-2",
                "3 participants: 2 are named",
            ),
            (
                "-x one-many --netns a,b --server-index 2",
                "the last one is 1",
            ),
            ("-x one-many --netns a,b -m udp", "tcp, esp"),
            (
                "-x one-many --netns a,b -m esp --congestion reno",
                "add it to -m",
            ),
            (
                "-x one-many --netns a,b --burst 4",
                "--burst is for esp-params",
            ),
            ("-x one-many --netns a,b -s 2G", "lower -s"),
            ("-x one-many --peers a,a", "named twice"),
            (
                "-x one-many --peers a,b --interface eth0",
                "each server's own",
            ),
            (
                "-x esp-params --netns a,b --congestion reno",
                "for tcp, not for esp-params",
            ),
            ("-x many-one --netns a,b --ack 4", "--ack is for esp-params"),
            ("-x all-to-all --netns a,b -m raw", "tcp, esp"),
            (
                "-x all-to-all --netns a,b --clients 1",
                "all take part, without --clients",
            ),
            (
                "-x bisection --netns a,b --server-index 1",
                "all take part, without --server-index",
            ),
            ("-x bisection --netns a", "needs two participants"),
            (
                "-x one-many --netns a",
                "one-many needs two participants: 1 is named",
            ),
            (
                "-x many-one --peers a",
                "many-one needs two participants: 1 is named",
            ),
            ("-x esp-params --netns a", "needs two participants"),
            ("-x one-many --netns a,b --eor", "--eor is an option of"),
            (
                "-x one-many --netns a,b --block 1M",
                "--block is an option of",
            ),
            (
                "-x esp-params --netns a,b --clients 1,2",
                "give --clients one",
            ),
            ("-x esp-params --netns a,b -s 1K,2K", "give -s one"),
            (
                "-x esp-params --netns a,b --burst 1-4 --ack 5",
                "above every one",
            ),
        ] {
            let error = plan(line).err().map(|error| error.to_string());
            let error = error.unwrap_or_else(|| panic!("{line} was accepted"));
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
