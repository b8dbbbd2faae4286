// SPDX-License-Identifier: MIT OR Apache-2.0

//! Command lines of patterns between more than two hosts, and the plans that they result in.

use anyhow::{bail, Result};
use clap::Parser as _;

use super::Cli;
use crate::group::coordinator::plan::Plan;
use crate::group::coordinator::Coordinator;
use crate::registry::{self, Kind, Pattern};

fn parse(line: &str) -> Cli {
    Cli::parse_from(std::iter::once("netgauge").chain(line.split_whitespace()))
}

fn coordinator(cli: &Cli, pattern: &Pattern) -> Result<Coordinator> {
    let Kind::Group(work) = pattern.kind else {
        bail!("{} is a pattern of two", pattern.info.name);
    };
    Coordinator::new(cli.coordinator_options()?, &pattern.info, work)
}

fn plan(line: &str) -> Result<Plan> {
    let cli = parse(line);
    let pattern = registry::find_group(&cli.pattern)?.expect("a pattern of many");
    Ok(coordinator(&cli, pattern)?.plan().clone())
}

fn planned(line: &str) -> Plan {
    plan(line).unwrap()
}

#[test]
fn patterns_of_two_and_of_many_are_distinguished() {
    let of =
        |line| registry::find_group(&parse(line).pattern).map(|one| one.map(|one| one.info.name));
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
    let is_group = |one: &&Pattern| matches!(one.kind, Kind::Group(_));
    let all: Vec<_> = registry::PATTERNS.iter().filter(is_group).collect();
    assert_eq!(all.len(), 6);
    for pattern in all {
        let cli = parse(&format!("-x {} --netns a,b", pattern.info.name));
        let found = registry::find_group(&cli.pattern).unwrap().unwrap();
        assert_eq!(found.info.name, pattern.info.name);
        assert!(coordinator(&cli, pattern).is_ok(), "{pattern:?}");
    }
    assert!(registry::find_group("one-one").unwrap().is_none());
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
    // With `-m all`, transports are optional (`true`): a run leaves out those that do not work.
    // `--congestion` asks for TCP, which has a congestion control, so TCP is not optional.
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
