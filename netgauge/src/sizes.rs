// SPDX-License-Identifier: MIT OR Apache-2.0

//! Parses the message sizes of option `-s`, and expands ranges to the number of sizes that option
//! `-g` asks for.

use std::num::NonZeroU32;
use std::str::FromStr;

/// Sizes and ranges of sizes, in bytes: `1-65536`, `64`, `1,64,1K`, `1-1K,1M`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeSpec(Vec<(u64, u64)>);

impl SizeSpec {
    /// Returns the sizes, ascending and without repetition. A range yields `grade` sizes per
    /// doubling. The sizes grow from the lower end of the range by equal factors. The upper end is
    /// always included.
    pub fn expand(&self, grade: NonZeroU32) -> Vec<u64> {
        let mut sizes = Vec::new();
        for &(from, to) in &self.0 {
            let step = |k: u32| {
                let size = from as f64 * (f64::from(k) / f64::from(grade.get())).exp2();
                size.round() as u64
            };
            sizes.extend((0..).map(step).take_while(|&size| size < to));
            sizes.push(to);
        }
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

impl From<&[(u64, u64)]> for SizeSpec {
    /// Makes a specification from ranges, each given by its smallest and its largest size.
    fn from(ranges: &[(u64, u64)]) -> Self {
        Self(ranges.to_vec())
    }
}

impl FromStr for SizeSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_ranges(text, "size", parse_size).map(Self)
    }
}

/// Parses numbers and ranges of numbers, separated by commas. `number` parses one number; error
/// messages call a number `what`.
pub(crate) fn parse_ranges<T: PartialOrd>(
    text: &str,
    what: &str,
    number: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<(T, T)>, String> {
    let range = |item: &str| {
        let (from, to) = item.split_once('-').unwrap_or((item, item));
        let (from, to) = (number(from)?, number(to)?);
        match from > to {
            true => Err(format!(
                "`{item}` goes down: write the smaller {what} first"
            )),
            false => Ok((from, to)),
        }
    };
    text.split(',').map(range).collect()
}

/// Splits `text` into its digits and a factor. A final K, M or G stands for a power of `base`.
/// Without such a letter, the factor is 1.
pub(crate) fn split_unit(text: &str, base: u64) -> (&str, u64) {
    let power = match text.as_bytes().last() {
        Some(b'k' | b'K') => 1,
        Some(b'm' | b'M') => 2,
        Some(b'g' | b'G') => 3,
        _ => return (text, 1),
    };
    (&text[..text.len() - 1], base.pow(power))
}

/// Parses a size in bytes, with K, M or G for powers of 1024.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is not a size: write bytes, as in 1024, 64K or 16M, at least 1");
    let (digits, factor) = split_unit(text, 1 << 10);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    // The limit, 2^40 bytes, is far above the sizes of any run, and small enough for `expand` to
    // compute in `f64` exactly.
    number
        .checked_mul(factor)
        .filter(|size| (1..=1 << 40).contains(size))
        .ok_or_else(wrong)
}

/// Formats a size in the largest unit that keeps it whole: `64 B`, `1 KiB`, `1500 B`.
pub fn human(size: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    UNITS
        .iter()
        .find(|(unit, _)| size >= *unit && size % unit == 0)
        .map_or_else(
            || format!("{size} B"),
            |(unit, name)| format!("{} {name}", size / unit),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str, grade: u32) -> Vec<u64> {
        text.parse::<SizeSpec>()
            .unwrap()
            .expand(NonZeroU32::new(grade).unwrap())
    }

    #[test]
    fn ranges_double_and_hold_both_ends() {
        assert_eq!(expand("1-8", 1), [1, 2, 4, 8]);
        assert_eq!(expand("1-10", 1), [1, 2, 4, 8, 10]);
        assert_eq!(expand("3-3", 1), [3]);
        assert_eq!(expand("1-65536", 1).len(), 17);
        assert_eq!(expand("100-1K", 1), [100, 200, 400, 800, 1024]);
    }

    #[test]
    fn the_grade_is_the_number_of_sizes_per_doubling() {
        assert_eq!(expand("64-256", 2), [64, 91, 128, 181, 256]);
        assert_eq!(expand("16-32", 4), [16, 19, 23, 27, 32]);
        // If several steps round to the same size, they yield that size once.
        assert_eq!(expand("1-4", 4), [1, 2, 3, 4]);
        assert_eq!(expand("1-512", 1000), Vec::from_iter(1..=512));
    }

    #[test]
    fn lists_are_sorted_and_free_of_doubles() {
        assert_eq!(expand("64", 1), [64]);
        assert_eq!(expand("1024,1,64,1", 1), [1, 64, 1024]);
        assert_eq!(expand("1-4,2-8,16M", 1), [1, 2, 4, 8, 16 << 20]);
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "", "0", "-", "1-", "-8", "8-1", "x", "1,,2", "+1", "K", "1.5", "0-8", "2048G",
        ] {
            assert!(text.parse::<SizeSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_print_in_whole_units() {
        assert_eq!(
            [1, 1023, 1024, 1500].map(human),
            ["1 B", "1023 B", "1 KiB", "1500 B"]
        );
        assert_eq!(
            [65536, 16 << 20, 1 << 30].map(human),
            ["64 KiB", "16 MiB", "1 GiB"]
        );
    }
}
