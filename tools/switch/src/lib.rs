// SPDX-License-Identifier: MIT OR Apache-2.0

//! An emulated switch for experiments with flow control: a bridge whose ports have a rate and a
//! small buffer, and network namespaces as its hosts.
//!
//! ```text
//!   namespace h0                       namespace switch                      namespace h1
//!   eth0 ---- netem: rate, loss ---->  p0   br0   p1: tbf, buffer  ------->  eth0
//!        <--- p0: tbf, buffer -------  p0         p1  <-- netem: rate, loss  eth0
//! ```
//!
//! A frame first passes the link of the host that sends it. The link carries one frame after the
//! other, at the port's rate, and may lose frames. The frame then enters the buffer of the port
//! through which it leaves the switch. A frame that finds no room in this buffer is dropped and
//! counted. The crate runs the programs `ip`, `bridge` and `tc` of iproute2.
//!
//! A machine has one switch at a time. [`up`] makes a switch that stays until [`down`].
//! [`Temporary`] makes a switch that is removed when the process that made it ends.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

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

/// Creates a switch and its hosts.
///
/// # Errors
/// If the settings make no switch, if a switch is up, if a namespace with one of the names exists,
/// or if a program fails. In each case, nothing is left of the new switch.
pub fn up(settings: &Settings) -> Result<()> {
    settings.check()?;
    state::ensure_none_is_up()?;
    programs::ensure_free(&plan::namespaces(settings.hosts))?;
    state::create(settings, Keeping::UntilDown)?;
    build(settings)
}

/// Builds the switch that the state file already describes.
fn build(settings: &Settings) -> Result<()> {
    let built = plan::steps(settings)
        .iter()
        .try_for_each(programs::run)
        .and_then(|()| programs::await_carrier(settings.hosts));
    if built.is_err() {
        // `down` removes the parts that exist. Its error is ignored: the first error is returned.
        let _ = down();
    }
    built
}

/// Returns the numbers of frames that each port sent and dropped since [`up`] or [`reset`].
///
/// # Errors
/// If no switch is up, or its counters cannot be read.
pub fn drops() -> Result<Report> {
    let state = state::load()?;
    Ok(counters::read(&state.settings)?.since(&state.baseline))
}

/// Resets the counters to zero.
///
/// # Errors
/// The errors of [`drops`].
pub fn reset() -> Result<()> {
    let mut state = state::load()?;
    state.baseline = counters::read(&state.settings)?.ports;
    state::store(&state)
}

/// Removes the switch and its hosts. Returns false if no switch is up.
///
/// # Errors
/// If a namespace cannot be removed.
pub fn down() -> Result<bool> {
    let Some(state) = state::load_if_up()? else {
        return Ok(false);
    };
    programs::remove(&plan::namespaces(state.settings.hosts))?;
    state::forget()?;
    Ok(true)
}
