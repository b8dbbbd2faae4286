// SPDX-License-Identifier: GPL-2.0-only

//! Who gets a processor first.

use crate::prelude::*;

/// Gives the calling thread the processor whenever it wants it, as a network has it.
///
/// # Errors
/// When the kernel refuses.
pub fn first_of_all() -> Result<()> {
    // SAFETY: all-zero is a valid sched_param, which is plain data.
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = 1;
    // SAFETY: the parameter lives across the call; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) })
        .map(drop)
        .context("sched_setscheduler")
}
