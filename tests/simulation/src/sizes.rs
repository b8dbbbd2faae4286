// SPDX-License-Identifier: GPL-2.0-only

//! Gives message sizes by published distributions.

use clap::ValueEnum;
use serde::Serialize;

/// Distributions of message sizes that the measurements of Homa used (Montazeri et al., SIGCOMM
/// 2018, figure 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Sizes {
    /// Memcached servers
    W1,
    /// A search application
    W2,
    /// All applications of a data centre
    W3,
    /// A Hadoop cluster
    W4,
    /// Web search, the workload of DCTCP's own measurements
    W5,
}

/// The points of a distribution: a share of the messages, and the bytes that none of these messages
/// exceeds. Between points, the logarithm of the size is interpolated linearly.
type Points = &'static [(f64, u64)];

#[rustfmt::skip]
const W1: Points = &[
    (0.311, 8), (0.418, 11), (0.472, 16), (0.513, 33), (0.548, 50), (0.602, 79), (0.649, 110),
    (0.702, 151), (0.749, 197), (0.801, 264), (0.850, 354), (0.901, 503), (0.950, 804),
    (0.990, 1_876), (0.999, 4_924), (0.9999, 12_188), (0.99999, 26_835), (1.0, 100_000),
];

#[rustfmt::skip]
const W2: Points = &[
    (0.170, 8), (0.244, 40), (0.326, 64), (0.342, 128), (0.464, 256), (0.598, 301), (0.687, 341),
    (0.821, 427), (0.910, 512), (0.958, 1_024), (0.972, 1_463), (0.99935, 65_536),
    (0.99987, 131_072), (0.999975, 262_144), (1.0, 3_529_904),
];

#[rustfmt::skip]
const W3: Points = &[
    (0.065, 8), (0.097, 32), (0.155, 64), (0.352, 128), (0.498, 256), (0.785, 512), (0.863, 1_024),
    (0.909, 2_048), (0.935, 4_096), (0.964, 8_192), (0.985, 16_384), (0.9904, 32_768),
    (0.9933, 65_536), (0.9971, 131_072), (0.9985, 262_144), (0.9995, 524_288), (0.99988, 1_996_529),
    (1.0, 15_158_197),
];

#[rustfmt::skip]
const W4: Points = &[
    (0.015, 217), (0.041, 271), (0.138, 326), (0.203, 376), (0.264, 480), (0.459, 600),
    (0.517, 679), (0.576, 800), (0.610, 1_042), (0.667, 1_664), (0.693, 5_210), (0.708, 7_830),
    (0.721, 31_946), (0.740, 39_973), (0.816, 51_046), (0.872, 81_565), (0.907, 133_013),
    (0.954, 288_520), (0.972, 940_700), (0.987, 2_169_118), (1.0, 10_000_000),
];

#[rustfmt::skip]
const W5: Points = &[
    (0.025, 1_430), (0.150, 8_580), (0.200, 19_110), (0.300, 27_930), (0.400, 48_510),
    (0.530, 77_910), (0.600, 195_510), (0.700, 980_490), (0.800, 1_959_510), (0.900, 4_899_510),
    (0.9025, 10_291_470), (1.0, 29_400_000),
];

impl Sizes {
    fn points(self) -> Points {
        match self {
            Self::W1 => W1,
            Self::W2 => W2,
            Self::W3 => W3,
            Self::W4 => W4,
            Self::W5 => W5,
        }
    }

    /// Returns a quantile: the size in bytes that a share `part` of all messages does not exceed.
    pub fn at(self, part: f64) -> u64 {
        let mut before = (0.0, 1);
        for &(upto, size) in self.points() {
            if part <= upto {
                let along = (part - before.0) / (upto - before.0);
                let (low, high) = ((before.1 as f64).ln(), (size as f64).ln());
                return (low + along * (high - low)).exp().round() as u64;
            }
            before = (upto, size);
        }
        before.1
    }

    /// Returns the mean of `of(size)` over the sizes of all messages.
    pub fn mean(self, of: impl Fn(u64) -> f64) -> f64 {
        const STEPS: u32 = 100_000;
        let parts = (0..STEPS).map(|step| (f64::from(step) + 0.5) / f64::from(STEPS));
        parts.map(|part| of(self.at(part).max(1))).sum::<f64>() / f64::from(STEPS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_published_parts() {
        assert_eq!(Sizes::W5.at(0.3), 27_930);
        assert_eq!(Sizes::W1.at(1.0), 100_000);
        for sizes in [Sizes::W1, Sizes::W2, Sizes::W3, Sizes::W4, Sizes::W5] {
            let sorted = sizes.points().is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1);
            assert!(sorted, "{sizes:?}");
        }
    }
}
