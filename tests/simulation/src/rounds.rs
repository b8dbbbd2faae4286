// SPDX-License-Identifier: GPL-2.0-only

//! Runs a workload of rounds, and computes the results of each round. In a round, every sender
//! sends one message to the receiver.

use esp::Nanos;
use serde::Serialize;

use crate::simulation::{Counts, Simulation};

/// A round that takes longer than this, in nanoseconds, is aborted.
const LONGEST: Nanos = 60_000_000_000;

/// The size of the message that a sender sends in a round.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum Message {
    /// The message has this number of bytes.
    Bytes(u64),
    /// The message has a random number of full packets, between these two numbers.
    Packets(u16, u16),
}

/// The senders' work: rounds in which they send messages on open connections.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Workload {
    /// The message of each sender in a round.
    pub message: Message,
    /// Number of rounds.
    pub rounds: usize,
    /// Each sender starts a random time after the round begins. This is the maximum of that time,
    /// nanoseconds.
    pub stagger: Nanos,
    /// Pause between two rounds, nanoseconds.
    pub rest: Nanos,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            message: Message::Bytes(256 << 10),
            rounds: 5,
            stagger: 0,
            rest: 2_000_000,
        }
    }
}

/// The results of a round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Round {
    /// Whether all messages that the round waits for arrived in full.
    pub complete: bool,
    /// Nanoseconds from the first sender's start to the arrival of the last byte.
    pub duration: Nanos,
    /// Payload received during `duration`, as a share of the port's rate.
    pub goodput: f64,
    /// Jain's fairness index when the first message is complete: 1 if the same part of each
    /// sender's message has arrived.
    pub fairness: f64,
    /// The largest number of bytes in the receiver's port at any time.
    pub peak: u32,
    /// The largest number of acknowledgements that waited in the ACK queue at the same time.
    pub waiting: usize,
    /// Nanoseconds from each sender's start to the arrival of its message's last byte, in the order
    /// of the senders. Incomplete messages are left out.
    #[serde(skip)]
    pub completions: Vec<Nanos>,
    /// The counters of the round.
    #[serde(flatten)]
    pub counts: Counts,
}

/// The message that one sender sends in a round.
struct Part {
    sender: usize,
    start: Nanos,
    /// Number of bytes that the receiver had from this sender when the round began.
    base: u64,
    bytes: u64,
    done: Option<Nanos>,
}

/// Makes all senders send, round by round. A round waits for the messages of the senders that
/// `waited_for` selects.
pub fn run(
    simulation: &mut Simulation,
    workload: &Workload,
    waited_for: impl Fn(usize) -> bool,
) -> Vec<Round> {
    let mut rounds = Vec::new();
    for _ in 0..workload.rounds {
        let begin = rest(simulation, workload.rest);
        let round = one(simulation, workload, begin, &waited_for);
        let complete = round.complete;
        rounds.push(round);
        if !complete {
            break;
        }
    }
    rounds
}

/// Simulates a pause of `time`; returns the time at which it ends.
fn rest(simulation: &mut Simulation, time: Nanos) -> Nanos {
    let until = simulation.now() + time;
    while simulation.next().is_some_and(|at| at <= until) {
        simulation.step();
    }
    until
}

fn one(
    simulation: &mut Simulation,
    workload: &Workload,
    begin: Nanos,
    waited_for: &impl Fn(usize) -> bool,
) -> Round {
    let before = simulation.counts();
    let _ = simulation.take_peaks();
    let mut parts = begin_all(simulation, workload, begin);
    let all = parts.iter().filter(|part| waited_for(part.sender)).count();
    let mut shares = None;
    let mut done = 0;
    while done < all && simulation.next().is_some_and(|at| at < begin + LONGEST) {
        simulation.step();
        let Some(sender) = simulation.take_delivery() else {
            continue;
        };
        let part = &mut parts[sender];
        let received = simulation.received(sender) - part.base;
        if received < part.bytes || part.done.is_some() {
            continue;
        }
        part.done = Some(simulation.now());
        done += usize::from(waited_for(sender));
        if shares.is_none() {
            shares = Some(jain(parts.iter().map(|part| {
                (simulation.received(part.sender) - part.base) as f64 / part.bytes as f64
            })));
        }
    }
    let (peak, waiting) = simulation.take_peaks();
    let duration = simulation.now() - begin;
    let received: u64 = parts
        .iter()
        .map(|part| simulation.received(part.sender) - part.base)
        .sum();
    let port = simulation.setup().rate.bits as f64 / 8e9;
    Round {
        complete: done == all,
        duration,
        goodput: received as f64 / (duration as f64 * port),
        fairness: shares.unwrap_or(0.0),
        peak,
        waiting,
        completions: parts
            .iter()
            .filter_map(|part| Some(part.done? - part.start))
            .collect(),
        counts: simulation.counts().since(&before),
    }
}

/// Starts every sender's message. Senders with the same start time start in a random order.
fn begin_all(simulation: &mut Simulation, workload: &Workload, begin: Nanos) -> Vec<Part> {
    let mss = u64::from(simulation.setup().mss());
    let mut order: Vec<usize> = (0..simulation.setup().senders).collect();
    simulation.rng().shuffle(&mut order);
    let mut parts: Vec<Part> = order
        .into_iter()
        .map(|sender| {
            let bytes = match workload.message {
                Message::Bytes(bytes) => bytes,
                Message::Packets(least, most) => {
                    mss * u64::from(simulation.rng().u16(least..=most))
                }
            };
            let start = begin + simulation.rng().u64(0..=workload.stagger);
            simulation.send_at(start, sender, bytes);
            Part {
                sender,
                start,
                base: simulation.received(sender),
                bytes,
                done: None,
            }
        })
        .collect();
    parts.sort_unstable_by_key(|part| part.sender);
    parts
}

/// Returns Jain's fairness index of shares: 1 if all n shares are equal, 1/n if all but one are 0.
pub fn jain(shares: impl Iterator<Item = f64>) -> f64 {
    let (n, sum, squares) = shares.fold((0.0, 0.0, 0.0), |(n, sum, squares), share| {
        (n + 1.0, sum + share, squares + share * share)
    });
    if squares > 0.0 {
        sum * sum / (n * squares)
    } else {
        1.0
    }
}

/// Statistics over several rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Whether every round was complete.
    pub complete: bool,
    /// Median goodput of the rounds, as a share of the port's rate.
    pub goodput: f64,
    /// The goodput of the round with the least goodput.
    pub worst_goodput: f64,
    /// The fairness of the round with the least fairness.
    pub fairness: f64,
    /// The largest number of bytes in the receiver's port at any time.
    pub peak: u32,
    /// The largest number of acknowledgements that waited in the ACK queue at the same time.
    pub waiting: usize,
    /// Median time from a sender's start to the arrival of its message's last byte, nanoseconds.
    pub completion: Nanos,
    /// The 99th percentile of the time from a sender's start to the arrival of its message's last
    /// byte, in nanoseconds.
    pub completion_99: Nanos,
    /// Longest time from a sender's start to the arrival of its message's last byte, nanoseconds.
    pub completion_worst: Nanos,
    /// The counters of all rounds.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Computes the statistics of `rounds`, which must not be empty.
pub fn sum_up(rounds: &[Round], counts: Counts) -> Summary {
    let mut goodput: Vec<f64> = rounds.iter().map(|round| round.goodput).collect();
    goodput.sort_by(f64::total_cmp);
    let mut completions: Vec<Nanos> = rounds
        .iter()
        .flat_map(|round| round.completions.iter().copied())
        .collect();
    completions.sort_unstable();
    Summary {
        complete: rounds.iter().all(|round| round.complete),
        goodput: percentile(&goodput, 50).unwrap_or(0.0),
        worst_goodput: goodput.first().copied().unwrap_or(0.0),
        fairness: rounds
            .iter()
            .map(|round| round.fairness)
            .fold(f64::INFINITY, f64::min),
        peak: rounds.iter().map(|round| round.peak).max().unwrap_or(0),
        waiting: rounds.iter().map(|round| round.waiting).max().unwrap_or(0),
        completion: percentile(&completions, 50).unwrap_or(0),
        completion_99: percentile(&completions, 99).unwrap_or(0),
        completion_worst: completions.last().copied().unwrap_or(0),
        counts,
    }
}

/// Returns the nearest-rank percentile of sorted values.
pub(crate) fn percentile<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// Opens connections, makes all senders send, and computes the statistics.
pub fn measure(setup: crate::simulation::Setup, workload: &Workload) -> Summary {
    let mut simulation = Simulation::new(setup);
    let before = simulation.counts();
    let rounds = run(&mut simulation, workload, |_| true);
    let counts = simulation.counts().since(&before);
    sum_up(&rounds, counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_jains_index() {
        assert_eq!(jain([3.0, 3.0, 3.0].into_iter()), 1.0);
        assert_eq!(jain([1.0, 0.0, 0.0, 0.0].into_iter()), 0.25);
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let values: Vec<u32> = (1..=200).collect();
        assert_eq!(percentile(&values, 50), Some(100));
        assert_eq!(percentile(&values, 99), Some(198));
        assert_eq!(percentile(&[7], 99), Some(7));
        assert_eq!(percentile::<u32>(&[], 50), None);
    }
}
