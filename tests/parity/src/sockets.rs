// SPDX-License-Identifier: GPL-2.0-only

//! Lists the behaviours of both stream and datagram sockets. A behaviour is a test that runs over
//! two protocols. Each behaviour in this list runs twice: over TCP and ESP, and over UDP and EDP.

mod binding;
mod filters;
mod ioctls;
mod levels;
pub mod names;
mod options;
mod properties;
mod refusals;
mod stamps;
mod times;
mod uring;
pub mod waiting;

use crate::Behaviour;

/// All behaviours (tests) of both stream and datagram sockets, by theme.
pub const ALL: &[&[Behaviour]] = &[
    options::ALL,
    properties::ALL,
    ioctls::ALL,
    names::ALL,
    levels::ALL,
    refusals::ALL,
    binding::ALL,
    filters::ALL,
    times::ALL,
    stamps::ALL,
    uring::ALL,
    waiting::ALL,
];
