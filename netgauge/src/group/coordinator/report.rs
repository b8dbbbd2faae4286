// SPDX-License-Identifier: MIT OR Apache-2.0

//! The results of a pattern between more than two hosts. `esp-params` has a [report of its
//! own](super::esp_params::ParamsReport). Programs read both as JSON.

use serde::{Deserialize, Serialize};

use super::figures::{bit_per_s, Fairness, Goodput, Round, Share};
use super::plan::Plan;
use crate::group::net::rpc::RpcFigures;
use crate::report::record::Record;
pub use crate::report::Cast;
use crate::report::{LeftOut, Run};

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// netgauge's version.
    pub netgauge: String,
    /// The pattern's name.
    pub pattern: String,
    /// The participants' names, by index.
    pub participants: Vec<String>,
    /// The seed of the choice of the servers, or of the pairs.
    pub seed: u64,
    /// Rate of the server's link, or of each host's link, bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bit_per_s: Option<u64>,
    /// One run for each transport, congestion control and number of clients, in the order of
    /// measurement.
    pub runs: Vec<GroupRun>,
    /// The transports that the run left out because they do not work here. Only `-m all` leaves
    /// transports out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// The time, the command and the hosts of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
}

/// The results for one transport and, in patterns with clients, for one number of clients.
pub type GroupRun = Run<GroupRow>;

/// The results for messages of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupRow {
    /// The size of a message, bytes.
    pub size: u64,
    /// Number of rounds, pairings or remote calls measured.
    pub rounds: u32,
    /// Number of rounds that failed.
    pub errors: u32,
    /// In patterns with a server: a summary of the rates of rounds, bit/s. Each rate counts the
    /// payload of all clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_bit_per_s: Option<Goodput>,
    /// In patterns without a server: a summary of the rates at which single hosts receive, bit/s.
    /// All-to-all has one rate for each round, and a bisection has one for each pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_bit_per_s: Option<Goodput>,
    /// `goodput_bit_per_s` or `host_bit_per_s` as a share of the link's rate, if this rate was
    /// given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// All-to-all: the average rate at which all hosts together receive, bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bit_per_s: Option<u64>,
    /// Bisection: the average rate of all pairs together in one direction, bit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bisection_bit_per_s: Option<u64>,
    /// Jain's index of fairness. In one-many, it compares how many bytes had arrived from each
    /// client when the message of the fastest client was complete. In other patterns, it compares
    /// the times that the receivers took to receive everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<Fairness>,
    /// In pattern loaded-latency, the times of calls, nanoseconds. In this pattern,
    /// `goodput_bit_per_s` is the goodput of the streams.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub rpc: Option<RpcFigures>,
}

impl GroupRow {
    /// Summarises rounds of `clients` clients, without the first `warmup` rounds.
    pub fn of_clients(
        size: u64,
        clients: usize,
        rounds: &[Round],
        warmup: u32,
        rate: Option<u64>,
    ) -> Self {
        let counted = rounds.get(warmup as usize..).unwrap_or_default();
        let bytes = size * clients as u64;
        let rates = counted.iter().map(|round| bit_per_s(bytes, round.ns));
        Self {
            fairness: Fairness::of(counted.iter().map(|round| round.fairness).collect()),
            ..Self::of_rates(size, rates.collect(), rate)
        }
    }

    /// Summarises rounds by the rates of all clients together, bit/s.
    pub fn of_rates(size: u64, rates: Vec<f64>, rate: Option<u64>) -> Self {
        let rounds = rates.len() as u32;
        let goodput = Goodput::of(rates);
        Self {
            size,
            rounds,
            goodput_bit_per_s: goodput,
            share: goodput.zip(rate).map(|(goodput, rate)| goodput.share(rate)),
            ..Self::default()
        }
    }

    /// Summarises the rates at which single hosts received, bit/s.
    pub fn of_hosts(size: u64, rounds: u32, rates: Vec<f64>, plan: &Plan) -> Self {
        let host = Goodput::of_hosts(rates);
        Self {
            size,
            rounds,
            host_bit_per_s: host,
            share: host.zip(plan.rate).map(|(host, rate)| host.share(rate)),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_does_not_count() {
        let round = |ns| Round { ns, fairness: 1.0 };
        let rounds = [round(1), round(8000), round(16000)];
        let row = GroupRow::of_clients(500, 2, &rounds, 1, Some(2_000_000_000));
        assert_eq!((row.rounds, row.errors), (2, 0));
        let goodput = row.goodput_bit_per_s.unwrap();
        assert_eq!((goodput.worst, goodput.best), (500_000_000, 1_000_000_000));
        assert!(
            matches!(row.share, Some(Share::OfRounds { best: 0.5, .. })),
            "{row:?}"
        );

        let broken = GroupRow::of_clients(500, 2, &rounds[..1], 2, None);
        assert_eq!(broken.rounds, 0);
        assert_eq!((broken.goodput_bit_per_s, broken.share), (None, None));
    }
}
