// SPDX-License-Identifier: GPL-2.0-only

//! Raises the scheduling priority of threads.

use crate::prelude::*;

/// Gives the calling thread real-time priority, so that it runs as soon as it is woken. A thread
/// that stands for the network needs this, because a real network does not wait for a processor.
///
/// # Errors
/// If the kernel refuses.
pub fn first_of_all() -> Result<()> {
    // SAFETY: All-zero bytes are a valid sched_param.
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = 1;
    // SAFETY: The parameter lives across the call; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) })
        .map(drop)
        .context("sched_setscheduler")
}
