// SPDX-License-Identifier: MIT OR Apache-2.0

//! Patterns of rounds between more than two hosts, measured with several sizes and transports.
//!
//! *one-many* or *incast* (Treydte 2007, 2.4.4): N clients send to one server at once. The switch's
//! port to the server overflows; the result shows whether the clients get equal shares.
//!
//! *many-one*: one server sends to N clients at once. The receiver comes first in both names: one
//! from many, many from one. The messages share the server's port without competition at the
//! switch. The result shows how fast one host feeds many, and whether it feeds them equally.
//!
//! *all-to-all*: each host sends to every other host at once. Parallel programs that transpose or
//! sort do this. Every port is equally busy in both directions.
//!
//! *bisection*: the participants are paired at random, and all pairs exchange messages at once,
//! both ways. The average over many pairings is the effective bisection bandwidth: what the network
//! carries between two halves of its hosts. A network of several switches may carry less for most
//! pairings than for the best (Hoefler, Schneider and Lumsdaine, "Multistage switches are not
//! crossbars", 2008).
//!
//! *loaded-latency*: one client calls one server, while all other clients send endless streams to
//! the server. The result shows how much longer the calls take than without these streams.

use std::time::Duration;

use anyhow::{anyhow, Result};

use super::figures::{bit_per_s, Fairness, Round};
use super::mesh::{Mesh, MeshRound, Shape};
use super::plan::{self, Medium, Plan, Roles};
use super::remotes::Group;
use super::report::{Cast, GroupReport, GroupRow, GroupRun};
use super::{GroupPattern, Results};
use crate::group::net::flows::Flows;
use crate::group::net::rounds::Series;
use crate::group::net::rpc::{Load, RpcFigures, RpcSeries};
use crate::pattern;
use crate::progress::Progress;
use crate::report::{LeftOut, Outcome};
use crate::signals::is_interrupted;
use crate::summary::jain;
use crate::transport::SocketOptions;

/// A function that measures messages of one size. After a failure, the row has the results from
/// before the failure.
type Measure = fn(&mut Mesh<'_>, u64, &Plan) -> (GroupRow, Result<()>);

/// A pattern whose participants do rounds.
#[derive(Debug)]
pub struct Rounds {
    /// The name in option `-x`.
    pub name: &'static str,
    /// Further names of the pattern for option `-x`. Reports of an older netgauge may have these
    /// names as well.
    pub aliases: &'static [&'static str],
    pub(super) roles: Roles,
    /// Which members are connected with each other.
    shape: Shape,
    measure: Measure,
    /// The text that follows the pattern's name in the line above its table.
    pub(super) head: &'static str,
    /// The line above the pattern's picture.
    #[cfg_attr(not(feature = "pictures"), allow(dead_code))]
    pub(crate) title: &'static str,
}

/// N clients send to one server.
pub static ONE_MANY: Rounds = Rounds {
    name: "one-many",
    aliases: &["incast"],
    roles: Roles::Clients,
    shape: Shape::Star,
    measure: one_many,
    head: "clients send to one server in rounds; goodput of all together, fairness (Jain) when the first is \
           done",
    title: "many clients to one server",
};

/// One server sends to N clients.
pub static MANY_ONE: Rounds = Rounds {
    name: "many-one",
    aliases: &[],
    roles: Roles::Clients,
    shape: Shape::Star,
    measure: many_one,
    head: "one server sends to clients in rounds; goodput of all together, fairness (Jain) of the times at \
           which they have it",
    title: "one server to many clients",
};

/// Each member sends to all others.
pub static ALL_TO_ALL: Rounds = Rounds {
    name: "all-to-all",
    aliases: &[],
    roles: Roles::Alike,
    shape: Shape::Full,
    measure: all_to_all,
    head: "{hosts} hosts, each sends to all others at once; what each gets, and all together, and fairness (Jain) of the \
           times at which they have it",
    title: "each to all others",
};

/// The members are paired at random, and each member exchanges messages with its partner.
pub static BISECTION: Rounds = Rounds {
    name: "bisection",
    aliases: &[],
    roles: Roles::Alike,
    shape: Shape::Full,
    measure: bisection,
    head: "{hosts} hosts in random pairs, all exchanging at once; what each gets of its partner, and what all pairs carry \
           one way",
    title: "in random pairs",
};

/// One client calls a server to which the other clients send streams.
pub static LOADED_LATENCY: Rounds = Rounds {
    name: pattern::LOADED_LATENCY,
    aliases: &["beside"],
    roles: Roles::Clients,
    shape: Shape::Star,
    measure: loaded_latency,
    head: "one client calls one server, the others send to it without an end; times of calls without the others and while they send, \
           and goodput of the others",
    title: "remote calls while others send",
};

/// Returns the pattern of this name in a report. For a name that only another version of netgauge
/// knows, returns [`ONE_MANY`].
pub(crate) fn named(name: &str) -> &'static Rounds {
    let others = [&MANY_ONE, &ALL_TO_ALL, &BISECTION, &LOADED_LATENCY];
    let found = others
        .into_iter()
        .find(|rounds| rounds.name == name || rounds.aliases.contains(&name));
    found.unwrap_or(&ONE_MANY)
}

impl GroupPattern for Rounds {
    fn roles(&self) -> Roles {
        self.roles
    }

    fn steps(&self, plan: &Plan) -> usize {
        plan.media.len() * plan.clients.len() * plan.sizes.len()
    }

    fn run(
        &self,
        group: &mut Group,
        plan: &Plan,
        give_up: Duration,
        progress: &dyn Progress,
    ) -> Box<dyn Results> {
        let mut report = GroupReport {
            netgauge: env!("CARGO_PKG_VERSION").to_owned(),
            pattern: self.name.to_owned(),
            participants: group.names(),
            seed: plan.seed,
            rate_bit_per_s: plan.rate,
            runs: Vec::new(),
            left_out: Vec::new(),
            record: Some(group.record()),
        };
        for medium in &plan.media {
            for &clients in &plan.clients {
                if report.left_out.iter().any(|out| out.is_of(medium.kind)) {
                    progress.advance(plan.sizes.len() as u64);
                } else if self.add(
                    &mut report,
                    group,
                    (medium, clients, plan),
                    give_up,
                    progress,
                ) {
                    return Box::new(report);
                }
            }
        }
        Box::new(report)
    }
}

impl Rounds {
    /// Measures one transport with one number of clients. A failure becomes part of the report, and
    /// does not end the run. If a participant is gone, nothing is measured, and the report says so.
    /// Returns whether the user has interrupted the run; the report then has the results so far.
    fn add(
        &self,
        report: &mut GroupReport,
        group: &mut Group,
        (medium, clients, plan): (&Medium, usize, &Plan),
        give_up: Duration,
        progress: &dyn Progress,
    ) -> bool {
        let transport = medium.kind.name;
        let (cast, members) = self.cast(group, clients, plan);
        let mut rows = Vec::new();
        let result = match group.gone() {
            Some(gone) => Err(anyhow!("not measured: {gone}")),
            None => {
                progress.begin(transport, self.name);
                let mut mesh = Mesh::new(group, members);
                let result = self.measure(&mut mesh, medium, plan, &mut |row| {
                    progress.advance(1);
                    rows.push(row);
                });
                // All members have to stop before the next run begins.
                result.and(mesh.leave(give_up * 2))
            }
        };
        let interrupted = result.as_ref().is_err_and(is_interrupted);
        progress.advance(plan.sizes.len().saturating_sub(rows.len()) as u64);
        let measured = report.runs.iter().any(|run| run.transport == transport);
        // If the first run of an optional transport has no row, and no participant is gone, then
        // the transport does not work here. The report leaves it out.
        let dispensable = medium.optional && rows.is_empty() && !interrupted && !measured;
        let outcome = match result {
            Ok(()) => Outcome::Ok,
            Err(error) if dispensable && group.gone().is_none() => {
                let left_out = LeftOut::new(medium.kind, None, &error);
                report.left_out.push(left_out);
                return false;
            }
            Err(error) => Outcome::failed(&error),
        };
        // The sockets have the default options.
        let run = GroupRun::new(medium.kind, &SocketOptions::default(), "", outcome, rows);
        let congestion = medium.congestion.clone();
        report.runs.push(GroupRun {
            congestion,
            cast,
            ..run
        });
        interrupted
    }

    /// Returns the server for the report, if the pattern has one, and the members of the mesh.
    fn cast(&self, group: &Group, clients: usize, plan: &Plan) -> (Option<Cast>, Vec<usize>) {
        if self.roles == Roles::Alike {
            return (None, (0..=clients).collect());
        }
        let (server_index, others) = plan::cast(plan.server, plan.seed, clients);
        let cast = Cast {
            clients,
            server: group.name(server_index).to_owned(),
            server_index,
        };
        (Some(cast), [&[server_index], &others[..]].concat())
    }

    fn measure(
        &self,
        mesh: &mut Mesh<'_>,
        medium: &Medium,
        plan: &Plan,
        on_row: &mut dyn FnMut(GroupRow),
    ) -> Result<()> {
        mesh.open(&medium.opening(), self.shape)?;
        for &size in &plan.sizes {
            let (mut row, result) = (self.measure)(mesh, size, plan);
            row.errors = u32::from(result.is_err());
            on_row(row);
            result?;
        }
        Ok(())
    }
}

fn series(size: u64, plan: &Plan) -> Series {
    Series {
        size,
        rounds: plan.warmup.saturating_add(plan.tests),
    }
}

pub(super) fn one_many(mesh: &mut Mesh<'_>, size: u64, plan: &Plan) -> (GroupRow, Result<()>) {
    of_clients(mesh, size, plan, &Flows::Gather, Round::of_senders)
}

fn many_one(mesh: &mut Mesh<'_>, size: u64, plan: &Plan) -> (GroupRow, Result<()>) {
    of_clients(mesh, size, plan, &Flows::Scatter, Round::of_receivers)
}

fn of_clients(
    mesh: &mut Mesh<'_>,
    size: u64,
    plan: &Plan,
    flows: &Flows,
    seen: fn(&MeshRound) -> Round,
) -> (GroupRow, Result<()>) {
    let (rounds, result) = mesh.exchange(series(size, plan), flows);
    let rounds: Vec<_> = rounds.iter().map(seen).collect();
    let row = GroupRow::of_clients(size, mesh.clients(), &rounds, plan.warmup, plan.rate);
    (row, result)
}

fn loaded_latency(mesh: &mut Mesh<'_>, size: u64, plan: &Plan) -> (GroupRow, Result<()>) {
    let warmup = plan.warmup as usize;
    let mut call = |load| {
        mesh.call(RpcSeries {
            series: series(size, plan),
            load,
            pause_ms: plan.pause_ms,
        })
    };
    let (alone, result) = call(Load::None);
    if result.is_err() {
        return (GroupRow::of_rates(size, Vec::new(), None), result);
    }
    let (loaded, result) = call(Load::Streams);
    let counted = loaded.times_ns.get(warmup..).unwrap_or_default();
    let rate = (loaded.ns > 0).then(|| bit_per_s(loaded.bytes, loaded.ns));
    let row = GroupRow {
        rounds: counted.len() as u32,
        rpc: RpcFigures::of(
            alone.times_ns.get(warmup..).unwrap_or_default(),
            counted,
            loaded.longest_pause_ns,
        ),
        ..GroupRow::of_rates(size, Vec::from_iter(rate), plan.rate)
    };
    (row, result)
}

fn all_to_all(mesh: &mut Mesh<'_>, size: u64, plan: &Plan) -> (GroupRow, Result<()>) {
    let (rounds, result) = mesh.exchange(series(size, plan), &Flows::All);
    let rounds = rounds.get(plan.warmup as usize..);
    let rounds = rounds.unwrap_or_default();
    let others = mesh.clients() as u64;
    let rates = rounds.iter().map(|one| bit_per_s(size * others, one.ns));
    let row = GroupRow::of_hosts(size, rounds.len() as u32, rates.collect(), plan);
    let indices = rounds.iter().map(|round| jain(&round.received_ns));
    let row = GroupRow {
        total_bit_per_s: row.host_bit_per_s.map(|host| host.usual() * (others + 1)),
        fairness: Fairness::of(indices.collect()),
        ..row
    };
    (row, result)
}

/// Measures pairings with messages of one size. Each pairing has warm-up rounds before the round
/// that counts.
fn bisection(mesh: &mut Mesh<'_>, size: u64, plan: &Plan) -> (GroupRow, Result<()>) {
    let hosts = mesh.clients() + 1;
    let series = Series {
        size,
        rounds: plan.warmup.saturating_add(1),
    };
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let (mut pairings, mut rates) = (0, Vec::new());
    let mut result = Ok(());
    while pairings < plan.tests && result.is_ok() {
        let partners = pair(hosts, &mut random);
        let (rounds, ended) = mesh.exchange(series, &Flows::Pairs(partners.clone()));
        result = ended;
        // An interrupted pairing may have warm-up rounds only.
        if let Some(round) = rounds.get(plan.warmup as usize) {
            pairings += 1;
            rates.extend(pair_rates(&partners, round, size));
        }
    }
    let row = GroupRow::of_hosts(size, pairings, rates, plan);
    let pairs = hosts as u64 / 2;
    let row = GroupRow {
        bisection_bit_per_s: row.host_bit_per_s.map(|host| host.usual() * pairs),
        ..row
    };
    (row, result)
}

/// Pairs all hosts at random. Returns the partner of each host, by host number. If the number of
/// hosts is odd, one host has no partner.
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

/// Returns the rate of each pair in one direction. The rate is computed from the time of the host
/// that took longer. Otherwise, a host that starts after its partner has sent would appear faster
/// than it is.
fn pair_rates(partners: &[Option<u16>], round: &MeshRound, size: u64) -> Vec<f64> {
    let pairs = partners.iter().enumerate().filter_map(|(one, partner)| {
        let other = usize::from((*partner)?);
        let ns = round.received_ns[one].max(round.received_ns[other]);
        (one < other).then(|| bit_per_s(size, ns))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_a_partner_but_the_odd_one() {
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
            fairness: None,
        };
        // 1000 bytes are 8000 bits.
        let rates = pair_rates(&partners, &round, 1000);
        assert_eq!(rates, [1e9, 2e9]);
    }
}
