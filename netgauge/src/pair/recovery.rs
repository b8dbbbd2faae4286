// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cost of a loss. The leader sends messages one after the other. After each message, it waits
//! for the follower's answer, which is one byte.
//!
//! No packet follows the last packet of a message, so only a timer can detect the loss of that
//! packet. A small message stands for a short dialogue, a large message for a transfer that may
//! lose its last packet. An exchange that takes much longer than the median is a stall. On a clean
//! path, a stall means that a host was busy; on a lossy path, it means that a packet was
//! retransmitted. A lost datagram is counted, and not repeated.

use std::time::Instant;

use anyhow::{ensure, Result};

use super::answering::{answer_messages, exchange};
use super::{Link, PairPattern, Plan};
use crate::control::Step;
use crate::report::{Measured, Row};

/// A stall takes more than this many times the median time.
const STALL_FACTOR: u64 = 4;
/// A stall must also exceed the median by more than this time, nanoseconds.
const STALL_LEAST: u64 = 1_000_000;
/// The number of successive losses after which the link counts as down. This pattern allows more
/// losses than other patterns, because it measures losses.
const LOST_IN_A_ROW: u32 = 20;

/// The pattern `recovery`, described above.
#[derive(Debug)]
pub(crate) struct Recovery;

impl PairPattern for Recovery {
    fn lead(&self, link: &mut Link<'_>, plan: &Plan, rows: &mut dyn FnMut(Row)) -> Result<()> {
        plan.each_size(rows, |size| lead_size(link, size, plan))
    }

    fn follow(&self, link: &mut Link<'_>, step: &Step) -> Result<()> {
        answer_messages(link, step.rounds, (step.size as usize, 1), 1)
    }
}

fn lead_size(link: &mut Link<'_>, size: u64, plan: &Plan) -> Result<Row> {
    let (times, lost, packets_resent) = exchanges(link, size, plan)?;
    ensure!(
        !times.is_empty(),
        "none of {} messages was answered: the link is too lossy to measure",
        plan.tests
    );
    let exchange_ns = plan.summary(times.clone())?;
    let (stalls, stalled_ns) = stalls(&times, exchange_ns.median);
    let median = exchange_ns.median;
    let measured = Measured::Recovery {
        exchange_ns,
        stalls,
        stalled_ns,
        lost_share: (!link.is_reliable()).then(|| f64::from(lost) / f64::from(plan.tests)),
        packets_resent,
    };
    Ok(plan.row(size, lost, median, measured))
}

/// Returns three values: the exchanges' times in nanoseconds, the number of lost exchanges, and the
/// number of retransmitted packets. The last is `None` if the transport does not count packets.
fn exchanges(link: &mut Link<'_>, size: u64, plan: &Plan) -> Result<(Vec<u64>, u32, Option<u64>)> {
    let rounds = plan.rounds();
    link.begin(Step::of(size, rounds))?;
    let mut message = vec![0; size as usize];
    let mut times = Vec::new();
    let (mut lost, mut lost_in_a_row) = (0, 0);
    let mut before = link.transport.packets()?;
    for round in 0..rounds {
        if round == plan.warmup {
            before = link.transport.packets()?;
        }
        let tag = round as u8;
        message.fill(tag);
        let start = Instant::now();
        match exchange(link.transport, &message, 1, &mut [!tag]) {
            Ok(()) => {
                lost_in_a_row = 0;
                if round >= plan.warmup {
                    times.push(start.elapsed().as_nanos() as u64);
                }
            }
            Err(error) if link.is_loss(&error) => {
                link.check_peer()?;
                lost_in_a_row += 1;
                lost += u32::from(round >= plan.warmup);
                ensure!(
                    lost_in_a_row < LOST_IN_A_ROW,
                    "no answer to {LOST_IN_A_ROW} messages in a row: is the link up on both hosts?"
                );
            }
            Err(error) => return Err(link.explain(error)),
        }
    }
    let after = link.transport.packets()?;
    let resent = before
        .zip(after)
        .map(|(before, after)| after.since(before).resent);
    Ok((times, lost, resent))
}

/// Returns two values: the number of stalls in `times`, and the sum of the times by which the
/// stalls exceed the median, in nanoseconds.
fn stalls(times: &[u64], median: u64) -> (u32, u64) {
    let limit = (median.saturating_mul(STALL_FACTOR)).max(median.saturating_add(STALL_LEAST));
    let stalls = times.iter().filter(|time| **time > limit);
    stalls.fold((0, 0), |(count, sum), time| {
        (count + 1, sum.saturating_add(time - median))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_long_by_the_median_and_by_the_clock() {
        const MS: u64 = 1_000_000;
        assert_eq!(stalls(&[10_000; 9], 10_000), (0, 0));
        // 900 us is 90 times the median, but exceeds it by less than `STALL_LEAST`.
        assert_eq!(stalls(&[10_000, 900_000], 10_000), (0, 0));
        // 130 ms exceeds the median by more than `STALL_LEAST`, but is less than `STALL_FACTOR`
        // times the median.
        assert_eq!(stalls(&[100 * MS, 130 * MS], 100 * MS), (0, 0));
        let times = [10_000, 10_000 + 2 * MS, 10_000 + 40 * MS];
        assert_eq!(stalls(&times, 10_000), (2, 42 * MS));
    }
}
