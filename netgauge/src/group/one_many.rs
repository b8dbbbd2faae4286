// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pattern one-many (Treydte 2007, 2.4.4): N clients send to one server at once, which is what
//! makes a switch's port in front of the server overflow, and shows whether the clients get equal
//! shares. Pattern many-one is the way back: one server sends to N clients at once
//! ([`super::many_one`]).

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::args::RoundsPlan;
use super::figures::{Fairness, Goodput, Share};
use super::many_one;
use super::meeting::Meeting;
use super::mesh::Mesh;
use super::orders::Opening;
use super::participants::Group;
use super::rounds::{Round, Series};
use super::signals::is_interrupted;
use crate::progress::Progress;
use crate::report::{self, End, LeftOut, Outcome};
use crate::transport::{self, Kind, SocketOptions};

/// The pattern's name in option `-x`.
pub const NAME: &str = "one-many";

/// A transport, with what can be chosen of it.
#[derive(Clone, Debug)]
pub struct Medium {
    /// The transport.
    pub kind: &'static Kind,
    /// Name of TCP's congestion control; without one, the system's.
    pub congestion: Option<String>,
    /// Nobody asked for this one by its name: where it does not work, it is left out.
    pub optional: bool,
}

impl Medium {
    /// One line on it: its sockets have no options but what they always have.
    pub fn about(&self) -> String {
        SocketOptions::default().describe(self.kind)
    }

    /// What participants are told of it.
    pub fn opening(&self) -> Opening {
        Opening {
            transport: self.kind.name.to_owned(),
            congestion: self.congestion.clone(),
        }
    }

    /// What is to be said of it if it has been left out for `reason`.
    pub fn left_out(&self, reason: &anyhow::Error) -> LeftOut {
        LeftOut {
            transport: self.kind.name.to_owned(),
            pattern: None,
            reason: format!("{reason:#}"),
        }
    }
}

/// Which way the messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the clients to the server: one-many.
    Gather,
    /// From the server to the clients: many-one.
    Scatter,
}

impl Direction {
    /// The pattern's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gather => NAME,
            Self::Scatter => many_one::NAME,
        }
    }
}

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct ManyPlan {
    /// Which way.
    pub direction: Direction,
    /// By what the messages go.
    pub media: Vec<Medium>,
    /// Numbers of clients, each at least 1 and less than there are participants.
    pub clients: Vec<usize>,
    /// The rounds with each.
    pub rounds: RoundsPlan,
    /// Index of the server, if it is not to be drawn.
    pub server: Option<usize>,
    /// What drawing it depends on.
    pub seed: u64,
    /// Rate of the server's link, bit/s.
    pub rate: Option<u64>,
}

/// Who is the server and who the clients, by index: of the first `clients + 1` participants one is
/// drawn, the same for every transport; or a given one has the first `clients` of the others.
pub fn cast(server: Option<usize>, seed: u64, clients: usize) -> (usize, Vec<usize>) {
    let server = server.unwrap_or_else(|| {
        // The number of clients goes in, so that it is drawn anew for each, in any order.
        fastrand::Rng::with_seed(seed.wrapping_add(clients as u64)).usize(0..=clients)
    });
    let others = (0..).filter(|index| *index != server);
    (server, others.take(clients).collect())
}

/// Everything that was measured. Printed as JSON it is what programs read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManyReport {
    /// netgauge's version.
    pub netgauge: String,
    /// The pattern's name.
    pub pattern: String,
    /// Their names, by index.
    pub participants: Vec<String>,
    /// What the choice of the servers depended on.
    pub seed: u64,
    /// Rate of the server's link, bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bit_per_s: Option<u64>,
    /// One per transport, congestion control and number of clients, in the order measured.
    pub runs: Vec<ManyRun>,
    /// What does not work here, where all transports were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// One transport with one number of clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManyRun {
    /// Transport's name.
    pub transport: String,
    /// One line on the transport.
    pub about: String,
    /// Name of TCP's congestion control, where one was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Number of clients.
    pub clients: usize,
    /// The server's name.
    pub server: String,
    /// The server's index.
    pub server_index: usize,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// One per size, ascending; those measured before a failure too.
    pub rows: Vec<ManyRow>,
}

/// One size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManyRow {
    /// Bytes that each client sends in a round.
    pub size: u64,
    /// Rounds measured.
    pub rounds: u32,
    /// Rounds that broke.
    pub errors: u32,
    /// Payload by time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_bit_per_s: Option<Goodput>,
    /// The same as a share of the rate, if that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// Jain's index when the first sender was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<Fairness>,
}

impl ManyRow {
    /// Sums up rounds of `clients` clients, without the first `warmup`.
    pub fn of(
        size: u64,
        clients: usize,
        rounds: &[Round],
        warmup: u32,
        errors: u32,
        rate: Option<u64>,
    ) -> Self {
        let counted = rounds.get(warmup as usize..).unwrap_or_default();
        let goodput = Goodput::of(counted, size * clients as u64);
        Self {
            size,
            rounds: counted.len() as u32,
            errors,
            goodput_bit_per_s: goodput,
            share: goodput.zip(rate).map(|(goodput, rate)| goodput.share(rate)),
            fairness: Fairness::of(counted),
        }
    }
}

impl ManyReport {
    /// Is it known that `kind` does not work here?
    fn lacks(&self, kind: &Kind) -> bool {
        self.left_out.iter().any(|out| out.transport == kind.name)
    }

    /// Has `kind` been measured with another number of clients?
    fn has(&self, kind: &Kind) -> bool {
        self.runs.iter().any(|run| run.transport == kind.name)
    }

    /// The errors of runs that failed, with what they were; of those in a row that failed alike, once.
    pub fn errors(&self) -> Vec<String> {
        report::errors(&self.runs, ManyRun::end, ManyRun::title)
    }
}

impl ManyRun {
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

    /// What was measured, for messages.
    pub fn title(&self) -> String {
        let s = if self.clients == 1 { "" } else { "s" };
        format!("{}, {} client{s}", self.medium(), self.clients)
    }
}

/// Measures everything that was asked for. What fails is reported as failed, and the rest is
/// measured all the same, unless a participant is gone. The user may end it: then the report has
/// what was measured before.
pub fn run(
    group: &mut Group,
    plan: &ManyPlan,
    give_up: Duration,
    progress: &dyn Progress,
) -> ManyReport {
    let mut report = ManyReport {
        netgauge: env!("CARGO_PKG_VERSION").to_owned(),
        pattern: plan.direction.name().to_owned(),
        participants: group.names(),
        seed: plan.seed,
        rate_bit_per_s: plan.rate,
        runs: Vec::new(),
        left_out: Vec::new(),
    };
    let sizes = plan.rounds.sizes.len();
    for medium in &plan.media {
        for &clients in &plan.clients {
            if report.lacks(medium.kind) {
                progress.advance(sizes as u64);
                continue;
            }
            let (server, others) = cast(plan.server, plan.seed, clients);
            let mut rows = Vec::new();
            let result = match group.gone() {
                Some(gone) => Err(anyhow::anyhow!("not measured: {gone}")),
                None => {
                    progress.begin(medium.kind.name, plan.direction.name());
                    let on_row = &mut |row| {
                        progress.advance(1);
                        rows.push(row);
                    };
                    match plan.direction {
                        Direction::Gather => {
                            let mut meeting = Meeting::new(group, server, &others);
                            let result = measure(&mut meeting, medium, clients, plan, on_row);
                            // Until all have stopped, the next cannot begin.
                            result.and(meeting.leave(give_up * 2))
                        }
                        Direction::Scatter => {
                            let members = [&[server], &others[..]].concat();
                            let mut mesh = Mesh::new(group, members);
                            let result = many_one::measure(&mut mesh, medium, plan, on_row);
                            result.and(mesh.leave(give_up * 2))
                        }
                    }
                }
            };
            let interrupted = result.as_ref().is_err_and(is_interrupted);
            progress.advance(sizes.saturating_sub(rows.len()) as u64);
            // Without a row it has not been opened, and with nobody gone it is not for this time only.
            let dispensable = medium.optional && rows.is_empty() && !interrupted;
            let outcome = match result {
                Ok(()) => Outcome::Ok,
                Err(error) if dispensable && group.gone().is_none() && !report.has(medium.kind) => {
                    report.left_out.push(medium.left_out(&error));
                    continue;
                }
                Err(error) => Outcome::Failed {
                    error: format!("{error:#}"),
                },
            };
            report.runs.push(ManyRun {
                transport: medium.kind.name.to_owned(),
                about: medium.about(),
                congestion: medium.congestion.clone(),
                clients,
                server: group.name(server).to_owned(),
                server_index: server,
                outcome,
                rows,
            });
            if interrupted {
                return report;
            }
        }
    }
    report
}

fn measure(
    meeting: &mut Meeting<'_>,
    medium: &Medium,
    clients: usize,
    plan: &ManyPlan,
    on_row: &mut dyn FnMut(ManyRow),
) -> Result<()> {
    meeting.open(&medium.opening())?;
    let RoundsPlan { tests, warmup, .. } = plan.rounds;
    for &size in &plan.rounds.sizes {
        let (rounds, result) = meeting.series(Series {
            size,
            rounds: warmup.saturating_add(tests),
        });
        on_row(ManyRow::of(
            size,
            clients,
            &rounds,
            warmup,
            u32::from(result.is_err()),
            plan.rate,
        ));
        result?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_server_is_one_of_the_first_and_the_others_are_clients() {
        let mut servers = BTreeSet::new();
        for seed in 0..200 {
            for clients in [1, 2, 32] {
                let (server, others) = cast(None, seed, clients);
                assert!(server <= clients);
                let mut all = others.clone();
                all.push(server);
                all.sort_unstable();
                assert_eq!(all, (0..=clients).collect::<Vec<_>>());
                assert_eq!(cast(None, seed, clients), (server, others));
                if clients == 2 {
                    servers.insert(server);
                }
            }
        }
        assert_eq!(servers.len(), 3, "each can be drawn");
    }

    #[test]
    fn a_fixed_server_has_the_first_of_the_others() {
        assert_eq!(cast(Some(0), 1, 2), (0, vec![1, 2]));
        assert_eq!(cast(Some(1), 1, 3), (1, vec![0, 2, 3]));
        assert_eq!(cast(Some(9), 1, 2), (9, vec![0, 1]));
    }

    #[test]
    fn the_warm_up_does_not_count() {
        let round = |ns| Round { ns, fairness: 1.0 };
        let rounds = [round(1), round(8000), round(16000)];
        let row = ManyRow::of(500, 2, &rounds, 1, 0, Some(2_000_000_000));
        assert_eq!((row.rounds, row.errors), (2, 0));
        let goodput = row.goodput_bit_per_s.unwrap();
        assert_eq!((goodput.worst, goodput.best), (500_000_000, 1_000_000_000));
        assert_eq!(row.share.map(|share| share.best), Some(0.5));

        let broken = ManyRow::of(500, 2, &rounds[..1], 2, 1, None);
        assert_eq!((broken.rounds, broken.errors), (0, 1));
        assert_eq!((broken.goodput_bit_per_s, broken.share), (None, None));
    }
}
