// SPDX-License-Identifier: MIT OR Apache-2.0

//! A switch to try flow control on: a bridge whose ports have a rate and a small buffer, and hosts
//! on it as network namespaces.
//!
//! ```text
//!   namespace h0                       namespace switch                      namespace h1
//!   eth0 ---- netem: rate, loss ---->  p0   br0   p1: tbf, buffer  ------->  eth0
//!        <--- p0: tbf, buffer -------  p0         p1  <-- netem: rate, loss  eth0
//! ```
//!
//! What a host sends meets its own cable first, which carries one frame after the other at the
//! port's rate and may lose some, and then the buffer of the port it leaves the switch by, where
//! frames that find no room are dropped and counted. It uses the programs `ip`, `bridge` and `tc`
//! of iproute2.
//!
//! There is one at a time on a machine. [`up`] makes one that stays until [`down`], [`Temporary`]
//! one that goes with the process that made it.

#![forbid(unsafe_code)]

pub mod counters;
pub mod plan;
mod programs;
mod state;
mod temporary;
pub mod units;

use anyhow::Result;

use counters::Report;
use plan::Settings;
use state::Keeping;
pub use temporary::Temporary;

/// Makes a switch and its hosts.
///
/// # Errors
/// When one is up, a namespace of its names exists, or a program fails; then nothing is left of it.
pub fn up(settings: &Settings) -> Result<()> {
    state::ensure_none_is_up()?;
    programs::ensure_free(&plan::namespaces(settings.hosts))?;
    state::create(settings, Keeping::UntilDown)?;
    build(settings)
}

/// Builds what the state announces already.
fn build(settings: &Settings) -> Result<()> {
    let built = plan::steps(settings)
        .iter()
        .try_for_each(programs::run)
        .and_then(|()| programs::await_carrier(settings.hosts));
    if built.is_err() {
        // Whatever exists by now goes; what is in the way is told by the first error.
        let _ = down();
    }
    built
}

/// What each port sent and dropped, since [`up`] or [`reset`].
///
/// # Errors
/// When no switch is up, or its counters cannot be read.
pub fn drops() -> Result<Report> {
    let state = state::load()?;
    Ok(counters::read(&state.settings)?.since(&state.baseline))
}

/// Counts from zero again.
///
/// # Errors
/// As [`drops`].
pub fn reset() -> Result<()> {
    let mut state = state::load()?;
    state.baseline = counters::read(&state.settings)?.ports;
    state::store(&state)
}

/// Removes the switch and its hosts; false if none is up.
///
/// # Errors
/// When a namespace cannot be removed.
pub fn down() -> Result<bool> {
    let Some(state) = state::load_if_up()? else {
        return Ok(false);
    };
    programs::remove(&plan::namespaces(state.settings.hosts))?;
    state::forget()?;
    Ok(true)
}
