// SPDX-License-Identifier: GPL-2.0-only

//! Pins the calling thread, and the threads that it starts later, to a processor, or switches the
//! other processors off. Also counts the frames that each processor receives.

use std::path::Path;

use nix::sched::{sched_getcpu, sched_setaffinity, CpuSet};
use nix::unistd::Pid;

use crate::prelude::*;
use crate::setting::Setting;

/// Moves the thread to `processor`.
pub fn run_on(processor: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(processor)?;
    sched_setaffinity(Pid::from_raw(0), &set).context("sched_setaffinity")
}

/// Pins the thread to its current processor.
pub fn stay() -> Result<()> {
    run_on(sched_getcpu()?)
}

/// Switches off all processors but the first, until the value is dropped. Frames that different
/// processors handle can overtake each other: a tunnel, for instance, has a queue of received
/// frames on each processor. Pinning a thread does not prevent this, because timers may expire, and
/// send frames, on other processors.
///
/// # Errors
/// If a processor cannot be switched off.
pub fn alone() -> Result<Vec<Setting>> {
    (1..)
        .map(|number| format!("/sys/devices/system/cpu/cpu{number}/online"))
        .take_while(|switch| Path::new(switch).exists())
        .map(|switch| Setting::set(switch, 0))
        .collect()
}

/// Returns whether softirqs run in tasks, as in a kernel with PREEMPT_RT. A thread that such a task
/// wakes may preempt the task on the same processor.
pub fn has_softirq_tasks() -> Result<bool> {
    let version = fs::read_to_string("/proc/version").context("/proc/version")?;
    Ok(version.contains(" PREEMPT_RT "))
}

/// Returns the number of frames that each processor has received since the guest booted, on all
/// devices.
pub fn taken_in() -> Result<Vec<u64>> {
    let file = "/proc/net/softnet_stat";
    let text = fs::read_to_string(file).context(file)?;
    text.lines()
        .map(|line| {
            let first = line.split_whitespace().next().context(file)?;
            u64::from_str_radix(first, 16).context(file)
        })
        .collect()
}
