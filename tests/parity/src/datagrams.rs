// SPDX-License-Identifier: GPL-2.0-only

//! Lists the behaviours of datagram sockets. A behaviour is a test that runs over both UDP and EDP.

mod amounts;
mod calls;
mod dialogue;
mod ending;
mod joined;
mod peek;
mod readiness;
mod threads;
mod waiting;
mod zero_copy;

use crate::Behaviour;

/// All behaviours (tests) of datagram sockets, by theme.
pub const ALL: &[&[Behaviour]] = &[
    dialogue::ALL,
    readiness::ALL,
    waiting::ALL,
    peek::ALL,
    amounts::ALL,
    calls::ALL,
    joined::ALL,
    ending::ALL,
    threads::ALL,
    zero_copy::ALL,
];
