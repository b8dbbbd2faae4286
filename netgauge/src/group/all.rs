// SPDX-License-Identifier: MIT OR Apache-2.0

//! Patterns in which all participants do the same.
//!
//! *all-to-all*: each sends to every other one at once, as parallel programs do that transpose or
//! sort. Every port is as busy as every other one, in both directions.
//!
//! *bisection*: the participants are paired at random, and all pairs exchange messages at once,
//! both ways. The average over many pairings is what a network really carries between one half of
//! its hosts and the other, the effective bisection bandwidth: a network of several switches may
//! carry less for most pairings than for the best (Hoefler, Schneider and Lumsdaine, "Multistage
//! switches are not crossbars", 2008).

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::args::RoundsPlan;
use super::figures::{jain, Fairness, HostRate};
use super::mesh::{Flows, Mesh, MeshRound, Shape};
use super::one_many::Medium;
use super::participants::Group;
use super::rounds::Series;
use super::signals::is_interrupted;
use crate::progress::Progress;
use crate::report::{self, End, LeftOut, Outcome};
use crate::transport;

/// What all do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// Send to all others.
    AllToAll,
    /// Send to one other, in random pairs.
    Bisection,
}

impl Together {
    /// The pattern's name in option `-x`.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllToAll => "all-to-all",
            Self::Bisection => "bisection",
        }
    }
}

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct AllPlan {
    /// What all do.
    pub together: Together,
    /// By what the messages go.
    pub media: Vec<Medium>,
    /// The rounds; of a bisection, the pairings.
    pub rounds: RoundsPlan,
    /// What drawing the pairs depends on.
    pub seed: u64,
    /// Rate of each host's link, bit/s.
    pub rate: Option<u64>,
}

/// Everything that was measured. Printed as JSON it is what programs read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllReport {
    /// netgauge's version.
    pub netgauge: String,
    /// The pattern's name.
    pub pattern: String,
    /// Their names, by index.
    pub participants: Vec<String>,
    /// What the choice of pairs depended on.
    pub seed: u64,
    /// Rate of each host's link, bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bit_per_s: Option<u64>,
    /// One per transport and congestion control, in the order measured.
    pub runs: Vec<AllRun>,
    /// What does not work here, where all transports were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// One transport.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllRun {
    /// Transport's name.
    pub transport: String,
    /// One line on the transport.
    pub about: String,
    /// Name of TCP's congestion control, where one was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// One per size, ascending; those measured before a failure too.
    pub rows: Vec<AllRow>,
}

/// One size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllRow {
    /// Bytes of each message.
    pub size: u64,
    /// Rounds measured, or pairings.
    pub rounds: u32,
    /// Rounds that broke.
    pub errors: u32,
    /// What one host gets: of all-to-all by rounds, of a bisection by pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_bit_per_s: Option<HostRate>,
    /// Its average as a share of the rate, if that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// All-to-all: what all hosts get together, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bit_per_s: Option<u64>,
    /// Bisection: what all pairs carry one way, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bisection_bit_per_s: Option<u64>,
    /// All-to-all: Jain's index of the times at which the hosts had everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<Fairness>,
}

impl AllReport {
    /// The errors of runs that failed, with what they were; of those in a row that failed alike, once.
    pub fn errors(&self) -> Vec<String> {
        report::errors(&self.runs, AllRun::end, AllRun::medium)
    }
}

impl AllRun {
    fn end(&self) -> End<'_> {
        End {
            outcome: &self.outcome,
            empty: self.rows.is_empty(),
        }
    }

    /// The transport, with what was chosen of it.
    pub fn medium(&self) -> String {
        transport::medium(&self.transport, self.congestion.as_deref())
    }
}

/// Measures everything that was asked for. What fails is reported as failed, and the rest is
/// measured all the same, unless a participant is gone. The user may end it: then the report has
/// what was measured before.
pub fn run(
    group: &mut Group,
    plan: &AllPlan,
    give_up: Duration,
    progress: &dyn Progress,
) -> AllReport {
    let name = plan.together.name();
    let mut report = AllReport {
        netgauge: env!("CARGO_PKG_VERSION").to_owned(),
        pattern: name.to_owned(),
        participants: group.names(),
        seed: plan.seed,
        rate_bit_per_s: plan.rate,
        runs: Vec::new(),
        left_out: Vec::new(),
    };
    let members: Vec<usize> = (0..report.participants.len()).collect();
    for medium in &plan.media {
        let mut rows = Vec::new();
        let result = match group.gone() {
            Some(gone) => Err(anyhow::anyhow!("not measured: {gone}")),
            None => {
                progress.begin(medium.kind.name, name);
                let mut mesh = Mesh::new(group, members.clone());
                let result = measure(&mut mesh, medium, plan, &mut |row| {
                    progress.advance(1);
                    rows.push(row);
                });
                // Until all have stopped, the next cannot begin.
                result.and(mesh.leave(give_up * 2))
            }
        };
        let interrupted = result.as_ref().is_err_and(is_interrupted);
        progress.advance(plan.rounds.sizes.len().saturating_sub(rows.len()) as u64);
        // Without a row it has not been opened, and with nobody gone it is not for this time only.
        let dispensable = medium.optional && rows.is_empty() && !interrupted;
        let outcome = match result {
            Ok(()) => Outcome::Ok,
            Err(error) if dispensable && group.gone().is_none() => {
                report.left_out.push(medium.left_out(&error));
                continue;
            }
            Err(error) => Outcome::Failed {
                error: format!("{error:#}"),
            },
        };
        report.runs.push(AllRun {
            transport: medium.kind.name.to_owned(),
            about: medium.about(),
            congestion: medium.congestion.clone(),
            outcome,
            rows,
        });
        if interrupted {
            break;
        }
    }
    report
}

fn measure(
    mesh: &mut Mesh<'_>,
    medium: &Medium,
    plan: &AllPlan,
    on_row: &mut dyn FnMut(AllRow),
) -> Result<()> {
    mesh.open(&medium.opening(), Shape::Full)?;
    for &size in &plan.rounds.sizes {
        let (row, result) = match plan.together {
            Together::AllToAll => all_to_all(mesh, size, plan),
            Together::Bisection => bisection(mesh, size, plan),
        };
        on_row(row);
        result?;
    }
    Ok(())
}

/// Rounds of one size in which each sends to all others.
fn all_to_all(mesh: &mut Mesh<'_>, size: u64, plan: &AllPlan) -> (AllRow, Result<()>) {
    let warmup = plan.rounds.warmup;
    let series = Series {
        size,
        rounds: warmup.saturating_add(plan.rounds.tests),
    };
    let (rounds, result) = mesh.exchange(series, &Flows::All);
    let counted = rounds.get(warmup as usize..).unwrap_or_default();
    let hosts = mesh.clients() as u64 + 1;
    let rates = counted
        .iter()
        .map(|round| bit_per_s(size * (hosts - 1), round.ns))
        .collect();
    let host = HostRate::of(rates);
    let row = AllRow {
        size,
        rounds: counted.len() as u32,
        errors: u32::from(result.is_err()),
        host_bit_per_s: host,
        share: share(host, plan.rate),
        total_bit_per_s: host.map(|host| host.average * hosts),
        bisection_bit_per_s: None,
        fairness: Fairness::of_indices(
            counted
                .iter()
                .map(|round| jain(&round.received_ns))
                .collect(),
        ),
    };
    (row, result)
}

/// Pairings of one size, each with rounds before the one that counts.
fn bisection(mesh: &mut Mesh<'_>, size: u64, plan: &AllPlan) -> (AllRow, Result<()>) {
    let hosts = mesh.clients() + 1;
    let series = Series {
        size,
        rounds: plan.rounds.warmup.saturating_add(1),
    };
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let (mut pairings, mut rates) = (0, Vec::new());
    let mut result = Ok(());
    while pairings < plan.rounds.tests && result.is_ok() {
        let partners = pair(hosts, &mut random);
        let (rounds, ended) = mesh.exchange(series, &Flows::Pairs(partners.clone()));
        result = ended;
        // Of a pairing that broke off, what was to be before it may be all there is.
        if let Some(round) = rounds.get(plan.rounds.warmup as usize) {
            pairings += 1;
            rates.extend(pair_rates(&partners, round, size));
        }
    }
    let host = HostRate::of(rates);
    let row = AllRow {
        size,
        rounds: pairings,
        errors: u32::from(result.is_err()),
        host_bit_per_s: host,
        share: share(host, plan.rate),
        total_bit_per_s: None,
        bisection_bit_per_s: host.map(|host| host.average * (hosts as u64 / 2)),
        fairness: None,
    };
    (row, result)
}

/// Random pairs of all; of an odd number, one pauses. Each one's partner, by number.
fn pair(hosts: usize, random: &mut fastrand::Rng) -> Vec<Option<u16>> {
    let mut order: Vec<u16> = (0..).take(hosts).collect();
    random.shuffle(&mut order);
    let mut partners = vec![None; hosts];
    for two in order.chunks_exact(2) {
        partners[usize::from(two[0])] = Some(two[1]);
        partners[usize::from(two[1])] = Some(two[0]);
    }
    partners
}

/// What each pair carried each way in a round: by the time of the later of the two, so that one
/// which was told to go after its partner had sent does not make them faster than they were.
fn pair_rates(partners: &[Option<u16>], round: &MeshRound, size: u64) -> Vec<f64> {
    let pairs = partners.iter().enumerate().filter_map(|(one, partner)| {
        let other = usize::from((*partner)?);
        let ns = round.received_ns[one].max(round.received_ns[other]);
        (one < other).then(|| bit_per_s(size, ns))
    });
    pairs.collect()
}

fn bit_per_s(bytes: u64, ns: u64) -> f64 {
    bytes as f64 * 8e9 / ns.max(1) as f64
}

fn share(host: Option<HostRate>, rate: Option<u64>) -> Option<f64> {
    host.zip(rate)
        .map(|(host, rate)| host.average as f64 / rate as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_partner_but_the_odd_one() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut odd_ones = std::collections::BTreeSet::new();
        for hosts in [2, 3, 8, 33] {
            for _ in 0..200 {
                let partners = pair(hosts, &mut random);
                assert_eq!(partners.len(), hosts);
                for (one, partner) in partners.iter().enumerate() {
                    match partner {
                        Some(other) => {
                            assert_ne!(usize::from(*other), one);
                            assert_eq!(partners[usize::from(*other)], Some(one as u16));
                        }
                        None if hosts == 3 => drop(odd_ones.insert(one)),
                        None => {}
                    }
                }
                let pausing = partners.iter().filter(|partner| partner.is_none());
                assert_eq!(pausing.count(), hosts % 2);
            }
        }
        assert_eq!(odd_ones.len(), 3, "each may pause");
        let again = |seed| pair(33, &mut fastrand::Rng::with_seed(seed));
        assert_eq!(again(5), again(5));
        assert_ne!(again(5), again(6));
    }

    #[test]
    fn a_pair_is_as_fast_as_the_later_of_the_two() {
        let partners = [Some(2), None, Some(0), Some(4), Some(3)];
        let round = MeshRound {
            ns: 9000,
            received_ns: vec![1000, 0, 8000, 4000, 1],
        };
        // 1000 bytes are 8000 bits.
        let rates = pair_rates(&partners, &round, 1000);
        assert_eq!(rates, [1e9, 2e9]);
    }
}
