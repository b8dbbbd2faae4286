// SPDX-License-Identifier: GPL-2.0-only

//! Runs the scenarios, which test the kernel module through real system calls.
//!
//! The scenarios run as root inside a guest that was booted for them. Each prints one line:
//! `ok NAME`, or `not ok NAME: reason`. Lines that begin with `# ` are remarks. A scenario that
//! cannot run fails.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{bail, ensure, Context};
use clap::Parser;
use guest::harness::{self, Scenario};
use guest::lab::{Lab, Wiring};
use guest::{capture, module};
use stress::{call_fuzz, denial, endurance, faults, fuzz, studies};

/// Tests the kernel module enet in a guest that was booted for this test. Run it as root, and never
/// on a machine of value.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Print the scenarios' names instead of running them.
    #[arg(long)]
    list: bool,
    /// With --list: print only the scenarios that need a guest whose clock counts instructions.
    #[arg(long, requires = "list")]
    needs_icount: bool,
    /// With --list: print only the scenarios that need a kernel that lets allocations fail.
    #[arg(long, requires = "list", conflicts_with = "needs_icount")]
    needs_faults: bool,
    /// With --list: print only the scenarios that need two network cards with the driver igb.
    #[arg(long, requires = "list", conflicts_with_all = ["needs_icount", "needs_faults"])]
    needs_cards: bool,
    /// With --list: print only the scenarios that need a guest with four processors.
    #[arg(long, requires = "list", conflicts_with_all = ["needs_icount", "needs_faults", "needs_cards"])]
    needs_smp: bool,
    /// With --list: print only the scenarios that need a kernel that was booted without IPv6.
    #[arg(long, requires = "list", conflicts_with_all = ["needs_icount", "needs_faults", "needs_cards", "needs_smp"])]
    needs_no_ipv6: bool,
    /// Play a short exchange of both protocols instead of running scenarios, and print its frames
    /// in hexadecimal.
    #[arg(long, conflicts_with = "list")]
    capture: bool,
    /// Run only every n-th scenario, beginning with the i-th (from 1).
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Measure many connections, over ESP and TCP, instead of running scenarios, and print a table.
    #[arg(long, value_name = "STUDY", conflicts_with_all = ["list", "shard", "names"])]
    scale: Option<studies::Study>,
    /// Make random calls for so many seconds instead of running scenarios, and print the number of
    /// calls of each kind.
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["list", "shard", "names"])]
    fuzz_calls: Option<u64>,
    /// Attack a host in every known way instead of running scenarios, and print the cost of each
    /// attack.
    #[arg(long, conflicts_with_all = ["list", "shard", "names"])]
    dos: bool,
    /// With --fuzz-calls, --fuzz or --endurance client: the seed of the random generator; a random
    /// seed by default.
    #[arg(long)]
    seed: Option<u64>,
    /// Run the fault matrix instead of the usual scenarios. It has a scenario for every kind of
    /// traffic over every kind of faulty wire.
    #[arg(long, conflicts_with = "scale")]
    faults: bool,
    /// Send so many hostile frames to sockets in all states instead of running scenarios, and print
    /// the results.
    #[arg(long, value_name = "FRAMES", conflicts_with_all = ["list", "shard", "names", "scale", "capture"])]
    fuzz: Option<u64>,
    #[command(flatten)]
    endurance: endurance::Options,
    /// Run only these scenarios; a name that ends with * stands for all that begin with the part
    /// before it.
    names: Vec<String>,
}

/// One of `count` equal parts of the scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shard {
    index: usize,
    count: usize,
}

impl FromStr for Shard {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (index, count) = text.split_once('/').context("a shard is written I/N")?;
        let (index, count) = (index.parse()?, count.parse()?);
        ensure!(
            1 <= index && index <= count,
            "shards of {count} are numbered 1 to {count}, not {index}"
        );
        Ok(Self { index, count })
    }
}

/// All scenarios, in the order in which they run.
fn all() -> Vec<&'static Scenario> {
    [scenarios::all(), stress::all(), parity::all()].concat()
}

fn stands_for(name: &str, scenario: &Scenario) -> bool {
    match name.strip_suffix('*') {
        Some(beginning) => scenario.name.starts_with(beginning),
        None => scenario.name == name,
    }
}

fn select(options: &Options) -> anyhow::Result<Vec<&'static Scenario>> {
    let all = if options.faults {
        faults::matrix()
    } else {
        all()
    };
    for name in &options.names {
        if !all.iter().any(|scenario| stands_for(name, scenario)) {
            bail!("no scenario is called {name}; --list prints all names");
        }
    }
    let Shard { index, count } = options.shard.unwrap_or(Shard { index: 1, count: 1 });
    let wanted = |scenario: &&Scenario| {
        options.names.is_empty() || options.names.iter().any(|name| stands_for(name, scenario))
    };
    Ok(all
        .into_iter()
        .filter(wanted)
        .skip(index - 1)
        .step_by(count)
        .collect())
}

/// Returns the exit code, and prints the error if there is one.
fn conclude(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scenarios: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(study) = options.scale {
        return conclude(module::ensure_loaded().and_then(|()| studies::run(study)));
    }
    if let Some(ended) = options.endurance.run(options.seed) {
        return conclude(ended);
    }
    if options.dos {
        let attack = || denial::print(&Lab::new(Wiring::Direct)?);
        return conclude(module::ensure_loaded().and_then(|()| attack()));
    }
    if let Some(seconds) = options.fuzz_calls {
        let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
        let calls = || call_fuzz::print(seed, seconds);
        return conclude(module::ensure_loaded().and_then(|()| calls()));
    }
    if let Some(frames) = options.fuzz {
        let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
        let plan = fuzz::Plan { frames, seed };
        return conclude(module::ensure_loaded().and_then(|()| fuzz::run(plan)));
    }
    let chosen = match select(&options) {
        Ok(chosen) => chosen,
        Err(error) => {
            eprintln!("scenarios: {error:#}");
            return ExitCode::from(2);
        }
    };
    if options.list {
        let wanted = |scenario: &&Scenario| {
            (scenario.needs_icount || !options.needs_icount)
                && (scenario.needs_faults || !options.needs_faults)
                && (scenario.needs_cards || !options.needs_cards)
                && (scenario.needs_smp || !options.needs_smp)
                && (scenario.needs_no_ipv6 || !options.needs_no_ipv6)
        };
        for scenario in chosen.into_iter().filter(wanted) {
            println!("{}", scenario.name);
        }
        return ExitCode::SUCCESS;
    }
    if options.capture {
        return conclude(capture::run());
    }
    let failed = chosen
        .into_iter()
        .filter(|scenario| !harness::run(scenario))
        .count();
    ExitCode::from(u8::from(failed > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::collections::HashSet;

    #[test]
    fn the_command_line_is_well_formed() {
        Options::command().debug_assert();
    }

    #[test]
    fn names_are_unique() {
        let all = all();
        let names: HashSet<_> = all.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn every_name_of_make_kernels_short_form_stands_for_a_scenario() {
        let script = include_str!("../../../mk/kernels");
        let (_, rest) = script.split_once("\nshort=\"").unwrap();
        let (short, _) = rest.split_once('"').unwrap();
        let all = all();
        for name in short.split_whitespace() {
            let found = all.iter().any(|scenario| stands_for(name, scenario));
            assert!(found, "{name}");
        }
    }

    #[test]
    fn shards_cover_everything_once() {
        let of = |shard| {
            select(&Options {
                list: true,
                needs_icount: false,
                needs_faults: false,
                needs_cards: false,
                needs_smp: false,
                needs_no_ipv6: false,
                scale: None,
                capture: false,
                fuzz_calls: None,
                dos: false,
                seed: None,
                faults: false,
                fuzz: None,
                endurance: endurance::Options::default(),
                shard,
                names: Vec::new(),
            })
            .unwrap()
        };
        let parts: usize = ["1/3", "2/3", "3/3"]
            .map(|text| of(Some(text.parse().unwrap())).len())
            .iter()
            .sum();
        assert_eq!(parts, of(None).len());
        assert!("0/3".parse::<Shard>().is_err());
        assert!("4/3".parse::<Shard>().is_err());
    }
}
