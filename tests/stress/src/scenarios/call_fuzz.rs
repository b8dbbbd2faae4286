// SPDX-License-Identifier: GPL-2.0-only

//! Makes random calls with random arguments, from processes that are killed.

use crate::call_fuzz::{run, Campaign};
use guest::prelude::*;

/// The scenarios of this file.
pub const ALL: &[Scenario] =
    &[Scenario::guest("calls_at_random_by_processes_killed_at_random", at_random).within(150)];

/// The smallest number of calls. An idle machine makes ten times as many calls.
const CALLS: u64 = 5_000;
const KILLS: u64 = 20;

fn at_random() -> Outcome {
    let report = run(Campaign {
        seed: fastrand::u64(..),
        time: allow(Duration::from_secs(12)),
        calls: CALLS,
        kills: KILLS,
    })?;
    note(&format!("{} calls, {report:?}", report.total));
    ensure!(
        report.total >= CALLS,
        "only {} calls were made",
        report.total
    );
    ensure!(
        report.never.is_empty(),
        "these never succeeded: {:?}",
        report.never
    );
    ensure!(
        report.killed >= KILLS && report.bounces > 0 && report.unloads.0 > 0,
        "{} killed, {} bounces, {} unloads refused",
        report.killed,
        report.bounces,
        report.unloads.0
    );
    Ok(())
}
