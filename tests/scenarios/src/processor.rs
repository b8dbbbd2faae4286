//! On which processor the calling thread runs, and those that it starts from then on.

use anyhow::{Context, Result};
use nix::sched::{sched_getcpu, sched_setaffinity, CpuSet};
use nix::unistd::Pid;

/// Moves the thread to `processor`.
pub fn run_on(processor: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(processor)?;
    sched_setaffinity(Pid::from_raw(0), &set).context("sched_setaffinity")
}

/// Keeps the thread where it is.
pub fn stay() -> Result<()> {
    run_on(sched_getcpu()?)
}
