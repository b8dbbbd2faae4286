// SPDX-License-Identifier: GPL-2.0-only

//! Checks a family of cases, and formats a violation for reading.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esp::Nanos;
use stateright::{Checker, HasDiscoveries, Model};

use crate::case::Case;
use crate::families::Family;
use crate::model::Worlds;
use crate::scene::{Log, Sights};
use crate::world::{Budget, Fate, World};

/// Number of lines that are kept from the start of a trace; [`TRACE_TAIL`] lines are kept from its
/// end.
const TRACE_HEAD: usize = 160;
const TRACE_TAIL: usize = 40;

/// The result of checking a family.
#[derive(Debug)]
pub struct Report {
    /// Number of distinct states explored.
    pub states: usize,
    /// Number of distinct runs that reached their end.
    pub ends: u64,
    /// Duration of the longest run, in nanoseconds.
    pub longest: Nanos,
    /// The events that occurred in some run.
    pub sights: Sights,
    /// The family's required events that occurred in no run.
    pub missing: Sights,
    /// Wall time of the check.
    pub took: Duration,
    /// The shortest run that breaks a property.
    pub violation: Option<Violation>,
}

impl Report {
    /// Returns whether all properties hold, and every event that the family requires occurred in
    /// some run.
    pub fn holds(&self) -> bool {
        self.violation.is_none() && self.missing == Sights::NONE
    }
}

/// A run that breaks a property.
#[derive(Debug)]
pub struct Violation {
    /// The broken property.
    pub property: &'static str,
    /// The faults that the run used.
    pub budget: Budget,
    /// The case and all events.
    pub trace: Vec<String>,
}

/// Checks a family with every placement of its faults.
pub fn check(family: &Family, threads: usize) -> Report {
    let budget = family.budget;
    let started = Instant::now();
    let cases = Arc::new(family.cases.clone());
    let worlds = Worlds::new(Arc::clone(&cases), budget);
    let tally = Arc::clone(&worlds.tally);
    let checker = worlds
        .checker()
        .threads(threads)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_dfs()
        .join();
    let sights = Sights(tally.sights.load(Relaxed));
    let violation = if checker.discoveries().is_empty() {
        None
    } else {
        shortest(&cases, budget)
    };
    Report {
        states: checker.unique_state_count(),
        ends: tally.ends.load(Relaxed),
        longest: tally.longest.load(Relaxed),
        sights,
        missing: family.must_see.without(sights),
        took: started.elapsed(),
        violation,
    }
}

/// Returns the violation with the fewest faults. Of several such violations, returns the one with
/// the fewest packets.
fn shortest(cases: &Arc<Vec<Case>>, most: Budget) -> Option<Violation> {
    let counts = (0..=most.losses)
        .flat_map(|losses| (0..=most.duplicates).map(move |twice| (losses, twice)))
        .flat_map(|(losses, twice)| (0..=most.reorders).map(move |late| (losses, twice, late)));
    let mut budgets: Vec<_> = counts
        .flat_map(|(losses, duplicates, reorders)| {
            [false, true].map(|death| Budget {
                losses,
                duplicates,
                reorders,
                death,
            })
        })
        .filter(|budget| most.death || !budget.death)
        .collect();
    budgets.sort_by_key(|b| {
        let all = b.losses + b.duplicates + b.reorders + u8::from(b.death);
        (all, b.losses)
    });
    budgets.into_iter().find_map(|budget| {
        let checker = Worlds::new(Arc::clone(cases), budget)
            .checker()
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let (property, path) = checker.discoveries().into_iter().next()?;
        let index = path.last_state().case;
        let trace = replay(
            index,
            &cases[usize::from(index)],
            budget,
            &path.into_actions(),
        );
        Some(Violation {
            property,
            budget,
            trace,
        })
    })
}

fn replay(index: u16, case: &Case, budget: Budget, fates: &[Fate]) -> Vec<String> {
    let mut log = Log::kept();
    let mut world = World::new(index, case, budget, &mut log);
    for fate in fates {
        world.step(case, *fate, &mut log);
    }
    let mut lines: Vec<_> = case.to_string().lines().map(str::to_owned).collect();
    let happened = log.into_lines();
    let hidden = happened.len().saturating_sub(TRACE_HEAD + TRACE_TAIL);
    if hidden > 0 {
        lines.extend_from_slice(&happened[..TRACE_HEAD]);
        lines.push(format!("... {hidden} lines ..."));
        lines.extend_from_slice(&happened[happened.len() - TRACE_TAIL..]);
    } else {
        lines.extend(happened);
    }
    if let Some(fault) = &world.fault {
        lines.push(format!("VIOLATION: {fault}"));
    }
    lines
}
