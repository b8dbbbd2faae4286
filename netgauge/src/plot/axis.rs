// SPDX-License-Identifier: MIT OR Apache-2.0

//! The axes of charts, which are logarithmic, or linear from zero: their ranges, ticks and labels.

use crate::sizes::human;

/// The unit of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes. If there are many values, the ticks are powers of two.
    Bytes,
    /// Counts, such as a number of clients. If there are many values, the ticks are powers of two.
    Count,
    /// Other numbers. The ticks are multiples of powers of ten.
    Number,
}

/// How positions on an axis depend on the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Positions depend on the logarithms of the values. So two values whose ratio is 2 are the
    /// same distance apart anywhere on the axis.
    Logarithmic,
    /// Positions are proportional to the values, because the axis is linear and begins at 0. So a
    /// position shows how large a value is in relation to the greatest value.
    FromZero,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The axis's label.
    pub(super) label: String,
    /// How positions on the axis depend on the values.
    pub(super) scale: Scale,
    unit: Unit,
    low: f64,
    high: f64,
    values: Vec<f64>,
}

/// The largest number of ticks on an axis.
const MOST: usize = 9;

impl Axis {
    /// Returns an axis from 0 to a little above the greatest of `values`. The drawing library
    /// chooses the ticks.
    pub fn from_zero(label: &str, values: impl Iterator<Item = f64>) -> Self {
        let most = values.fold(0.0, f64::max);
        Self {
            label: label.to_owned(),
            scale: Scale::FromZero,
            unit: Unit::Number,
            low: 0.0,
            high: if most > 0.0 { most * 1.05 } else { 1.0 },
            values: Vec::new(),
        }
    }

    /// Returns a logarithmic axis that includes all of `values`, which are above 0.
    pub fn new(label: &str, unit: Unit, values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        values.dedup();
        let low = values.first().copied().unwrap_or(1.0);
        let high = values.last().copied().unwrap_or(1.0);
        // Room of a twentieth of the axis is added at either end. If there is only one value, the
        // room gives the axis a range.
        let room = (high / low).powf(0.05).max(1.05);
        Self {
            label: label.to_owned(),
            scale: Scale::Logarithmic,
            unit,
            low: low / room,
            high: high * room,
            values,
        }
    }

    /// Returns the values at both ends of the axis.
    pub(super) fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }

    /// Returns a value at a certain distance from `value` on a logarithmic axis. The distance is
    /// `share` of the axis's length: to the right, or to the left if `share` is negative.
    pub(super) fn beside(&self, value: f64, share: f64) -> f64 {
        value * (self.high / self.low).powf(share)
    }

    /// Returns the ticks of a logarithmic axis, ascending.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let inside = |ticks: &mut dyn Iterator<Item = f64>| -> Vec<f64> {
            ticks.filter(|tick| self.range().contains(tick)).collect()
        };
        if self.unit != Unit::Number {
            if self.values.len() <= MOST {
                return self.readable();
            }
            let ends = (self.values.first(), self.values.last());
            let (Some(first), Some(last)) = ends else {
                return Vec::new();
            };
            let (first, last) = (first.log2().ceil() as i32, last.log2() as i32);
            let step = (last - first).max(0) as usize / MOST + 1;
            return inside(&mut (first..=last).step_by(step).map(|power| 2f64.powi(power)));
        }
        let decades = (self.high / self.low).log10();
        let (first, last) = (
            self.low.log10().floor() as i32,
            self.high.log10().ceil() as i32,
        );
        if decades < 0.8 {
            // A range this narrow is nearly linear even on a logarithmic axis, so the ticks have
            // equal differences.
            let step = nice_step((self.high - self.low) / 6.0);
            let (first, last) = ((self.low / step).ceil() as i64, (self.high / step) as i64);
            return (first..=last).map(|tick| tick as f64 * step).collect();
        }
        let parts: &[f64] = match decades {
            ..2.0 => &[1.0, 2.0, 5.0],
            ..4.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let step = (decades / MOST as f64) as usize + 1;
        inside(&mut (first..=last).step_by(step).flat_map(|power| {
            let power = 10f64.powi(power);
            parts.iter().map(move |part| part * power)
        }))
    }

    /// Returns the values that get a label. A value gets no label if the label would overlap with
    /// the previous one.
    fn readable(&self) -> Vec<f64> {
        let room = match self.unit {
            Unit::Bytes => 0.09,
            Unit::Count | Unit::Number => 0.03,
        };
        let mut ticks: Vec<f64> = Vec::new();
        for &value in &self.values {
            if ticks
                .last()
                .is_none_or(|last| self.beside(*last, room) <= value)
            {
                ticks.push(value);
            }
        }
        ticks
    }

    /// Returns the label of a tick.
    pub(super) fn text(&self, tick: f64) -> String {
        match self.unit {
            Unit::Bytes => human(tick.round() as u64),
            Unit::Count => format!("{tick:.0}"),
            Unit::Number => number(tick),
        }
    }
}

/// Returns the smallest number that is 1, 2 or 5 times a power of ten and not below `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let parts = [1.0, 2.0, 5.0].map(|part| part * power);
    parts
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(10.0 * power)
}

/// Formats a number without trailing zeros.
fn number(value: f64) -> String {
    if value >= 1000.0 {
        return format!("{value:.0}");
    }
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(unit: Unit, values: &[f64]) -> Axis {
        Axis::new("label", unit, values.iter().copied())
    }

    fn texts(unit: Unit, values: &[f64]) -> Vec<String> {
        let axis = axis(unit, values);
        axis.ticks().iter().map(|tick| axis.text(*tick)).collect()
    }

    #[test]
    fn few_sizes_are_ticks_themselves_and_many_have_powers_of_two() {
        assert_eq!(texts(Unit::Bytes, &[1500.0, 1.0]), ["1 B", "1500 B"]);
        let sizes: Vec<f64> = (0..=20).map(|power| 2f64.powi(power)).collect();
        let expected = ["1 B", "8 B", "64 B", "512 B", "4 KiB", "32 KiB", "256 KiB"];
        assert_eq!(texts(Unit::Bytes, &sizes), expected);
        assert_eq!(texts(Unit::Count, &[1.0, 8.0, 32.0, 8.0]), ["1", "8", "32"]);
    }

    #[test]
    fn sizes_whose_labels_would_overlap_have_one_tick() {
        let sizes = [1.0, 64.0, 1024.0, 1460.0, 65_536.0];
        assert_eq!(
            texts(Unit::Bytes, &sizes),
            ["1 B", "64 B", "1 KiB", "64 KiB"]
        );
        let sizes: Vec<f64> = (0..9).map(|power| 2f64.powi(10 + power)).collect();
        assert_eq!(texts(Unit::Bytes, &sizes).len(), 9);
        let counts: Vec<f64> = (1..=9).map(f64::from).collect();
        assert_eq!(texts(Unit::Count, &counts).len(), 9);
    }

    #[test]
    fn an_axis_from_zero_has_room_above_the_greatest() {
        let axis = Axis::from_zero("label", [0.1, 200.0, 190.0].into_iter());
        assert!(axis.range().start == 0.0 && axis.range().contains(&205.0));
        assert_eq!(
            [0.0, 0.1 + 0.2, 200.0].map(|tick| axis.text(tick)),
            ["0", "0.3", "200"]
        );
        let nothing = Axis::from_zero("label", std::iter::empty());
        assert!(!nothing.range().is_empty());
    }

    #[test]
    fn numbers_have_ticks_that_suit_their_range() {
        assert_eq!(texts(Unit::Number, &[8.5, 60.0]), ["10", "20", "50"]);
        assert_eq!(
            texts(Unit::Number, &[0.5, 1500.0]),
            ["1", "3", "10", "30", "100", "300", "1000"]
                .map(str::to_owned)
                .to_vec()
        );
        assert_eq!(texts(Unit::Number, &[0.9, 1.2]), ["0.9", "1", "1.1", "1.2"]);
        assert_eq!(texts(Unit::Number, &[1e-3, 2e4]).len(), 8);
        assert_eq!(texts(Unit::Number, &[16_800.0]).last().unwrap(), "17500");
    }

    #[test]
    fn every_axis_has_a_few_ticks_within_its_range() {
        for low in [1e-9, 0.03, 1.0, 700.0, 1e12] {
            for factor in [1.0, 1.01, 1.5, 3.0, 20.0, 1e3, 1e9, 1e30] {
                let axis = axis(Unit::Number, &[low, low * factor]);
                let ticks = axis.ticks();
                assert!((1..=2 * MOST).contains(&ticks.len()), "{axis:?}: {ticks:?}");
                let least = axis.range().start * (1.0 - 1e-9);
                let most = axis.range().end * (1.0 + 1e-9);
                assert!(
                    ticks.iter().all(|tick| (least..=most).contains(tick)),
                    "{ticks:?}"
                );
                assert!(axis.range().start < low && axis.range().end > low * factor);
            }
        }
    }
}
