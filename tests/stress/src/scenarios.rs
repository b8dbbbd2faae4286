// SPDX-License-Identifier: GPL-2.0-only

//! Lists the scenarios of this crate, one file per theme.

mod call_fuzz;
mod denial;
mod endurance;
mod faults;
mod fuzz_frames;
mod memory_cgroup;
mod memory_fails;
mod memory_fails_below;
mod memory_fails_on_the_way;
mod scale;

use guest::harness::Scenario;

/// All scenarios of this crate, in the order in which they run.
pub fn all() -> Vec<&'static Scenario> {
    [
        faults::ALL,
        fuzz_frames::ALL,
        endurance::ALL,
        scale::ALL,
        memory_cgroup::ALL,
        memory_fails::ALL,
        memory_fails_on_the_way::ALL,
        memory_fails_below::ALL,
        denial::ALL,
        call_fuzz::ALL,
    ]
    .into_iter()
    .flatten()
    .collect()
}
