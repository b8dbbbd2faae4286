// SPDX-License-Identifier: GPL-2.0-only

//! Sends hostile frames that a fuzzer makes; `make fuzz-frames` sends many more.

use crate::fuzz::{attack, Plan};
use guest::prelude::*;

/// The scenarios of this file.
pub const ALL: &[Scenario] =
    &[Scenario::guest("fuzz_frames_20000_break_nothing_and_leave_nothing", frames).within(240)];

const PLAN: Plan = Plan {
    frames: 20_000,
    seed: 1,
};

fn frames() -> Outcome {
    let report = attack(PLAN)?;
    for line in report.to_string().lines() {
        note(line);
    }
    ensure!(report.total() >= PLAN.frames, "too few frames were sent");
    for wrap in report.wraps() {
        ensure!(wrap.1 > 100, "only {} frames were {:?}", wrap.1, wrap.0);
    }
    // Frames hit sockets in every state, and the counters show that they reached the module.
    for state in report.states() {
        ensure!(state.1 > 100, "only {} frames hit {:?}", state.1, state.0);
    }
    for name in [
        "EdpInNotOurs",
        "EdpInMalformed",
        "EdpInNoSocket",
        "EspInNotOurs",
        "EspInMalformed",
        "EspInNoSocket",
        "EspInPuts",
        "EspInMessagesRefused",
    ] {
        let [before, after] = report.counters.get(name).copied().unwrap_or_default();
        ensure!(after > before, "{name} did not count");
    }
    Ok(())
}
