// SPDX-License-Identifier: GPL-2.0-only

//! Splits the instructions of a message and of a byte into three parts: those executed in programs,
//! those executed in the kernel on behalf of a program's calls, and those executed in softirqs.
//! Softirqs handle a host's network input and timers, and count as part of no program's call.
//!
//! Treydte (2007, 6.4) calls the work of softirqs hidden overhead and could not measure it. Here,
//! two runs differ only in their number of messages or bytes, and the difference of their counts
//! gives the shares. The total does not come from this difference but from netgauge, because
//! netgauge's median excludes the kernel's occasional other work.

use anyhow::{ensure, Result};

use super::figures::{Figure, Report};
use super::series::{BYTE, MESSAGE, SHARES};
use super::{to_server, UNLIMITED};
use crate::commands::Commands;
use crate::profile::{difference, is_kernel, Counts, Tracer};

/// Numbers of round trips in the first and in the second run.
const ROUND_TRIPS: [u64; 2] = [50, 650];
/// Numbers of bytes in the first and in the second transfer.
const BYTES: [u64; 2] = [512 << 10, 3584 << 10];
/// Factor on [`BYTES`] for a transport that passes many packets at a time through the kernel. With
/// this factor, a transfer takes about as many instructions as with other transports.
pub const MANY_AT_A_TIME: u64 = 8;

/// Shares of all instructions, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// The share of the instructions that are executed in the kernel.
    pub kernel: f64,
    /// The share of the instructions that are executed in the kernel's softirqs.
    pub softirq: f64,
}

/// Measures the shares of half a round trip and of a byte of a stream, and returns each with the
/// name of its figure. The streams transfer [`BYTES`] multiplied by `times`.
///
/// # Errors
/// If the guest ends, or the transport fails.
pub fn measure(
    guest: &mut Commands,
    tracer: &mut Tracer,
    transport: &str,
    times: u64,
) -> Result<[(&'static str, Shares); 2]> {
    let mut counted = |pattern: &str| -> Result<Counts> {
        let arguments = format!(
            "-m {transport} {} {UNLIMITED} {pattern} --warmup 0",
            to_server()
        );
        let (counts, report): (_, Report) = tracer.count(guest, &arguments)?;
        for run in &report.runs {
            let error = run.error.as_deref();
            ensure!(error.is_none(), "{transport}, {}: {error:?}", run.pattern);
        }
        Ok(counts)
    };
    let [few, many] = ROUND_TRIPS.map(|count| format!("-x one-one -s 1 -c {count}"));
    let of_message = Shares::of(&counted(&few)?, &counted(&many)?)?;
    let [little, much] = BYTES.map(|bytes| format!("-x bulk -s {} -c 1", times * bytes));
    let of_byte = Shares::of(&counted(&little)?, &counted(&much)?)?;
    Ok([(MESSAGE, of_message), (BYTE, of_byte)])
}

impl Shares {
    /// Subtracts the counts `short` from the counts `long`, and returns the shares of the
    /// instructions that remain.
    fn of(short: &Counts, long: &Counts) -> Result<Self> {
        let (mut all, mut kernel, mut softirq) = (0.0, 0.0, 0.0);
        for (place, more) in difference(short, long) {
            all += more;
            if is_kernel(place.address) {
                kernel += more;
                if place.softirq {
                    softirq += more;
                }
            }
        }
        ensure!(
            0.0 <= softirq && softirq <= kernel && kernel <= all && all > 0.0,
            "counted {softirq} instructions in softirqs, {kernel} in the kernel and {all} in all, which cannot be"
        );
        Ok(Self {
            kernel: kernel / all,
            softirq: softirq / all,
        })
    }

    /// Multiplies the figure `of` by each share. The products are figures too, with budgets of
    /// their own.
    pub fn figures(&self, of: &Figure) -> [Figure; 2] {
        let [kernel, softirq] = SHARES;
        [(kernel, self.kernel), (softirq, self.softirq)].map(|(part, share)| Figure {
            transport: of.transport.clone(),
            name: format!("{part}{}", of.name),
            count: of.count.map(|count| count * share),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Place;

    #[test]
    fn extra_instructions_of_the_longer_run_are_shared_by_context() {
        let at = |address, softirq| Place { address, softirq };
        let kernel = 0xffff_ffff_8100_0000;
        let short = Counts::from([(at(1, false), 10), (at(kernel, false), 100)]);
        let long = Counts::from([
            (at(1, false), 50),
            (at(kernel, false), 130),
            (at(kernel, true), 10),
        ]);
        let shares = Shares::of(&short, &long).unwrap();
        let expected = Shares {
            kernel: 0.5,
            softirq: 0.125,
        };
        assert_eq!(shares, expected);
        let of = Figure {
            transport: "esp".to_owned(),
            name: "byte".to_owned(),
            count: Some(8.0),
        };
        let [in_kernel, in_softirqs] = shares.figures(&of);
        assert_eq!(
            (in_kernel.name.as_str(), in_kernel.count),
            ("kernel-byte", Some(4.0))
        );
        assert_eq!(
            (in_softirqs.name.as_str(), in_softirqs.count),
            ("softirq-byte", Some(1.0))
        );
        assert!(Shares::of(&long, &short).is_err());
    }
}
