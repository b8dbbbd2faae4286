// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pattern many-one: one server sends to N clients at once, the way back of
//! [one-many](super::one_many). In the names it is the first who receives: one from many, or many
//! from one.
//!
//! The messages leave by the server's port, which none of them has to fight others for at the
//! switch: what is measured is how fast one host feeds many, and whether it feeds them equally.

use anyhow::Result;

use super::args::RoundsPlan;
use super::figures::jain;
use super::mesh::{Flows, Mesh, MeshRound, Shape};
use super::one_many::{ManyPlan, ManyRow, Medium};
use super::rounds::{Round, Series};

/// The pattern's name in option `-x`.
pub const NAME: &str = "many-one";

/// Measures one transport with the server and clients of a mesh.
///
/// # Errors
///
/// A participant failed or is gone; the text names it. `Interrupted` by the user.
pub fn measure(
    mesh: &mut Mesh<'_>,
    medium: &Medium,
    plan: &ManyPlan,
    on_row: &mut dyn FnMut(ManyRow),
) -> Result<()> {
    mesh.open(&medium.opening(), Shape::Star)?;
    let RoundsPlan { tests, warmup, .. } = plan.rounds;
    for &size in &plan.rounds.sizes {
        let series = Series {
            size,
            rounds: warmup.saturating_add(tests),
        };
        let (rounds, result) = mesh.exchange(series, &Flows::Scatter);
        let clients = mesh.clients();
        let rounds: Vec<_> = rounds.iter().map(round).collect();
        let errors = u32::from(result.is_err());
        on_row(ManyRow::of(
            size, clients, &rounds, warmup, errors, plan.rate,
        ));
        result?;
    }
    Ok(())
}

/// A round's time, and how equal the times were at which the clients had their messages.
fn round(round: &MeshRound) -> Round {
    Round {
        ns: round.ns,
        fairness: jain(&round.received_ns[1..]),
    }
}
