// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lists all patterns, and finds a pattern by its name.

use anyhow::{bail, ensure, Context as _, Result};

use crate::control::Step;
use crate::group::coordinator::esp_params::EspParams;
use crate::group::coordinator::patterns::{self, Rounds};
use crate::group::coordinator::plan::Roles;
use crate::group::coordinator::{esp_params, GroupPattern};
use crate::group::net::rounds::MOST_BYTES;
use crate::pair::bulk::Bulk;
use crate::pair::flood::Flood;
use crate::pair::logp::LogP;
use crate::pair::one_one::OneOne;
use crate::pair::recovery::Recovery;
use crate::pair::set_up::SetUp;
use crate::pair::{Link, PairPattern};
use crate::pattern::PatternInfo;

/// A pattern of communication.
#[derive(Debug)]
pub struct Pattern {
    /// The pattern's name and defaults.
    pub info: PatternInfo,
    /// The code that measures the pattern.
    pub kind: Kind,
}

/// The code that measures a pattern, by the number of hosts.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// For a client and a server.
    Pair(&'static dyn PairPattern),
    /// For two or more hosts that a coordinator directs.
    Group(&'static dyn GroupPattern),
}

/// All patterns, in the order in which they are listed.
pub static PATTERNS: [Pattern; 12] = [
    // The largest size of one-one is 64 MiB, because both sides hold a whole message in memory.
    pair("one-one", &[(1, 64 << 10)], 100, 64 << 20, &OneOne),
    pair("bulk", &[(16 << 20, 16 << 20)], 10, 1 << 40, &Bulk),
    pair("logp", &[(1, 64 << 10)], 100, 16 << 20, &LogP),
    pair("flood", &[(1, 1024)], 10_000, 64 << 10, &Flood),
    pair("setup", &[(1, 1)], 1000, 64 << 20, &SetUp),
    pair(
        "recovery",
        &[(1, 1), (64 << 10, 64 << 10)],
        1000,
        64 << 20,
        &Recovery,
    ),
    group(&patterns::ONE_MANY, SIZES, 20),
    group(&patterns::MANY_ONE, SIZES, 20),
    group(&patterns::ALL_TO_ALL, SIZES, 20),
    // There are 50 pairings, because a few would not represent a network.
    group(&patterns::BISECTION, SIZES, 50),
    group(
        &patterns::LOADED_LATENCY,
        &[(100, 100), (10_000, 10_000)],
        300,
    ),
    Pattern {
        info: PatternInfo {
            name: esp_params::NAME,
            aliases: &[],
            sizes: &[(4 << 20, 4 << 20)],
            tests: 5,
            most: MOST_BYTES,
        },
        kind: Kind::Group(&EspParams),
    },
];

/// Default sizes of most patterns between more than two hosts: ranges in bytes, each given by its
/// smallest and largest size.
const SIZES: &[(u64, u64)] = &[(64 << 10, 64 << 10), (256 << 10, 256 << 10)];

/// Returns a pattern between two hosts. `sizes` and `tests` are the pattern's defaults; `most` is
/// the largest size that the pattern takes.
const fn pair(
    name: &'static str,
    sizes: &'static [(u64, u64)],
    tests: u32,
    most: u64,
    work: &'static dyn PairPattern,
) -> Pattern {
    Pattern {
        info: PatternInfo {
            name,
            aliases: &[],
            sizes,
            tests,
            most,
        },
        kind: Kind::Pair(work),
    }
}

/// Returns a pattern between more than two hosts. `rounds` says what the pattern's participants do.
const fn group(rounds: &'static Rounds, sizes: &'static [(u64, u64)], tests: u32) -> Pattern {
    Pattern {
        info: PatternInfo {
            name: rounds.name,
            aliases: rounds.aliases,
            sizes,
            tests,
            most: MOST_BYTES,
        },
        kind: Kind::Group(rounds),
    }
}

impl Pattern {
    /// Returns the participants' roles; `None` if the pattern is between two hosts.
    pub fn roles(&self) -> Option<Roles> {
        match self.kind {
            Kind::Pair(_) => None,
            Kind::Group(work) => Some(work.roles()),
        }
    }

    /// Returns the code of a pattern between a client and a server.
    ///
    /// # Errors
    ///
    /// Fails if the pattern is between more than two hosts.
    pub fn pair(&self) -> Result<&'static dyn PairPattern> {
        match self.kind {
            Kind::Pair(work) => Ok(work),
            Kind::Group(_) => bail!("{} is no pattern of two", self.info.name),
        }
    }

    /// Does the server's part of one step with [`PairPattern::follow`].
    ///
    /// # Errors
    ///
    /// Fails like [`PairPattern::follow`]. Also fails if the step's size is outside the pattern's
    /// limits.
    pub fn follow(&self, link: &mut Link<'_>, step: &Step) -> Result<()> {
        ensure!(
            (1..=self.info.most).contains(&step.size),
            "no size for {}: {}",
            self.info.name,
            step.size
        );
        self.pair()?.follow(link, step)
    }
}

/// Returns the patterns between two hosts.
pub fn pair_patterns() -> impl Iterator<Item = &'static Pattern> {
    let patterns = PATTERNS.iter();
    patterns.filter(|pattern| pattern.roles().is_none())
}

/// Returns the patterns between more than two hosts.
pub fn group_patterns() -> impl Iterator<Item = &'static Pattern> {
    let patterns = PATTERNS.iter();
    patterns.filter(|pattern| pattern.roles().is_some())
}

/// Returns the names of patterns between more than two hosts, separated by commas, for error
/// messages.
pub fn names_of_group_patterns() -> String {
    names(group_patterns())
}

fn names(patterns: impl Iterator<Item = &'static Pattern>) -> String {
    let names: Vec<_> = patterns.map(|pattern| pattern.info.name).collect();
    names.join(", ")
}

/// Finds a pattern between two hosts by a name.
///
/// # Errors
///
/// Fails if no pattern between two hosts has that name.
pub fn find(name: &str) -> Result<&'static Pattern> {
    let found = pair_patterns().find(|pattern| pattern.info.is_called(name));
    found.with_context(|| {
        format!(
            "there is no pattern `{name}`: choose from {}",
            names(pair_patterns())
        )
    })
}

/// Returns the pattern between more than two hosts that option -x names; `None` if the option names
/// only patterns between two.
///
/// # Errors
///
/// Fails if the option names both kinds of patterns, or if it names two patterns between more than
/// two hosts.
pub fn find_group(option: &str) -> Result<Option<&'static Pattern>> {
    let named = |name| group_patterns().find(|pattern| pattern.info.is_called(name));
    let found: Vec<_> = option.split(',').map(named).collect();
    match found[..] {
        [only] => Ok(only),
        _ if found.iter().all(Option::is_none) => Ok(None),
        _ => bail!(
            "{} have a report of their own: name one of them alone with -x",
            names_of_group_patterns()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_found_by_its_names() {
        for pattern in pair_patterns() {
            let found = find(pattern.info.name).unwrap();
            assert_eq!(found.info.name, pattern.info.name);
        }
        for (alias, name) in [("incast", "one-many"), ("beside", "loaded-latency")] {
            assert_eq!(find_group(alias).unwrap().unwrap().info.name, name);
        }
        let error = find("all-all").unwrap_err().to_string();
        assert!(error.contains("one-one, bulk"), "{error}");
    }
}
