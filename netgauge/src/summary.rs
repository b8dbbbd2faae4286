// SPDX-License-Identifier: MIT OR Apache-2.0

//! Computes statistics of measured times, and of other samples.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The rule for outliers (Tukey's fences), as text for users.
pub const OUTLIER_RULE: &str =
    "more than 1.5 interquartile ranges below the first or above the third quartile";

/// The number of units of [`Percent`] in one percent.
const PARTS: u32 = 1000;

const FIRST_QUARTILE: Percent = Percent(25 * PARTS);
const THIRD_QUARTILE: Percent = Percent(75 * PARTS);

/// A share of the samples, above 0 and below 100 percent, in thousandths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Percent(u32);

impl Percent {
    /// Returns a percentile of `sorted` by nearest rank: the smallest sample for which at least
    /// this percentage of the samples are smaller or equal.
    fn of(self, sorted: &[u64]) -> Option<u64> {
        let whole = u128::from(100 * PARTS);
        let rank = (sorted.len() as u128 * u128::from(self.0)).div_ceil(whole);
        sorted
            .get(usize::try_from(rank).ok()?.checked_sub(1)?)
            .copied()
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, parts) = (self.0 / PARTS, self.0 % PARTS);
        let digits = format!("{whole}.{parts:03}");
        f.write_str(digits.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is not a number between 0 and 100 with at most three digits behind the point")
        };
        let (whole, behind) = text.split_once('.').unwrap_or((text, "0"));
        let digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(behind) || whole.len() > 2 || behind.len() > 3 {
            return Err(wrong());
        }
        // `whole` has at most two digits and `behind` at most three, so the number has at most
        // five.
        let parts: u32 = format!("{whole}{behind:0<3}")
            .parse()
            .map_err(|_| wrong())?;
        match parts {
            0 => Err(wrong()),
            parts => Ok(Self(parts)),
        }
    }
}

impl TryFrom<String> for Percent {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Percent> for String {
    fn from(percent: Percent) -> Self {
        percent.to_string()
    }
}

/// A summary of a series of times, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Minimum.
    pub min: u64,
    /// Arithmetic mean, rounded down.
    pub avg: u64,
    /// Median. If the number of samples is even, the median is the mean of the middle two, rounded
    /// down.
    pub median: u64,
    /// Maximum.
    pub max: u64,
    /// Standard deviation of a sample (divided by n - 1), rounded; 0 for a single time.
    #[serde(default)]
    pub stddev: u64,
    /// The percentiles by nearest rank. For each percentage, the value is the smallest time for
    /// which at least this percentage of the times are shorter or equal.
    #[serde(default)]
    pub percentiles: BTreeMap<Percent, u64>,
    /// The number of outliers, by [`OUTLIER_RULE`].
    #[serde(default)]
    pub outliers: u64,
}

impl Summary {
    /// Summarises samples, with the percentiles `percents`. Returns `None` if there are no samples.
    pub fn with(mut samples: Vec<u64>, percents: &[Percent]) -> Option<Self> {
        samples.sort_unstable();
        let (&min, &max) = (samples.first()?, samples.last()?);
        let middle = samples.len() / 2;
        let median = if samples.len() % 2 == 1 {
            samples[middle]
        } else {
            midpoint(samples[middle - 1], samples[middle])
        };
        let sum: u128 = samples.iter().copied().map(u128::from).sum();
        // A mean lies between the smallest and the largest sample, so it fits their type.
        let avg = (sum / samples.len() as u128) as u64;
        let percentile = |percent: &Percent| Some((*percent, percent.of(&samples)?));
        Some(Self {
            min,
            avg,
            median,
            max,
            stddev: stddev(&samples, sum as f64 / samples.len() as f64),
            percentiles: percents.iter().filter_map(percentile).collect(),
            outliers: outliers(&samples)?,
        })
    }
}

fn midpoint(low: u64, high: u64) -> u64 {
    low + (high - low) / 2
}

fn stddev(samples: &[u64], mean: f64) -> u64 {
    let squares: f64 = samples
        .iter()
        .map(|sample| (*sample as f64 - mean).powi(2))
        .sum();
    let freedom = samples.len().saturating_sub(1).max(1);
    (squares / freedom as f64).sqrt().round() as u64
}

fn outliers(sorted: &[u64]) -> Option<u64> {
    let first = i128::from(FIRST_QUARTILE.of(sorted)?);
    let third = i128::from(THIRD_QUARTILE.of(sorted)?);
    let range = third - first;
    // All terms are doubled to be integers, because a fence is 1.5 ranges outside a quartile and
    // may end in .5.
    let inside = 2 * first - 3 * range..=2 * third + 3 * range;
    let outside = |sample: &&u64| !inside.contains(&(2 * i128::from(**sample)));
    Some(sorted.iter().filter(outside).count() as u64)
}

/// Returns the rate of `bytes` bytes in `nanoseconds`, in megabits (10^6 bits) per second.
pub fn mbit_per_s(bytes: u64, nanoseconds: u64) -> f64 {
    bytes as f64 * 8_000.0 / nanoseconds.max(1) as f64
}

/// Returns Jain's fairness index of n amounts. It is 1 if all amounts are equal or all are 0, and
/// 1/n if all amounts but one are 0.
pub fn jain(amounts: &[u64]) -> f64 {
    let sum: f64 = amounts.iter().map(|amount| *amount as f64).sum();
    let squares: f64 = amounts.iter().map(|amount| (*amount as f64).powi(2)).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (amounts.len() as f64 * squares)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the 90th, 95th and 99th percentiles, for tests.
    pub(crate) fn percents() -> [Percent; 3] {
        ["90", "95", "99"].map(percent)
    }

    fn of(samples: &[u64]) -> Summary {
        Summary::with(samples.to_vec(), &percents()).unwrap()
    }

    fn four(summary: &Summary) -> [u64; 4] {
        [summary.min, summary.avg, summary.median, summary.max]
    }

    fn percent(text: &str) -> Percent {
        text.parse().unwrap()
    }

    #[test]
    fn known_values() {
        assert_eq!(four(&of(&[7])), [7, 7, 7, 7]);
        assert_eq!(four(&of(&[4, 1, 2])), [1, 2, 2, 4]);
        assert_eq!(four(&of(&[10, 1, 3, 100])), [1, 28, 6, 100]);
        assert_eq!(Summary::with(Vec::new(), &percents()), None);
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        // The squares of the distances from 5 are 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16 = 32; 32 / 7 =
        // 4.57.
        assert_eq!(of(&[2, 4, 4, 4, 5, 5, 7, 9]).stddev, 2);
        let thousands = [2, 4, 4, 4, 5, 5, 7, 9].map(|sample| sample * 1000);
        assert_eq!(of(&thousands).stddev, 2138);
        assert_eq!(of(&[7]).stddev, 0);
    }

    #[test]
    fn percentiles_are_samples_by_nearest_rank() {
        let hundred: Vec<u64> = (1..=100).rev().collect();
        let chosen = ["0.001", "50", "99.9", "25"].map(percent);
        let summary = Summary::with(hundred, &chosen).unwrap();
        let found: Vec<_> = summary
            .percentiles
            .iter()
            .map(|(percent, time)| (percent.to_string(), *time))
            .collect();
        let expected = [("0.001", 1), ("25", 25), ("50", 50), ("99.9", 100)];
        assert_eq!(
            found,
            expected.map(|(percent, time)| (percent.to_owned(), time))
        );

        assert!(of(&[7]).percentiles.values().all(|time| *time == 7));
    }

    #[test]
    fn outliers_are_beyond_the_fences() {
        // The quartiles are 3 and 9, so the fences are -6 and 18.
        let mut samples: Vec<u64> = (1..=11).collect();
        samples.push(18);
        assert_eq!(of(&samples).outliers, 0);
        samples[11] = 19;
        assert_eq!(of(&samples).outliers, 1);
        // The quartiles are 100 and 101, so the fences are 98.5 and 102.5.
        assert_eq!(of(&[98, 99, 100, 100, 100, 101, 101, 102, 103]).outliers, 2);
        assert_eq!(of(&[7, 7, 7, 7, 8]).outliers, 1);
    }

    #[test]
    fn percents_are_read_as_they_are_written() {
        for text in ["90", "99.9", "99.999", "0.001", "5"] {
            assert_eq!(percent(text).to_string(), text);
        }
        assert_eq!(percent("99.90"), percent("99.9"));
        assert_eq!(percent("09"), percent("9"));
        for text in [
            "", "0", "0.000", "100", "-5", "+5", "x", "9.", ".9", "99.9999", "5%", "1e1",
        ] {
            let error = text.parse::<Percent>().unwrap_err();
            assert!(error.contains("between 0 and 100"), "{text}: {error}");
        }
    }

    #[test]
    fn json_has_the_percents_for_names() {
        let summary = Summary::with(vec![7, 9], &[percent("99.9")]).unwrap();
        let json = serde_json::to_string(&summary).unwrap();
        assert_eq!(
            json,
            r#"{"min":7,"avg":8,"median":8,"max":9,"stddev":1,"percentiles":{"99.9":9},"outliers":0}"#
        );
        assert_eq!(serde_json::from_str::<Summary>(&json).unwrap(), summary);
        // The format of an earlier netgauge can be read as well.
        let early = r#"{"min":7,"avg":8,"median":8,"max":9}"#;
        assert_eq!(four(&serde_json::from_str(early).unwrap()), [7, 8, 8, 9]);
    }

    #[test]
    fn great_values_do_not_overflow() {
        let most = of(&[u64::MAX; 4]);
        assert_eq!(four(&most), [u64::MAX; 4]);
        assert_eq!((most.stddev, most.outliers), (0, 0));
        let wide = of(&[0, 0, u64::MAX, u64::MAX]);
        assert!(wide.stddev > u64::MAX / 2 && wide.outliers == 0, "{wide:?}");
    }

    #[test]
    fn throughput_is_in_decimal_megabits() {
        // 125 bytes are 1000 bits; in 1 us that is 10^9 bit/s.
        assert!((mbit_per_s(125, 1_000) - 1_000.0).abs() < 1e-9);
        assert!((mbit_per_s(1, 8_000) - 1.0).abs() < 1e-9);
        assert!(mbit_per_s(1, 0).is_finite());
    }

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-12
    }

    #[test]
    fn jain_is_one_for_equal_shares_and_one_nth_for_a_monopoly() {
        assert!(close(jain(&[5; 32]), 1.0));
        assert!(close(jain(&[7]), 1.0));
        assert!(close(jain(&[0, 0, 0, 9]), 0.25));
        assert!(close(jain(&[0; 3]), 1.0));
        // If k of n amounts are equal and the others are 0, the index is k/n.
        let half: Vec<u64> = std::iter::repeat_n(0, 8)
            .chain(std::iter::repeat_n(1000, 8))
            .collect();
        assert!(close(jain(&half), 0.5));
        // (1+2+3)^2 / (3 * (1+4+9)) = 36/42, in any unit.
        assert!(close(jain(&[1, 2, 3]), 36.0 / 42.0));
        assert!(close(jain(&[1 << 40, 2 << 40, 3 << 40]), 36.0 / 42.0));
    }
}
