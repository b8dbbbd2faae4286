// SPDX-License-Identifier: GPL-2.0-only

//! Lists the behaviours of streams. A behaviour is a test that runs over both TCP and ESP.

mod accepting;
mod amounts;
mod closing;
mod connecting;
mod control;
mod dialogue;
mod driven;
mod edges;
pub mod files;
mod half_close;
mod inheritance;
mod interrupted;
mod lives;
mod low_water;
mod peek;
mod plumbing;
mod readiness;
mod records;
mod resets;
mod room;
mod sharing;
mod threads;
mod unready;
mod uring;
mod vectors;
mod waiting;
mod zero_copy;

use crate::Behaviour;

/// All behaviours (tests) of streams, by theme.
pub const ALL: &[&[Behaviour]] = &[
    dialogue::ALL,
    readiness::ALL,
    edges::ALL,
    waiting::ALL,
    room::ALL,
    low_water::ALL,
    connecting::ALL,
    accepting::ALL,
    interrupted::ALL,
    driven::ALL,
    peek::ALL,
    amounts::ALL,
    vectors::ALL,
    control::ALL,
    records::ALL,
    plumbing::ALL,
    uring::ALL,
    files::ALL,
    unready::ALL,
    half_close::ALL,
    closing::ALL,
    resets::ALL,
    sharing::ALL,
    lives::ALL,
    inheritance::ALL,
    threads::ALL,
    zero_copy::ALL,
];
