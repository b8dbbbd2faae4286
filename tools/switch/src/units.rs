// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rates, sizes and shares, parsed from the notation of command lines.

use std::fmt;
use std::str::FromStr;

use anyhow::{bail, ensure, Context, Result};
use serde::{Deserialize, Serialize};

/// A rate in bits per second. It is written as for `tc`, with powers of 1000: `200mbit`, `2.5gbit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub u64);

/// A number of bytes; `k` and `m` are powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Size(pub u32);

/// A share in percent, written with or without the sign `%`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Percent(pub f64);

const RATES: [(&str, u64); 4] = [
    ("gbit", 1_000_000_000),
    ("mbit", 1_000_000),
    ("kbit", 1_000),
    ("bit", 1),
];

const SIZES: [(&str, u32); 3] = [("m", 1 << 20), ("k", 1 << 10), ("", 1)];

/// Returns the number before the unit at the end of `text`, and the unit's factor. The units are
/// tried in order, so `gbit` must come before `bit`.
fn split<'a, T: Copy>(text: &'a str, units: &[(&str, T)]) -> Option<(&'a str, T)> {
    units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))
}

impl FromStr for Rate {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        let hint = "a rate is a number and one of bit, kbit, mbit, gbit: 200mbit";
        let (number, unit) = split(&lower, &RATES).context(hint)?;
        let number: f64 = number.parse().context(hint)?;
        let bits = number * unit as f64;
        // At lower rates, a frame takes more than a second. At higher rates, a frame takes less
        // than the resolution of the kernel's timers.
        ensure!(
            (12_000.0..=100e9).contains(&bits),
            "a port's rate is between 12kbit and 100gbit"
        );
        Ok(Self(bits as u64))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match RATES.iter().find(|(_, factor)| self.0 % factor == 0) {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 / factor),
            None => write!(f, "{}bit", self.0),
        }
    }
}

impl FromStr for Size {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        let hint = "a size is a number of bytes, or one followed by k or m: 128k";
        let (number, unit) = split(&lower, &SIZES).context(hint)?;
        let number: u32 = number.parse().context(hint)?;
        let Some(bytes) = number.checked_mul(unit) else {
            bail!("a size is less than 4096m");
        };
        Ok(Self(bytes))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SIZES
            .iter()
            .find(|(_, factor)| self.0 != 0 && self.0 % factor == 0)
        {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 / factor),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Percent {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = text.strip_suffix('%').unwrap_or(text);
        let percent: f64 = number
            .trim()
            .parse()
            .context("a share is a number of percent: 0.05%")?;
        ensure!(
            (0.0..=100.0).contains(&percent),
            "a share is between 0% and 100%"
        );
        Ok(Self(percent))
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_powers_of_a_thousand() {
        for (text, bits, printed) in [
            ("200mbit", 200_000_000, "200mbit"),
            ("2.5Gbit", 2_500_000_000, "2500mbit"),
            ("64kbit", 64_000, "64kbit"),
            ("123456bit", 123_456, "123456bit"),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate, Rate(bits));
            assert_eq!(rate.to_string(), printed);
        }
        for wrong in [
            "200", "mbit", "200mb", "0mbit", "1bit", "-5mbit", "1e9gbit", "nanbit",
        ] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_powers_of_two() {
        for (text, bytes, printed) in [
            ("128k", 131_072, "128k"),
            ("131072", 131_072, "128k"),
            ("1M", 1 << 20, "1m"),
            ("1500", 1500, "1500"),
            ("0", 0, "0"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!(size, Size(bytes));
            assert_eq!(size.to_string(), printed);
        }
        for wrong in ["", "k", "128kb", "-1", "1.5k", "4096m"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_are_percent() {
        assert_eq!("0.05%".parse::<Percent>().unwrap(), Percent(0.05));
        assert_eq!("0".parse::<Percent>().unwrap(), Percent(0.0));
        for wrong in ["", "%", "101", "-1%", "nan"] {
            assert!(wrong.parse::<Percent>().is_err(), "{wrong}");
        }
    }
}
