// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pattern esp-params (Treydte 2007, 6.2): goodput of ESP over `burst_length` and `packets_to_ack`.
//!
//! If `burst_length` permits fewer packets in flight than `packets_to_ack`, no acknowledgement
//! becomes due. The transfer then goes on only when the retransmission request timer expires. Such
//! pairs of values are out of range, so they are left out.

use std::time::Duration;

use anyhow::{anyhow, bail, Context as _, Result};
use serde::{Deserialize, Serialize};

use super::figures::{Goodput, Share};
use super::mesh::{Mesh, Shape};
use super::patterns::one_many;
use super::plan::{cast, Plan, Roles};
use super::remotes::Group;
use super::report::GroupRow;
use super::{GroupPattern, Results};
use crate::group::net::orders::EspParameters;
use crate::group::net::orders::{Answer, Order};
use crate::progress::Progress;
use crate::report::record::Record;
use crate::report::Outcome;

/// The pattern's name in option `-x`.
pub const NAME: &str = "esp-params";

/// The results of pattern esp-params. Programs read them as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParamsReport {
    /// netgauge's version.
    pub netgauge: String,
    /// The pattern's name.
    pub pattern: String,
    /// The participants' names, by index.
    pub participants: Vec<String>,
    /// The seed of the choice of the server.
    pub seed: u64,
    /// The server's name.
    pub server: String,
    /// The server's index.
    pub server_index: usize,
    /// Number of clients.
    pub clients: usize,
    /// The number of bytes that each client sent in a round.
    pub size: u64,
    /// Rate of the server's link, bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bit_per_s: Option<u64>,
    /// The values of `burst_length`, ascending.
    pub burst_length: Vec<u32>,
    /// The values of `packets_to_ack`, ascending.
    pub packets_to_ack: Vec<u32>,
    /// Success, or the error that ended the run.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The results for each pair of values in range, in the order of measurement. A failed run has
    /// the results measured before the failure.
    pub cells: Vec<Cell>,
    /// The time, the command and the hosts of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
}

/// The results for one pair of values of the two parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The values of the two parameters.
    #[serde(flatten)]
    pub parameters: EspParameters,
    /// Number of rounds measured.
    pub rounds: u32,
    /// Number of rounds that failed.
    pub errors: u32,
    /// The goodput: the payload of all clients per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_bit_per_s: Option<Goodput>,
    /// The goodput as a share of the link's rate, if this rate was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
}

impl ParamsReport {
    /// Returns the results for this pair of values, if the pair was measured.
    pub fn cell(&self, burst_length: u32, packets_to_ack: u32) -> Option<&Cell> {
        let wanted = EspParameters {
            burst_length,
            packets_to_ack,
        };
        self.cells.iter().find(|cell| cell.parameters == wanted)
    }
}

/// The pattern `esp-params`. If the run fails or is interrupted, the report has the cells measured
/// up to that time. The parameters are always restored: on the coordinator's order, or by each
/// participant when its connection ends.
#[derive(Debug)]
pub struct EspParams;

impl GroupPattern for EspParams {
    fn roles(&self) -> Roles {
        Roles::Grid
    }

    fn steps(&self, plan: &Plan) -> usize {
        plan.grid.cells().count()
    }

    fn run(
        &self,
        group: &mut Group,
        plan: &Plan,
        give_up: Duration,
        progress: &dyn Progress,
    ) -> Box<dyn Results> {
        let (clients, size) = (plan.clients[0], plan.sizes[0]);
        let (server, others) = cast(plan.server, plan.seed, clients);
        let mut report = ParamsReport {
            netgauge: env!("CARGO_PKG_VERSION").to_owned(),
            pattern: NAME.to_owned(),
            participants: group.names(),
            seed: plan.seed,
            server: group.name(server).to_owned(),
            server_index: server,
            clients,
            size,
            rate_bit_per_s: plan.rate,
            burst_length: plan.grid.burst_length.clone(),
            packets_to_ack: plan.grid.packets_to_ack.clone(),
            outcome: Outcome::Ok,
            cells: Vec::new(),
            record: Some(group.record()),
        };
        progress.begin(plan.media[0].kind.name, NAME);
        let members = [&[server], &others[..]].concat();
        let result = one_per_namespace(group, &members).and_then(|keepers| {
            let result = measure(group, plan, &members, &keepers, give_up, |cell| {
                progress.advance(1);
                report.cells.push(cell);
            });
            match (result, restore(group, &keepers)) {
                (Err(error), Err(other)) => Err(anyhow!("{error:#}; {other:#}")),
                (result, restored) => result.and(restored),
            }
        });
        if let Err(error) = result {
            report.outcome = Outcome::failed(&error);
        }
        Box::new(report)
    }
}

/// Selects one participant in each network namespace, because ESP's parameters belong to a
/// namespace.
fn one_per_namespace(group: &mut Group, members: &[usize]) -> Result<Vec<usize>> {
    for who in members {
        group.order(*who, Order::Identify)?;
    }
    let mut places = Vec::new();
    group.listen(members, |who, answer| match answer {
        Answer::Identity(place) => {
            places.push((place, who));
            Ok(true)
        }
        other => bail!("a participant answered {other:?} to Identify"),
    })?;
    places.sort_unstable();
    places.dedup_by(|one, before| one.0 == before.0);
    Ok(places.into_iter().map(|(_, who)| who).collect())
}

fn measure(
    group: &mut Group,
    plan: &Plan,
    members: &[usize],
    keepers: &[usize],
    give_up: Duration,
    mut on_cell: impl FnMut(Cell),
) -> Result<()> {
    for parameters in plan.grid.cells() {
        group.all_do(keepers, &Order::SetParameters(parameters), &Answer::Done)?;
        // A pair of values must apply to whole connections, so the members connect again for each
        // pair.
        let mut mesh = Mesh::new(group, members.to_vec());
        let (row, result) = match mesh.open(&plan.media[0].opening(), Shape::Star) {
            Ok(()) => one_many(&mut mesh, plan.sizes[0], plan),
            Err(error) => (GroupRow::default(), Err(error)),
        };
        on_cell(Cell {
            parameters,
            rounds: row.rounds,
            errors: u32::from(result.is_err()),
            goodput_bit_per_s: row.goodput_bit_per_s,
            share: row.share,
        });
        result.and(mesh.leave(give_up * 2)).with_context(|| {
            let (burst, ack) = (parameters.burst_length, parameters.packets_to_ack);
            format!("burst_length {burst}, packets_to_ack {ack}")
        })?;
    }
    Ok(())
}

/// Restores the parameters in the participants that still run.
fn restore(group: &mut Group, keepers: &[usize]) -> Result<()> {
    let mut there = keepers.to_vec();
    there.retain(|who| group.is_there(*who));
    group.all_do(&there, &Order::RestoreParameters, &Answer::Done)
}
