// SPDX-License-Identifier: GPL-2.0-only

//! Reads how much memory the guest uses, from `/proc/meminfo`, `/proc/zoneinfo` and
//! `/proc/slabinfo`.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use nix::unistd::{sysconf, SysconfVar};

use crate::prelude::*;

/// Returns the value of the line `name`, in KiB.
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

/// Returns, for the name of each slab cache, the number of bytes that the cache's active objects
/// take.
///
/// # Errors
/// If `/proc/slabinfo` cannot be read.
pub fn slabs() -> Result<BTreeMap<String, i64>> {
    let text = fs::read_to_string("/proc/slabinfo").context("/proc/slabinfo")?;
    let mut slabs = BTreeMap::new();
    for line in text.lines().skip(2) {
        let words: Vec<_> = line.split_whitespace().collect();
        let [name, active, _, size, ..] = words[..] else {
            continue;
        };
        let bytes = active.parse::<i64>()? * size.parse::<i64>()?;
        slabs.insert(name.to_owned(), bytes);
    }
    ensure!(!slabs.is_empty(), "/proc/slabinfo lists nothing");
    Ok(slabs)
}

/// Returns the free memory of the guest, in bytes.
///
/// This includes the pages that each processor keeps for its next allocations. `MemFree` does not,
/// and a processor that allocates much at once fetches up to 2,016 of them in advance.
///
/// # Errors
/// If `/proc/meminfo` or `/proc/zoneinfo` cannot be read.
pub fn free_memory() -> Result<i64> {
    // Reading this file adds the processors' own counts to the total.
    fs::read("/proc/sys/vm/stat_refresh").context("stat_refresh")?;
    let zones = fs::read_to_string("/proc/zoneinfo").context("/proc/zoneinfo")?;
    let kept = zones
        .lines()
        .filter_map(|line| line.trim().strip_prefix("count:"))
        .map(|count| count.trim().parse::<i64>())
        .sum::<Result<i64, _>>()?;
    let page = sysconf(SysconfVar::PAGE_SIZE)?.context("no page size")?;
    Ok((kib("MemFree")? << 10) + kept * page)
}

/// Shrinks a slab cache to the objects in use. A kernel with KASAN keeps freed objects in a
/// quarantine, where they count as in use.
///
/// # Errors
/// If the kernel refuses it.
pub fn give_back(cache: &str) -> Result<()> {
    match fs::write(format!("/sys/kernel/slab/{cache}/shrink"), "1") {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done.with_context(|| format!("shrinking {cache}")),
    }
}
