// SPDX-License-Identifier: GPL-2.0-only

//! `/proc/meminfo`: the guest's memory as the kernel reports it.

use crate::prelude::*;

/// Returns the value of the line `name`, KiB.
///
/// # Errors
/// If the file cannot be read or has no such line.
pub fn kib(name: &str) -> Result<i64> {
    let text = fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, rest) = lines
        .find(|(known, _)| *known == name)
        .with_context(|| format!("no {name} in /proc/meminfo"))?;
    let number = rest.split_whitespace().next().unwrap_or_default();
    number.parse().with_context(|| format!("{name}:{rest}"))
}
