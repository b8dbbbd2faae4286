// SPDX-License-Identifier: GPL-2.0-only

//! Measures attacks by a host on the same Ethernet: how much each frame costs the attacked host,
//! and how much goodput a stream loses.
//!
//! One guest, whose clock counts instructions, has two namespaces joined by a cable. In the guest,
//! `scenarios --dos` makes the attacks, measures their cost, and compares it with its limits.

use std::time::Duration;

use anyhow::Result;

use crate::commands;
use crate::layout::Layout;
use crate::qemu::Clock;

const DEADLINE: Duration = Duration::from_secs(1800);

/// Prints the table; returns true if every attack stays within its bounds.
///
/// # Errors
/// If something does not build, the guest does not boot, or its kernel reports a fault.
pub fn run(layout: &Layout) -> Result<bool> {
    commands::once(
        layout,
        "dos",
        Clock::Instructions,
        DEADLINE,
        "scenarios --dos",
    )
}
