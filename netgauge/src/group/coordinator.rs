// SPDX-License-Identifier: MIT OR Apache-2.0

//! From the command line to the report of a pattern of more than two.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, ensure, Context as _, Result};

use super::participants::Group;
use super::plan::{Parts, Plan};
use super::signals::{Interrupted, Signals};
use super::start::Place;
use crate::cli::Cli;
use crate::pattern::{Act, Pattern};
use crate::progress::{Bar, Progress};
use crate::report::{Format, LeftOut};

/// A pattern of more than two participants.
pub trait Many: Sync + fmt::Debug {
    /// The roles of the participants.
    fn parts(&self) -> Parts;

    /// How many rows will be measured.
    fn steps(&self, plan: &Plan) -> usize;

    /// Measures everything that was asked for, for as long as nobody is gone and the user lets it.
    /// A round that makes no progress for longer than `give_up` fails.
    fn run(
        &self,
        group: &mut Group,
        plan: &Plan,
        give_up: Duration,
        progress: &dyn Progress,
    ) -> Box<dyn Results>;
}

/// Results that are written in each format.
pub trait Results {
    /// Prints it.
    ///
    /// # Errors
    ///
    /// The error of the writer.
    fn write(&self, format: Format, out: &mut dyn Write) -> io::Result<()>;

    /// The failures.
    fn errors(&self) -> Vec<String>;

    /// The transports that were left out.
    fn left_out(&self) -> &[LeftOut] {
        &[]
    }

    /// Writes it as a picture.
    ///
    /// # Errors
    ///
    /// There is nothing to draw, or the file cannot be written.
    #[cfg(feature = "pictures")]
    fn draw(&self, path: &Path) -> Result<()>;

    /// Says that there are no pictures.
    ///
    /// # Errors
    ///
    /// Always.
    #[cfg(not(feature = "pictures"))]
    fn draw(&self, _path: &Path) -> Result<()> {
        bail!(crate::picture_file::WITHOUT)
    }
}

/// Everything that a coordinator needs, checked before anybody is disturbed.
pub struct Coordinator<'a> {
    cli: &'a Cli,
    places: Vec<Place>,
    many: &'static dyn Many,
    plan: Plan,
}

impl<'a> Coordinator<'a> {
    /// The command line's wishes.
    ///
    /// # Errors
    ///
    /// The options do not go together.
    pub fn new(cli: &'a Cli, pattern: &Pattern) -> Result<Self> {
        let Act::Many(many) = pattern.act else {
            bail!("{} is a pattern of two", pattern.name);
        };
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
        let places = cli.group.places(cli.connect.as_deref(), cli.port)?;
        let plan = Plan::new(cli, pattern, many.parts(), places.len())?;
        Ok(Self {
            cli,
            places,
            many,
            plan,
        })
    }

    /// Measures, and prints the report; says whether everything was measured.
    ///
    /// # Errors
    ///
    /// The participants cannot be brought together. [`Interrupted`] by the user, after what was
    /// measured before has been printed.
    pub fn run(&self, signals: Signals) -> Result<bool> {
        let mut group = Group::gather(&self.places, self.cli, signals)?;
        let bar = Bar::new(self.many.steps(&self.plan) as u64);
        let give_up = self.cli.measuring.give_up;
        let report = self.many.run(&mut group, &self.plan, give_up, &bar);
        bar.finish();
        let interrupted = group.was_interrupted();
        // Everybody has ended, and restored what is to be restored, before anything is said of it.
        drop(group);
        let format = self.cli.measuring.format;
        report
            .write(format, &mut io::stdout().lock())
            .context("writing the report")?;
        let plot = self.cli.group.many.plot.as_deref();
        if interrupted {
            format.tell(report.left_out(), &[]);
            // There may be nothing yet to draw.
            let _ = plot.map(|path| report.draw(path));
            bail!(Interrupted);
        }
        let errors = report.errors();
        format.tell(report.left_out(), &errors);
        if let Some(path) = plot {
            report.draw(path)?;
        }
        Ok(errors.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern;
    use clap::Parser;

    fn parse(line: &str) -> Cli {
        Cli::parse_from(std::iter::once("netgauge").chain(line.split_whitespace()))
    }

    fn plan(line: &str) -> Result<Plan> {
        let cli = parse(line);
        let pattern = pattern::many(&cli.pattern)?.expect("a pattern of many");
        Ok(Coordinator::new(&cli, pattern)?.plan)
    }

    fn planned(line: &str) -> Plan {
        plan(line).unwrap()
    }

    #[test]
    fn patterns_of_two_and_of_many_are_told_apart() {
        let of = |line| pattern::many(&parse(line).pattern).map(|one| one.map(|one| one.name));
        assert_eq!(of("-x one-one,bulk --connect h").unwrap(), None);
        assert_eq!(of("-x all --connect h").unwrap(), None);
        let many = of("-x one-many --connect h").unwrap();
        assert_eq!(many, Some("one-many"));
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
        let plan = planned("-x one-many --netns a,b,c");
        assert_eq!(
            (plan.clients, plan.server, plan.rate),
            (vec![2], None, None)
        );
        let (tests, warmup) = (plan.tests, plan.warmup);
        assert_eq!(
            (plan.sizes, tests, warmup),
            (vec![64 << 10, 256 << 10], 20, 1)
        );
        assert_eq!(plan.media.len(), 1);
    }

    #[test]
    fn every_pattern_of_many_is_found_by_its_name() {
        let of_many = |one: &&Pattern| matches!(one.act, Act::Many(_));
        let all: Vec<_> = pattern::PATTERNS.iter().filter(of_many).collect();
        assert_eq!(all.len(), 6);
        for pattern in all {
            let cli = parse(&format!("-x {} --netns a,b", pattern.name));
            let found = pattern::many(&cli.pattern).unwrap().unwrap();
            assert_eq!(found.name, pattern.name);
            assert!(Coordinator::new(&cli, pattern).is_ok(), "{pattern:?}");
        }
        assert!(pattern::many("one-one").unwrap().is_none());
    }

    #[test]
    fn congestion_controls_are_measured_one_by_one_and_esp_has_none() {
        let plan = planned("-x one-many -m tcp,esp --congestion cubic,reno --netns a,b");
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
            let media = planned(line).media.into_iter();
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
        let plan = planned("-x esp-params --connect h --clients 1");
        assert_eq!((plan.server, plan.clients), (Some(0), vec![1]));
        assert_eq!(
            (&plan.sizes[..], plan.tests, plan.warmup),
            (&[4 << 20][..], 5, 1)
        );
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
