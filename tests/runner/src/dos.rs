// SPDX-License-Identifier: GPL-2.0-only

//! What attacks by whoever is on the same Ethernet cost a host and a stream beside them.
//!
//! One guest whose clock counts instructions, two namespaces joined by a cable; the program that
//! runs the scenarios attacks, measures and judges.

use std::time::Duration;

use anyhow::Result;

use crate::commands;
use crate::layout::Layout;
use crate::qemu::Clock;

const DEADLINE: Duration = Duration::from_secs(1800);

/// Prints the table; true when every attack stays within its bounds.
///
/// # Errors
/// When something does not build, the guest does not boot, or its kernel reports a fault.
pub fn run(layout: &Layout) -> Result<bool> {
    commands::once(
        layout,
        "dos",
        Clock::Instructions,
        DEADLINE,
        "scenarios --dos",
    )
}
