// SPDX-License-Identifier: MIT OR Apache-2.0

//! The figures of rounds: the goodput, the goodput's share of the link's rate, and the fairness.

use serde::{Deserialize, Serialize};

use super::mesh::MeshRound;
use crate::summary::jain;

/// The figures of one round of a server and its clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// The duration of the round by the server's clock, nanoseconds.
    pub ns: u64,
    /// Jain's index of fairness. If the clients send, it compares how many bytes had arrived from
    /// each client when the message of the fastest client was complete. If the clients receive, it
    /// compares the times that the clients took.
    pub fairness: f64,
}

impl Round {
    /// Returns the figures of a round in which the clients send. The round ends with the last byte
    /// of the last client.
    pub(super) fn of_senders(round: &MeshRound) -> Self {
        Self {
            ns: round.received_ns[0],
            fairness: round.fairness.unwrap_or_default(),
        }
    }

    /// Returns the figures of a round in which the clients receive. The round ends with the report
    /// of the last client.
    pub(super) fn of_receivers(round: &MeshRound) -> Self {
        Self {
            ns: round.ns,
            fairness: jain(&round.received_ns[1..]),
        }
    }
}

/// The minimum, the arithmetic mean, the median and the maximum of some values. If the number of
/// values is even, the median is the mean of the middle two.
struct Spread {
    least: f64,
    mean: f64,
    median: f64,
    greatest: f64,
}

impl Spread {
    /// Summarises values. Returns `None` if there are no values.
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let (upper, lower) = (values.len() / 2, values.len().saturating_sub(1) / 2);
        Some(Self {
            least: *values.first()?,
            mean: values.iter().sum::<f64>() / values.len() as f64,
            median: (values[lower] + values[upper]) / 2.0,
            greatest: *values.last()?,
        })
    }
}

/// Returns the rate at which `bytes` were sent in `ns` nanoseconds, bit/s.
pub fn bit_per_s(bytes: u64, ns: u64) -> f64 {
    bytes as f64 * 8e9 / ns.max(1) as f64
}

/// A summary of goodput rates, bit/s. Each rate is either the rate of a round, which counts the
/// payload of all clients, or the rate of a single host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goodput {
    /// The lowest rate, bit/s.
    pub worst: u64,
    /// The arithmetic mean, bit/s. `None` if the rates are rates of rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<u64>,
    /// The median, bit/s. If the number of rates is even, the median is the mean of the middle two.
    pub median: u64,
    /// The highest rate, bit/s.
    pub best: u64,
}

impl Goodput {
    /// Summarises rates of rounds, bit/s. Returns `None` if there are no rates.
    pub fn of(rates: Vec<f64>) -> Option<Self> {
        let average = None;
        Self::of_hosts(rates).map(|rates| Self { average, ..rates })
    }

    /// Summarises rates of hosts, bit/s. Returns `None` if there are no rates.
    pub fn of_hosts(rates: Vec<f64>) -> Option<Self> {
        let spread = Spread::of(rates)?;
        Some(Self {
            worst: spread.least.round() as u64,
            average: Some(spread.mean.round() as u64),
            median: spread.median.round() as u64,
            best: spread.greatest.round() as u64,
        })
    }

    /// Returns the mean if there is one, else the median, bit/s.
    pub fn usual(&self) -> u64 {
        self.average.unwrap_or(self.median)
    }

    /// Returns the goodput as shares of `rate` bit/s. If there is a mean, returns only its share,
    /// otherwise the shares of the worst, the median and the best rate.
    pub fn share(&self, rate: u64) -> Share {
        let of_rate = |goodput: u64| goodput as f64 / rate as f64;
        match self.average {
            Some(average) => Share::Average(of_rate(average)),
            None => Share::OfRounds {
                worst: of_rate(self.worst),
                median: of_rate(self.median),
                best: of_rate(self.best),
            },
        }
    }
}

/// Goodput as a share of the link's rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Share {
    /// The shares that summarise the rates of rounds.
    OfRounds {
        /// The slowest round's share.
        worst: f64,
        /// The median share.
        median: f64,
        /// The fastest round's share.
        best: f64,
    },
    /// The share of the average rate of single hosts.
    Average(f64),
}

impl Share {
    /// Returns the slowest round's share; `None` if the rates are rates of single hosts.
    pub fn worst(&self) -> Option<f64> {
        match self {
            Self::OfRounds { worst, .. } => Some(*worst),
            Self::Average(_) => None,
        }
    }

    /// Returns the median share of the rounds; `None` if the rates are rates of single hosts.
    pub fn median(&self) -> Option<f64> {
        match self {
            Self::OfRounds { median, .. } => Some(*median),
            Self::Average(_) => None,
        }
    }

    /// Returns the fastest round's share; `None` if the rates are rates of single hosts.
    pub fn best(&self) -> Option<f64> {
        match self {
            Self::OfRounds { best, .. } => Some(*best),
            Self::Average(_) => None,
        }
    }

    /// Returns the share of the hosts' average rate; `None` if the rates are rates of rounds.
    pub fn average(&self) -> Option<f64> {
        match self {
            Self::OfRounds { .. } => None,
            Self::Average(share) => Some(*share),
        }
    }
}

/// Jain's index of fairness, summarised over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fairness {
    /// The least fair round's index.
    pub worst: f64,
    /// The median. If the number of rounds is even, the median is the mean of the middle two.
    pub median: f64,
}

impl Fairness {
    /// Summarises the rounds' indices. Returns `None` if there are no rounds.
    pub fn of(indices: Vec<f64>) -> Option<Self> {
        let spread = Spread::of(indices)?;
        Some(Self {
            worst: spread.least,
            median: spread.median,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-12
    }

    #[test]
    fn goodput_is_payload_by_time() {
        // 1000 bytes are 8000 bits. In 1, 8 and 4 us, the rates are 8, 1 and 2 Gbit/s.
        let three = [1000, 8000, 4000].map(|ns| bit_per_s(1000, ns));
        let goodput = Goodput::of(three.to_vec()).unwrap();
        let expected = Goodput {
            worst: 1_000_000_000,
            average: None,
            median: 2_000_000_000,
            best: 8_000_000_000,
        };
        assert_eq!(goodput, expected);
        let share = goodput.share(4_000_000_000);
        let Share::OfRounds {
            worst,
            median,
            best,
        } = share
        else {
            panic!("{share:?}");
        };
        assert!(close(worst, 0.25) && close(median, 0.5) && close(best, 2.0));

        let even = Goodput::of(three[..2].to_vec()).unwrap();
        assert_eq!(even.median, 4_500_000_000);
        assert_eq!(Goodput::of(Vec::new()), None);
    }

    #[test]
    fn rates_of_hosts_have_an_average_and_a_median() {
        let rate = Goodput::of_hosts(vec![4.0, 1.0, 10.0, 1.0]).unwrap();
        let expected = Goodput {
            worst: 1,
            average: Some(4),
            median: 3,
            best: 10,
        };
        assert_eq!(rate, expected);
        assert_eq!(Goodput::of_hosts(Vec::new()), None);
    }

    #[test]
    fn fairness_is_summed_up_by_its_worst_and_its_middle() {
        let fairness = Fairness::of(vec![1.0, 0.5, 0.75]).unwrap();
        assert!(close(fairness.worst, 0.5) && close(fairness.median, 0.75));
        let fairness = Fairness::of(vec![1.0, 0.5]).unwrap();
        assert!(close(fairness.median, 0.75));
        assert_eq!(Fairness::of(Vec::new()), None);
    }
}
