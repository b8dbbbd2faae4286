// SPDX-License-Identifier: GPL-2.0-only

//! Checks that the guest's memory use fluctuates, but does not grow.

use guest::kernel_log::finds_leaks;
use guest::meminfo::kib;
use guest::prelude::*;
use serde::Serialize;

/// The tolerance for memory, in KiB. From the third quarter of a run to its last quarter, the
/// median of available memory may fall by this much, and the median of slab memory may grow by this
/// much. Leaked sockets are found by other checks, so the bound need not depend on the number of
/// connections.
const BOUND: i64 = 8 << 10;

/// The tolerance for the change over the whole run, in KiB. It includes threads, stacks and other
/// memory that the guest keeps after its first use.
const BOUND_OVER_ALL: i64 = 32 << 10;

/// The number of samples below which no trend is computed.
const ENOUGH: usize = 200;

/// The guest's memory, as `/proc/meminfo` shows it, in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// `MemAvailable`, KiB.
    pub available: i64,
    /// `Slab`, KiB.
    pub slab: i64,
}

impl Memory {
    /// Reads the present values.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn now() -> Result<Self> {
        Ok(Self {
            available: kib("MemAvailable")?,
            slab: kib("Slab")?,
        })
    }

    /// Returns the changes since `before`.
    fn since(self, before: Self) -> Self {
        Self {
            available: self.available - before.available,
            slab: self.slab - before.slab,
        }
    }

    fn judge(self, before: Self, bound: i64, when: &str) -> Result<String> {
        let Self { available, slab } = self.since(before);
        let text = format!("MemAvailable {available:+} KiB, Slab {slab:+} KiB {when}");
        ensure!(
            available >= -bound && slab <= bound,
            "{text}; {bound} KiB are the bound"
        );
        Ok(format!("{text} (bound {bound})"))
    }
}

/// Samples of the memory at equal intervals.
#[derive(Debug)]
pub struct Samples {
    before: Memory,
    all: Vec<Memory>,
}

impl Samples {
    /// Makes an empty series, and keeps the present values for comparison.
    ///
    /// # Errors
    /// If the memory cannot be read.
    pub fn new() -> Result<Self> {
        Ok(Self {
            before: Memory::now()?,
            all: Vec::new(),
        })
    }

    /// Takes a sample.
    ///
    /// # Errors
    /// If the memory cannot be read.
    pub fn take(&mut self) -> Result<()> {
        self.all.push(Memory::now()?);
        Ok(())
    }

    /// Returns the number of samples.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Checks that the memory use is as before, and returns a summary. All sockets must be closed.
    ///
    /// # Errors
    /// If it has grown.
    pub fn judge(&self) -> Result<String> {
        let over_all = Memory::now()?.judge(
            self.before,
            BOUND_OVER_ALL + quarantine()?,
            "from before the traffic to after it",
        )?;
        Ok(match self.trend()? {
            Some(trend) => format!("{over_all}; {trend}"),
            None => over_all,
        })
    }

    fn trend(&self) -> Result<Option<String>> {
        if self.all.len() < ENOUGH {
            return Ok(None);
        }
        let quarter = self.all.len() / 4;
        let [third, last] = [
            &self.all[2 * quarter..3 * quarter],
            &self.all[3 * quarter..],
        ]
        .map(|samples| Memory {
            available: median(samples.iter().map(|sample| sample.available)),
            slab: median(samples.iter().map(|sample| sample.slab)),
        });
        last.judge(
            third,
            BOUND,
            "from the third quarter's median to the last's",
        )
        .map(Some)
    }
}

/// Returns the amount of freed memory that a debug kernel may keep, in KiB. KASAN's quarantine
/// takes a 32nd of the memory; the metadata of KASAN and kmemleak may take the same amount again.
fn quarantine() -> Result<i64> {
    Ok(match finds_leaks() {
        true => kib("MemTotal")? / 16,
        false => 0,
    })
}

fn median(values: impl Iterator<Item = i64>) -> i64 {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(slab: impl Fn(i64) -> i64) -> Samples {
        let sample = |index| Memory {
            available: 500_000 - slab(index),
            slab: slab(index),
        };
        Samples {
            before: sample(0),
            all: (0..400).map(sample).collect(),
        }
    }

    #[test]
    fn waves_are_no_leak_and_steady_growth_is() {
        assert!(samples(|index| 20_000 * (index % 7)).trend().is_ok());
        // Memory that is allocated once and kept is not a leak.
        assert!(samples(|index| 90_000 * i64::from(index > 50))
            .trend()
            .is_ok());
        let leak = samples(|index| 100 * index).trend().unwrap_err();
        assert!(leak.to_string().contains("Slab +10000 KiB"), "{leak}");
        assert!(samples(|index| 40 * index).trend().unwrap().is_some());
    }
}
