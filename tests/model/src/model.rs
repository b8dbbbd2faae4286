// SPDX-License-Identifier: GPL-2.0-only

//! Presents a family of cases to stateright, the model checker.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use stateright::{Model, Property};

use crate::case::Case;
use crate::fault::{Fault, PROPERTIES};
use crate::scene::Log;
use crate::world::{Budget, Fate, World};

/// Statistics of a check. They are not part of any state.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of distinct runs that reached their end.
    pub ends: AtomicU64,
    /// Duration of the longest run, in nanoseconds.
    pub longest: AtomicU64,
    /// The bits of [`Sights`](crate::scene::Sights): the events that occurred in some run.
    pub sights: AtomicU32,
}

/// Cases that are checked together, each with the same faults.
#[derive(Clone, Debug)]
pub struct Worlds {
    /// The cases.
    pub cases: Arc<Vec<Case>>,
    /// The faults that may happen in a run.
    pub budget: Budget,
    /// The statistics of the check.
    pub tally: Arc<Tally>,
}

impl Worlds {
    /// Returns the worlds of these cases.
    pub fn new(cases: Arc<Vec<Case>>, budget: Budget) -> Self {
        Self {
            cases,
            budget,
            tally: Arc::new(Tally::default()),
        }
    }

    /// Returns the case of a state.
    pub fn case(&self, state: &World) -> &Case {
        &self.cases[usize::from(state.case)]
    }
}

impl Model for Worlds {
    type State = World;
    type Action = Fate;

    fn init_states(&self) -> Vec<World> {
        let cases = self.cases.iter().zip(0u16..);
        cases
            .map(|(case, index)| World::new(index, case, self.budget, &mut Log::default()))
            .collect()
    }

    fn actions(&self, state: &World, actions: &mut Vec<Fate>) {
        if !state.is_over() {
            actions.extend(state.fates());
        }
    }

    fn next_state(&self, last: &World, fate: Fate) -> Option<World> {
        let mut state = last.clone();
        let sights = state.step(self.case(last), fate, &mut Log::default());
        self.tally.sights.fetch_or(sights.0, Relaxed);
        if state.finished {
            self.tally.ends.fetch_add(1, Relaxed);
            self.tally.longest.fetch_max(state.elapsed(), Relaxed);
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn holds<const N: usize>(_: &Worlds, state: &World) -> bool {
            state.fault.as_ref().map(Fault::property) != Some(PROPERTIES[N])
        }
        let conditions: [fn(&Worlds, &World) -> bool; PROPERTIES.len()] = [
            holds::<0>, holds::<1>, holds::<2>, holds::<3>, holds::<4>, holds::<5>, holds::<6>,
            holds::<7>, holds::<8>, holds::<9>,
        ];
        PROPERTIES
            .into_iter()
            .zip(conditions)
            .map(|(name, condition)| Property::always(name, condition))
            .collect()
    }
}
