//! Where a message's and a byte's instructions are executed: in programs, in the kernel on behalf of their calls, or in
//! softirqs, where a host takes in what the network brings and runs its timers, and no call of a program sees the time.
//!
//! The last is what Treydte (2007, 6.4) calls hidden overhead and could not measure. Two runs that differ in nothing
//! but the number of messages, or of bytes, are subtracted from each other, as for `make profile`.

use anyhow::{ensure, Result};

use super::figures::{message, Figure, Report, BYTE};
use super::SERVER;
use crate::commands::Commands;
use crate::profile::{difference, is_kernel, Counts, Tracer};

/// Bytes of a message.
const SIZE: u64 = 1;
/// Round trips of the two runs.
const ROUND_TRIPS: [u64; 2] = [20, 120];
/// Bytes of the two transfers.
const BYTES: [u64; 2] = [256 << 10, 1280 << 10];

/// Instructions, of these those in the kernel, of these those in softirqs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// All of them.
    pub all: f64,
    /// In the kernel.
    pub kernel: f64,
    /// In the kernel while it handled softirqs.
    pub softirq: f64,
}

/// What half a round trip and a byte take, each with its name among the figures.
///
/// # Errors
/// When the guest ends, or the transport fails.
pub fn count(
    guest: &mut Commands,
    tracer: &mut Tracer,
    transport: &str,
) -> Result<[(String, Shares); 2]> {
    let mut counted = |pattern: &str| -> Result<Counts> {
        let arguments = format!(
            "-m {transport} --connect {SERVER} --interface veth0 --format json {pattern} --warmup 0"
        );
        let (counts, report): (_, Report) = tracer.count(guest, &arguments)?;
        for run in &report.runs {
            let error = run.error.as_deref();
            ensure!(error.is_none(), "{transport}, {}: {error:?}", run.pattern);
        }
        Ok(counts)
    };
    let [few, many] = ROUND_TRIPS.map(|count| format!("-x one-one -s {SIZE} -c {count}"));
    let halves = 2 * (ROUND_TRIPS[1] - ROUND_TRIPS[0]);
    let of_message = Shares::of(&counted(&few)?, &counted(&many)?, halves);
    let [little, much] = BYTES.map(|bytes| format!("-x bulk -s {bytes} -c 1"));
    let of_byte = Shares::of(&counted(&little)?, &counted(&much)?, BYTES[1] - BYTES[0]);
    Ok([(message(SIZE), of_message), (BYTE.to_owned(), of_byte)])
}

/// The kernel's and the softirqs' part of them, as figures that have budgets.
///
/// # Errors
/// As [`count`].
pub fn measure(guest: &mut Commands, tracer: &mut Tracer, transport: &str) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, shares) in count(guest, tracer, transport)? {
        for (share, count) in [("kernel", shares.kernel), ("softirq", shares.softirq)] {
            figures.push(Figure {
                transport: transport.to_owned(),
                name: format!("{share}-{name}"),
                count: Some(count),
            });
        }
    }
    Ok(figures)
}

impl Shares {
    /// By how much `long` exceeds `short`, divided by the `number` of messages or bytes that it has more.
    fn of(short: &Counts, long: &Counts, number: u64) -> Self {
        let mut shares = Self::default();
        for (place, more) in difference(short, long) {
            let each = more / number as f64;
            shares.all += each;
            if is_kernel(place.address) {
                shares.kernel += each;
                if place.softirq {
                    shares.softirq += each;
                }
            }
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Place;

    #[test]
    fn what_the_longer_run_has_more_is_divided_by_where_it_was_executed() {
        let at = |address, softirq| Place { address, softirq };
        let kernel = 0xffff_ffff_8100_0000;
        let short = Counts::from([(at(1, false), 10), (at(kernel, false), 100)]);
        let long = Counts::from([
            (at(1, false), 50),
            (at(kernel, false), 120),
            (at(kernel, true), 60),
        ]);
        let expected = Shares {
            all: 60.0,
            kernel: 40.0,
            softirq: 30.0,
        };
        assert_eq!(Shares::of(&short, &long, 2), expected);
    }
}
