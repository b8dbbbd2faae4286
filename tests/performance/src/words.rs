// SPDX-License-Identifier: GPL-2.0-only

//! Writes sentences that describe and compare numbers.

/// Two numbers are described as equal if their ratio differs from 1 by less than this.
const SAME: f64 = 0.01;

/// Number of bytes in a KiB.
pub const KIB: f64 = 1024.0;
/// Number of bytes in a MiB.
pub const MIB: f64 = KIB * KIB;

/// Formats a number with separators of thousands. Below ten the number has up to three decimals.
pub fn number(value: f64) -> String {
    if value != 0.0 && value.abs() < 10.0 && value.fract() != 0.0 {
        let text = format!("{value:.3}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 && text != "0" {
        text.insert(0, '-');
    }
    text
}

/// Formats a number of bytes.
pub fn size(bytes: f64) -> String {
    let (value, unit) = match bytes {
        bytes if bytes >= MIB => (bytes / MIB, "MiB"),
        bytes if bytes >= KIB => (bytes / KIB, "KiB"),
        bytes => (bytes, "B"),
    };
    format!("{} {unit}", (value * 100.0).round() / 100.0)
}

/// Whether smaller or larger numbers are the better results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Smaller numbers are better, as for costs.
    Less,
    /// Larger numbers are better, as for gains.
    More,
}

/// Compares `one` with `other`: returns `9 % less than`, `3.2 times` or `as much as`, for instance.
pub fn beside(one: f64, other: f64) -> String {
    let ratio = one / other;
    if (ratio - 1.0).abs() < SAME {
        "as much as".to_owned()
    } else if ratio < 1.0 {
        format!("{:.0} % less than", (1.0 - ratio) * 100.0)
    } else if ratio < 2.0 {
        format!("{:.0} % more than", (ratio - 1.0) * 100.0)
    } else {
        format!("{ratio:.1} times as much as")
    }
}

/// Returns a sentence about the sizes at which `other` is better than `one`. Compares only the
/// sizes that both have.
pub fn ahead(
    one: (&str, &[(f64, f64)]),
    other: (&str, &[(f64, f64)]),
    better: Better,
) -> Option<String> {
    // The factors by which `other` is better, one for each size that both have.
    let mut leads = Vec::new();
    for (x, mine) in one.1 {
        let Some(theirs) = crate::results::at(other.1, *x) else {
            continue;
        };
        let ratio = match better {
            Better::Less => mine / theirs,
            Better::More => theirs / mine,
        };
        leads.push((*x, ratio));
    }
    let last = leads.last()?;
    let behind: Vec<_> = leads
        .iter()
        .filter(|(_, ratio)| *ratio > 1.0 + SAME)
        .collect();
    let (one, other) = (one.0, other.0);
    let Some(first) = behind.first() else {
        return Some(format!(
            "{other} is not ahead of {one} at any of these sizes."
        ));
    };
    let most = behind
        .iter()
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map_or(*first, |most| *most);
    let extent = format!("by up to a factor of {:.2} (at {})", most.1, size(most.0));
    let is_end = leads
        .iter()
        .skip_while(|(x, _)| *x < first.0)
        .all(|(_, ratio)| *ratio > 1.0 + SAME);
    Some(if behind.len() == leads.len() {
        format!("{other} is ahead of {one} at every size, {extent}.")
    } else if is_end && first.0 < last.0 {
        format!(
            "From {} on {other} is ahead of {one}, {extent}.",
            size(first.0)
        )
    } else {
        let sizes: Vec<_> = behind.iter().map(|(x, _)| size(*x)).collect();
        format!("{other} is ahead of {one} at {}, {extent}.", list(&sizes))
    })
}

/// Joins words as `a, b and c`.
pub fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_sizes_are_readable() {
        let cases = [
            (0.0, "0"),
            (0.842, "0.842"),
            (6.5, "6.5"),
            (9.0, "9"),
            (12.34, "12"),
            (999.6, "1,000"),
            (16_450.0, "16,450"),
            (1_234_567.0, "1,234,567"),
            (-1_234.0, "-1,234"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        let cases = [
            (1.0, "1 B"),
            (1024.0, "1 KiB"),
            (65536.0, "64 KiB"),
            (1_048_576.0, "1 MiB"),
            (1536.0, "1.5 KiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn comparisons_say_what_holds() {
        assert_eq!(beside(68.0, 100.0), "32 % less than");
        assert_eq!(beside(100.4, 100.0), "as much as");
        assert_eq!(beside(130.0, 100.0), "30 % more than");
        assert_eq!(beside(763.0, 100.0), "7.6 times as much as");
    }

    #[test]
    fn who_is_ahead_is_told_by_sizes() {
        let one = [(1.0, 10.0), (2.0, 10.0), (4.0, 10.0)];
        let told = |other: [f64; 3], better| {
            let other: Vec<_> = one.iter().map(|p| p.0).zip(other).collect();
            ahead(("A", &one), ("B", &other), better).unwrap()
        };
        let less = Better::Less;
        assert_eq!(
            told([10.0, 12.0, 13.0], less),
            "B is not ahead of A at any of these sizes."
        );
        assert_eq!(
            told([5.0, 8.0, 9.0], less),
            "B is ahead of A at every size, by up to a factor of 2.00 (at 1 B)."
        );
        assert_eq!(
            told([11.0, 8.0, 5.0], less),
            "From 2 B on B is ahead of A, by up to a factor of 2.00 (at 4 B)."
        );
        assert_eq!(
            told([5.0, 12.0, 8.0], less),
            "B is ahead of A at 1 B and 4 B, by up to a factor of 2.00 (at 1 B)."
        );
        assert_eq!(
            told([10.0, 12.0, 20.0], Better::More),
            "From 2 B on B is ahead of A, by up to a factor of 2.00 (at 4 B)."
        );
        assert_eq!(ahead(("A", &one), ("B", &[]), less), None);
    }
}
