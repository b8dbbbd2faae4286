// SPDX-License-Identifier: MIT OR Apache-2.0

//! The heat map of `esp-params`: goodput by `burst_length` and `packets_to_ack`.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{anyhow, bail, Context as _, Result};
use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::esp_params::ParamsReport;
use crate::sizes::human;

/// Edge of a cell, pixels.
const CELL: i32 = 56;
/// Room above the cells, for the title, pixels.
const TOP: i32 = 64;
/// Room to their left, for an axis, pixels.
const LEFT: i32 = 88;
/// Room to their right, for the scale, pixels.
const RIGHT: i32 = 130;
/// Room below them, for an axis, pixels.
const BELOW: i32 = 72;
/// The least width above which the title fits, beside the margins, pixels.
const TITLE: i32 = 200;
/// Width of the scale, pixels.
const SCALE: i32 = 20;

/// The level from which on a cell is so light that its text is black.
const LIGHT: f64 = 0.6;

/// What of a text is at its coordinates.
const START: Pos = Pos {
    h_pos: HPos::Left,
    v_pos: VPos::Center,
};
const MIDDLE: Pos = Pos {
    h_pos: HPos::Center,
    v_pos: VPos::Center,
};
const END: Pos = Pos {
    h_pos: HPos::Right,
    v_pos: VPos::Center,
};

/// What drawing SVG may say.
type Failure = DrawingAreaErrorKind<io::Error>;

/// What is drawn: the cells' values, by row and column, in the order of the axes.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatMap {
    /// Values of `packets_to_ack`, upwards.
    pub rows: Vec<u32>,
    /// Values of `burst_length`, to the right.
    pub columns: Vec<u32>,
    /// Median goodput in bit/s by row and column, where there is one.
    pub cells: Vec<Vec<Option<u64>>>,
    /// The value that has the last colour, bit/s: the greatest.
    pub most: u64,
}

impl HeatMap {
    /// What a report shows.
    pub fn of(report: &ParamsReport) -> Self {
        let value = |burst, ack| {
            let goodput = report.cell(burst, ack)?.goodput_bit_per_s?;
            Some(goodput.median)
        };
        let row = |ack: &u32| {
            let columns = report.burst_length.iter();
            columns.map(|burst| value(*burst, *ack)).collect()
        };
        let cells: Vec<Vec<_>> = report.packets_to_ack.iter().map(row).collect();
        Self {
            rows: report.packets_to_ack.clone(),
            columns: report.burst_length.clone(),
            most: cells.iter().flatten().flatten().copied().max().unwrap_or(0),
            cells,
        }
    }

    /// A value's place between nothing and the greatest, 0 to 1.
    fn level(&self, value: u64) -> f64 {
        value as f64 / self.most.max(1) as f64
    }

    /// Draws it as SVG.
    ///
    /// # Errors
    ///
    /// What drawing says.
    pub fn draw(&self, title: &str) -> Result<String> {
        let mut text = String::new();
        self.draw_into(&mut text, title)
            .map_err(|error| anyhow!("drawing the heat map: {error}"))?;
        Ok(text)
    }

    fn draw_into(&self, text: &mut String, title: &str) -> Result<(), Failure> {
        let (width, height) = (
            self.columns.len() as i32 * CELL,
            self.rows.len() as i32 * CELL,
        );
        let size = (LEFT + width.max(TITLE) + RIGHT, TOP + height + BELOW);
        let area = SVGBackend::with_string(text, (size.0 as u32, size.1 as u32));
        let area = area.into_drawing_area();
        area.fill(&WHITE)?;
        let label = |text: String, at, size, colour: &RGBColor, place| {
            let style = ("sans-serif", size).into_font().color(colour).pos(place);
            area.draw(&Text::new(text, at, style))
        };
        label(title.to_owned(), (LEFT, TOP / 2), 18, &BLACK, START)?;

        // The first row is the lowest.
        let corner = |row: usize, column: usize| {
            let (row, column) = (row as i32, column as i32);
            (LEFT + column * CELL, TOP + height - (row + 1) * CELL)
        };
        for (row, cells) in self.cells.iter().enumerate() {
            for (column, value) in cells.iter().enumerate() {
                let Some(value) = *value else { continue };
                let (x, y) = corner(row, column);
                let level = self.level(value);
                let colour = ViridisRGB.get_color(level);
                area.draw(&Rectangle::new(
                    [(x, y), (x + CELL, y + CELL)],
                    colour.filled(),
                ))?;
                let ink = if level > LIGHT { &BLACK } else { &WHITE };
                let middle = (x + CELL / 2, y + CELL / 2);
                label(mbit(value), middle, 13, ink, MIDDLE)?;
            }
        }
        area.draw(&Rectangle::new(
            [(LEFT, TOP), (LEFT + width, TOP + height)],
            BLACK,
        ))?;
        for (row, ack) in self.rows.iter().enumerate() {
            let at = (LEFT - 8, corner(row, 0).1 + CELL / 2);
            label(ack.to_string(), at, 14, &BLACK, END)?;
        }
        for (column, burst) in self.columns.iter().enumerate() {
            let at = (corner(0, column).0 + CELL / 2, TOP + height + 16);
            label(burst.to_string(), at, 14, &BLACK, MIDDLE)?;
        }
        let below = (LEFT + width / 2, TOP + height + 44);
        label(
            "burst_length, packets".to_owned(),
            below,
            15,
            &BLACK,
            MIDDLE,
        )?;
        let upwards = ("sans-serif", 15)
            .into_font()
            .transform(FontTransform::Rotate270);
        area.draw(&Text::new(
            "packets_to_ack, packets",
            (24, TOP + height / 2),
            upwards.color(&BLACK).pos(MIDDLE),
        ))?;

        self.draw_scale(&area, (LEFT + width + 24, TOP), height)?;
        let beside = LEFT + width + 24 + SCALE + 6;
        label(mbit(self.most), (beside, TOP + 6), 13, &BLACK, START)?;
        label(
            "0".to_owned(),
            (beside, TOP + height - 6),
            13,
            &BLACK,
            START,
        )?;
        let above = (LEFT + width + 24, TOP - 14);
        label("Mbit/s".to_owned(), above, 13, &BLACK, START)?;
        area.present()
    }

    /// The colours from nothing, below, to the greatest value.
    fn draw_scale(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        (x, y): (i32, i32),
        height: i32,
    ) -> Result<(), Failure> {
        const STEPS: i32 = 64;
        for step in 0..STEPS {
            let edge = |step: i32| y + height - height * step / STEPS;
            let colour = ViridisRGB.get_color(f64::from(step) / f64::from(STEPS - 1));
            area.draw(&Rectangle::new(
                [(x, edge(step + 1)), (x + SCALE, edge(step))],
                colour.filled(),
            ))?;
        }
        Ok(())
    }
}

/// Mbit/s of bit/s, as much of it as fits into a cell.
fn mbit(bit_per_s: u64) -> String {
    let mbit = bit_per_s as f64 / 1e6;
    let decimals = if mbit < 100.0 { 1 } else { 0 };
    format!("{mbit:.decimals$}")
}

/// Writes the heat map of a report.
///
/// # Errors
///
/// There is nothing to draw, or the file cannot be written.
pub fn write(report: &ParamsReport, path: &Path) -> Result<()> {
    let map = HeatMap::of(report);
    if map.most == 0 {
        bail!(
            "{}: nothing was measured that could be drawn",
            path.display()
        );
    }
    let clients = match report.clients {
        1 => "1 client".to_owned(),
        clients => format!("{clients} clients"),
    };
    let title = format!("ESP goodput, {clients}, {} each", human(report.size));
    fs::write(path, map.draw(&title)?).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::print::samples;
    use super::*;

    fn map() -> HeatMap {
        HeatMap::of(&samples::params())
    }

    #[test]
    fn cells_are_where_their_parameters_are_on_the_axes() {
        let expected = HeatMap {
            rows: vec![1, 8],
            columns: vec![1, 16, 32],
            cells: vec![
                vec![Some(20_000_000), Some(150_000_000), None],
                vec![None, Some(190_000_000), None],
            ],
            most: 190_000_000,
        };
        assert_eq!(map(), expected);
        assert!((map().level(95_000_000) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn every_value_is_in_the_picture_and_nothing_where_there_is_none() {
        let svg = map().draw("goodput <of> a test").unwrap();
        assert!(svg.starts_with("<svg"), "{svg}");
        assert!(svg.trim_end().ends_with("</svg>"), "{svg}");
        for text in [
            "20.0",
            "150",
            "190",
            "burst_length",
            "packets_to_ack",
            "&lt;of&gt;",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        // One rectangle per value; the background, the frame, and the scale's 64.
        assert_eq!(svg.matches("<rect").count(), 3 + 2 + 64);
    }

    #[test]
    fn equal_values_have_the_last_colour() {
        let mut report = samples::params();
        report.cells.truncate(1);
        let map = HeatMap::of(&report);
        assert!((map.level(map.most) - 1.0).abs() < 1e-12);
        report.cells.clear();
        let error = write(&report, Path::new("unwritten.svg")).unwrap_err();
        assert!(
            error.to_string().contains("nothing was measured"),
            "{error}"
        );
        assert!(!Path::new("unwritten.svg").exists());
    }
}
