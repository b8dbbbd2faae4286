// SPDX-License-Identifier: GPL-2.0-only

//! Reads how much memory the guest uses, from `/proc/meminfo` and `/proc/slabinfo`.

use std::collections::BTreeMap;
use std::io::ErrorKind;

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
/// # Errors
/// If `/proc/meminfo` cannot be read.
pub fn free_memory() -> Result<i64> {
    Ok(kib("MemFree")? << 10)
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
