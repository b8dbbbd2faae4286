// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is said about a series of measured times.

use serde::{Deserialize, Serialize};

/// A series of times in nanoseconds, in four numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Least.
    pub min: u64,
    /// Arithmetic mean, rounded down.
    pub avg: u64,
    /// Middle one; of an even number, the mean of the two middle ones, rounded down.
    pub median: u64,
    /// Greatest.
    pub max: u64,
}

impl Summary {
    /// Sums the samples up; `None` if there are none.
    pub fn of(mut samples: Vec<u64>) -> Option<Self> {
        samples.sort_unstable();
        let (&min, &max) = (samples.first()?, samples.last()?);
        let middle = samples.len() / 2;
        let median = if samples.len() % 2 == 1 {
            samples[middle]
        } else {
            midpoint(samples[middle - 1], samples[middle])
        };
        let sum: u128 = samples.iter().copied().map(u128::from).sum();
        // A mean lies between its samples, so it fits where they fit.
        let avg = (sum / samples.len() as u128) as u64;
        Some(Self {
            min,
            avg,
            median,
            max,
        })
    }
}

fn midpoint(low: u64, high: u64) -> u64 {
    low + (high - low) / 2
}

/// Megabits (10^6 bits) per second for `bytes` in `nanoseconds`.
pub fn mbit_per_s(bytes: u64, nanoseconds: u64) -> f64 {
    bytes as f64 * 8_000.0 / nanoseconds.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: &[u64]) -> Summary {
        Summary::of(samples.to_vec()).unwrap()
    }

    #[test]
    fn known_values() {
        assert_eq!(
            of(&[7]),
            Summary {
                min: 7,
                avg: 7,
                median: 7,
                max: 7
            }
        );
        assert_eq!(
            of(&[4, 1, 2]),
            Summary {
                min: 1,
                avg: 2,
                median: 2,
                max: 4
            }
        );
        assert_eq!(
            of(&[10, 1, 3, 100]),
            Summary {
                min: 1,
                avg: 28,
                median: 6,
                max: 100
            }
        );
        assert_eq!(Summary::of(Vec::new()), None);
    }

    #[test]
    fn great_values_do_not_overflow() {
        let most = Summary {
            min: u64::MAX,
            avg: u64::MAX,
            median: u64::MAX,
            max: u64::MAX,
        };
        assert_eq!(of(&[u64::MAX; 4]), most);
    }

    #[test]
    fn throughput_is_in_decimal_megabits() {
        // 125 bytes are 1000 bits; in 1 us that is 10^9 bit/s.
        assert!((mbit_per_s(125, 1_000) - 1_000.0).abs() < 1e-9);
        assert!((mbit_per_s(1, 8_000) - 1.0).abs() < 1e-9);
        assert!(mbit_per_s(1, 0).is_finite());
    }
}
