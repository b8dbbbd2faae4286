// SPDX-License-Identifier: MIT OR Apache-2.0

//! The heat map of `esp-params`: goodput by `burst_length` and `packets_to_ack`.

use std::path::Path;

use anyhow::{bail, Context as _, Result};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos};

use super::esp_params::ParamsReport;
use crate::picture::{self, label, Area, Drawing, Failure, FONT, START};
use crate::report::clients;
use crate::report::columns::short;
use crate::sizes::human;

/// The length of a cell's edge, pixels.
const CELL: i32 = 56;
/// The length of a cell's edge if the map has more than [`MANY`] rows or columns, pixels. A value
/// of three digits fits.
const SMALL_CELL: i32 = 28;
/// The number of rows or columns up to which cells have the usual size. With 32 usual cells in a
/// row the picture would be 2000 pixels wide, and its text unreadable where a page scales it down.
const MANY: usize = 16;
/// Room above the cells, for the title, pixels.
const TOP: i32 = 64;
/// Room to the left of the cells, for an axis, pixels.
const LEFT: i32 = 88;
/// Room to the right of the cells, for the scale, pixels.
const RIGHT: i32 = 130;
/// Room below the cells, for an axis, pixels.
const BELOW: i32 = 72;
/// The least width between the margins, pixels. The title needs this much.
const TITLE: i32 = 200;
/// Width of the scale, pixels.
const SCALE: i32 = 20;

/// A cell whose value is above this share of the maximum has a light colour, so its text is black.
const LIGHT: f64 = 0.6;

/// The anchor for a text whose middle lies at the given coordinates. [`START`] puts the text's left
/// end there, and [`END`] its right end.
const MIDDLE: Pos = Pos {
    h_pos: HPos::Center,
    ..START
};
const END: Pos = Pos {
    h_pos: HPos::Right,
    ..START
};

/// A heat map, ready to be drawn. It holds the cells' values by row and column, in the order of the
/// axes.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatMap {
    /// The line above the picture.
    pub title: String,
    /// Values of `packets_to_ack`, from the bottom to the top.
    pub rows: Vec<u32>,
    /// Values of `burst_length`, from left to right.
    pub columns: Vec<u32>,
    /// The median goodput by row and column, bit/s. A pair that was not measured has `None`.
    pub cells: Vec<Vec<Option<u64>>>,
    /// The maximum of the cells' values, bit/s. The last colour of the scale stands for it.
    pub most: u64,
}

impl HeatMap {
    /// Returns the heat map of a report.
    ///
    /// # Errors
    ///
    /// Fails if nothing was measured.
    pub fn of(report: &ParamsReport) -> Result<Self> {
        let value = |burst, ack| {
            let goodput = report.cell(burst, ack)?.goodput_bit_per_s?;
            Some(goodput.median)
        };
        let row = |ack: &u32| {
            let columns = report.burst_length.iter();
            columns.map(|burst| value(*burst, *ack)).collect()
        };
        let cells: Vec<Vec<_>> = report.packets_to_ack.iter().map(row).collect();
        let clients = clients(report.clients);
        let most = cells.iter().flatten().flatten().copied().max();
        let Some(most) = most.filter(|most| *most > 0) else {
            bail!("nothing was measured that could be drawn");
        };
        Ok(Self {
            title: format!("ESP goodput, {clients}, {} each", human(report.size)),
            rows: report.packets_to_ack.clone(),
            columns: report.burst_length.clone(),
            most,
            cells,
        })
    }

    /// Returns the length of a cell's edge, pixels.
    fn cell(&self) -> i32 {
        match self.columns.len().max(self.rows.len()) > MANY {
            true => SMALL_CELL,
            false => CELL,
        }
    }

    /// Returns the width and the height of all cells together, pixels.
    fn inside(&self) -> (i32, i32) {
        let cell = self.cell();
        (
            self.columns.len() as i32 * cell,
            self.rows.len() as i32 * cell,
        )
    }

    /// Returns a value as a share of the maximum, 0 to 1.
    fn level(&self, value: u64) -> f64 {
        value as f64 / self.most.max(1) as f64
    }

    /// Returns the upper left corner of a cell. Row 0 is the lowest.
    fn corner(&self, row: usize, column: usize) -> (i32, i32) {
        let (row, column) = (row as i32, column as i32);
        let (cell, (_, height)) = (self.cell(), self.inside());
        (LEFT + column * cell, TOP + height - (row + 1) * cell)
    }

    fn draw_cells<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), Failure<B>> {
        let edge = self.cell();
        let size = if edge < CELL { 10 } else { 13 };
        for (row, cells) in self.cells.iter().enumerate() {
            for (column, value) in cells.iter().enumerate() {
                let Some(value) = *value else { continue };
                let (x, y) = self.corner(row, column);
                let level = self.level(value);
                let colour = ViridisRGB.get_color(level);
                area.draw(&Rectangle::new(
                    [(x, y), (x + edge, y + edge)],
                    colour.filled(),
                ))?;
                let ink = if level > LIGHT { &BLACK } else { &WHITE };
                let middle = (x + edge / 2, y + edge / 2);
                label(area, &mbit(value), middle, size, ink, MIDDLE)?;
            }
        }
        Ok(())
    }

    fn draw_axes<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), Failure<B>> {
        let (width, height) = self.inside();
        for (row, ack) in self.rows.iter().enumerate() {
            let at = (LEFT - 8, self.corner(row, 0).1 + self.cell() / 2);
            label(area, &ack.to_string(), at, 14, &BLACK, END)?;
        }
        for (column, burst) in self.columns.iter().enumerate() {
            let at = (
                self.corner(0, column).0 + self.cell() / 2,
                TOP + height + 16,
            );
            label(area, &burst.to_string(), at, 14, &BLACK, MIDDLE)?;
        }
        let below = (LEFT + width / 2, TOP + height + 44);
        label(area, "burst_length, packets", below, 15, &BLACK, MIDDLE)?;
        let upwards = (FONT, 15).into_font().transform(FontTransform::Rotate270);
        area.draw(&Text::new(
            "packets_to_ack, packets",
            (24, TOP + height / 2),
            upwards.color(&BLACK).pos(MIDDLE),
        ))
    }

    /// Draws the scale: the colours of all values, from 0 at the bottom to the maximum at the top.
    fn draw_scale<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), Failure<B>> {
        const STEPS: i32 = 64;
        let (width, height) = self.inside();
        let x = LEFT + width + 24;
        for step in 0..STEPS {
            let edge = |step: i32| TOP + height - height * step / STEPS;
            let colour = ViridisRGB.get_color(f64::from(step) / f64::from(STEPS - 1));
            area.draw(&Rectangle::new(
                [(x, edge(step + 1)), (x + SCALE, edge(step))],
                colour.filled(),
            ))?;
        }
        let beside = x + SCALE + 6;
        let most = mbit(self.most);
        label(area, &most, (beside, TOP + 6), 13, &BLACK, START)?;
        label(area, "0", (beside, TOP + height - 6), 13, &BLACK, START)?;
        label(area, "Mbit/s", (x, TOP - 14), 13, &BLACK, START)
    }
}

impl Drawing for HeatMap {
    fn size(&self) -> (u32, u32) {
        let (width, height) = self.inside();
        let size = (LEFT + width.max(TITLE) + RIGHT, TOP + height + BELOW);
        (size.0.unsigned_abs(), size.1.unsigned_abs())
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), Failure<B>> {
        let (width, height) = self.inside();
        area.fill(&WHITE)?;
        label(area, &self.title, (LEFT, TOP / 2), 18, &BLACK, START)?;
        self.draw_cells(area)?;
        area.draw(&Rectangle::new(
            [(LEFT, TOP), (LEFT + width, TOP + height)],
            BLACK,
        ))?;
        self.draw_axes(area)?;
        self.draw_scale(area)
    }
}

/// Formats a rate in bit/s as Mbit/s, short enough for a cell.
fn mbit(bit_per_s: u64) -> String {
    short(bit_per_s as f64 / 1e6, 1, 0)
}

/// Writes the heat map of a report, as SVG or PNG.
///
/// # Errors
///
/// Fails if there is nothing to draw, or if the file cannot be written.
pub fn write(report: &ParamsReport, path: &Path) -> Result<()> {
    let map = HeatMap::of(report).with_context(|| format!("{} is not written", path.display()))?;
    picture::save(&map, path)
}

#[cfg(test)]
mod tests {
    use super::super::print::samples;
    use super::*;
    use crate::picture::tests::decode;

    fn map() -> HeatMap {
        HeatMap::of(&samples::params()).unwrap()
    }

    #[test]
    fn cells_are_where_their_parameters_are_on_the_axes() {
        let expected = HeatMap {
            title: "ESP goodput, 1 client, 4 MiB each".to_owned(),
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
        let svg = picture::svg(&map()).unwrap();
        for text in [
            "20.0",
            "150",
            "190",
            "burst_length",
            "packets_to_ack",
            "ESP goodput, 1 client",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        // The picture has 3 rectangles for the 3 values, 2 for the background and the frame, and 64
        // for the scale.
        assert_eq!(svg.matches("<rect").count(), 3 + 2 + 64);
    }

    #[test]
    fn many_cells_are_small_and_still_have_their_values() {
        let usual = map();
        let many = HeatMap {
            rows: (1..=32).collect(),
            columns: (1..=32).collect(),
            cells: vec![vec![Some(196_000_000); 32]; 32],
            most: 196_000_000,
            ..usual.clone()
        };
        assert_eq!((usual.cell(), many.cell()), (CELL, SMALL_CELL));
        assert_eq!(many.size(), (1114, 1032));
        let svg = picture::svg(&many).unwrap();
        assert_eq!(svg.matches("\n196\n").count(), 32 * 32 + 1, "{svg}");
    }

    #[test]
    fn a_png_has_the_colours_of_the_cells() {
        let (width, _, pixels) = decode(&picture::png(&map()).unwrap());
        let left_above = |(x, y): (i32, i32)| {
            let at = ((y * 2 + 8) * width as i32 + x * 2 + 8) * 3;
            let at = usize::try_from(at).unwrap();
            (pixels[at], pixels[at + 1], pixels[at + 2])
        };
        let RGBColor(red, green, blue) = ViridisRGB.get_color(1.0);
        let best = (LEFT + CELL, TOP);
        assert_eq!(left_above(best), (red, green, blue));
        let nothing = (LEFT, TOP);
        assert_eq!(left_above(nothing), (255, 255, 255));
    }

    #[test]
    fn equal_values_have_the_last_colour() {
        let mut report = samples::params();
        report.cells.truncate(1);
        let map = HeatMap::of(&report).unwrap();
        assert!((map.level(map.most) - 1.0).abs() < 1e-12);
        report.cells.clear();
        let error = write(&report, Path::new("unwritten.svg")).unwrap_err();
        assert!(
            format!("{error:#}").contains("nothing was measured"),
            "{error:#}"
        );
        assert!(!Path::new("unwritten.svg").exists());
    }
}
