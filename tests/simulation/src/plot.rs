// SPDX-License-Identifier: GPL-2.0-only

//! Draws results as pictures: curves over a logarithmic axis, and heat maps.

use std::path::Path;

use anyhow::{anyhow, Context, Result};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::coord::Shift;
pub use plotters::prelude::SeriesLabelPosition;
use plotters::prelude::*;

const FONT: &str = "sans-serif";

/// Colours that differ even in grey print, and for colour-blind readers (Okabe and Ito).
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 86, 86),
];

/// A curve of a picture: values over positive x, and a name.
#[derive(Debug)]
pub struct Curve {
    /// Name in the legend.
    pub name: String,
    /// Pairs of x and y.
    pub points: Vec<(f64, f64)>,
}

/// Curves that share their axes; x is logarithmic, in powers of 2.
pub struct Panel {
    /// Label of y.
    pub title: String,
    /// Label of x.
    pub x: String,
    /// Whether y is logarithmic.
    pub log_y: bool,
    /// The least and the largest y shown.
    pub y: (f64, f64),
    /// The curves.
    pub curves: Vec<Curve>,
    /// The y of a horizontal line, and the line's label.
    pub mark: Option<(f64, String)>,
    /// Where to draw the legend, so that it covers no curve.
    pub legend: SeriesLabelPosition,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn open(file: &Path, size: (u32, u32)) -> Result<Area<'_>> {
    let area = SVGBackend::new(file, size).into_drawing_area();
    area.fill(&WHITE).map_err(failure)?;
    Ok(area)
}

fn failure(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the picture cannot be drawn: {error}")
}

fn finish(area: &Area<'_>, file: &Path) -> Result<()> {
    area.present()
        .map_err(failure)
        .with_context(|| format!("writing {}", file.display()))
}

/// Draws panels side by side.
pub fn curves(file: &Path, panels: &[Panel]) -> Result<()> {
    let area = open(file, (430 * panels.len() as u32, 330))?;
    for (part, panel) in area.split_evenly((1, panels.len())).iter().zip(panels) {
        let (low, high) = panel.y;
        if panel.log_y {
            draw_panel(part, panel, (low..high).log_scale())?;
        } else {
            draw_panel(part, panel, low..high)?;
        }
    }
    finish(&area, file)
}

fn draw_panel<Y>(area: &Area<'_>, panel: &Panel, y: Y) -> Result<()>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let xs = || {
        let points = panel.curves.iter().flat_map(|curve| &curve.points);
        points.map(|point| point.0)
    };
    let (least, most) = (
        xs().fold(f64::INFINITY, f64::min),
        xs().fold(0.0, f64::max).max(2.0),
    );
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, (FONT, 13))
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(44)
        .build_cartesian_2d((least..most * 1.05).log_scale().base(2.0), y)
        .map_err(failure)?;
    chart
        .configure_mesh()
        .x_desc(&panel.x)
        .label_style((FONT, 12))
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(220, 220, 220))
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| plain(*y))
        .draw()
        .map_err(failure)?;
    if let Some((level, name)) = &panel.mark {
        let line = [(least, *level), (most, *level)];
        chart
            .draw_series(DashedLineSeries::new(line, 5, 4, BLACK.stroke_width(1)))
            .map_err(failure)?
            .label(name)
            .legend(|(x, y)| PathElement::new([(x, y), (x + 14, y)], BLACK));
    }
    for (curve, colour) in panel.curves.iter().zip(COLOURS) {
        chart
            .draw_series(
                LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2)).point_size(3),
            )
            .map_err(failure)?
            .label(&curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(panel.legend.clone())
        .label_font((FONT, 11))
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(180, 180, 180))
        .draw()
        .map_err(failure)?;
    Ok(())
}

/// Formats a number: as an integer if it is whole or at least 10, and otherwise with up to three
/// decimals.
fn plain(value: f64) -> String {
    if value >= 10.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').to_string()
    }
}

/// A heat map: a grid whose cells have values from 0 to 1.
#[derive(Debug)]
pub struct Map {
    /// The title.
    pub title: String,
    /// The cells, each with its column, its row and its value.
    pub cells: Vec<(usize, usize, f64)>,
}

/// Draws maps in two columns; every cell shows its value times 100.
pub fn maps(
    file: &Path,
    x: &str,
    columns: &[String],
    y: &str,
    rows: &[String],
    maps: &[Map],
) -> Result<()> {
    const CELL: (i32, i32) = (30, 20);
    let width = CELL.0 * columns.len() as i32 + 90;
    let height = CELL.1 * rows.len() as i32 + 80;
    let down = maps.len().div_ceil(2);
    let area = open(file, (2 * width as u32, (down as i32 * height) as u32))?;
    for (part, map) in area.split_evenly((down, 2)).iter().zip(maps) {
        draw_map(part, map, CELL, (x, columns), (y, rows))?;
    }
    finish(&area, file)
}

fn draw_map(
    area: &Area<'_>,
    map: &Map,
    cell: (i32, i32),
    (x, columns): (&str, &[String]),
    (y, rows): (&str, &[String]),
) -> Result<()> {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    let centred = Pos::new(HPos::Center, VPos::Center);
    let text = |size: i32, colour: &RGBColor| (FONT, size).into_font().color(colour).pos(centred);
    let put = |words: &str, at: (i32, i32), size: i32, colour: &RGBColor| {
        let words = Text::new(words.to_string(), at, text(size, colour));
        area.draw(&words).map_err(failure)
    };
    let (left, top) = (64, 26);
    let bottom = top + cell.1 * rows.len() as i32;
    let middle = left + cell.0 * columns.len() as i32 / 2;
    put(&map.title, (middle, 12), 14, &BLACK)?;
    put(x, (middle, bottom + 34), 12, &BLACK)?;
    put(y, (left - 26, top - 12), 12, &BLACK)?;
    for (place, name) in columns.iter().enumerate() {
        let at = left + cell.0 * place as i32 + cell.0 / 2;
        put(name, (at, bottom + 12), 11, &BLACK)?;
    }
    let row_top = |place: usize| bottom - cell.1 * (place as i32 + 1);
    for (place, name) in rows.iter().enumerate() {
        put(name, (left - 16, row_top(place) + cell.1 / 2), 11, &BLACK)?;
    }
    for &(column, row, value) in &map.cells {
        let (at, up) = (left + cell.0 * column as i32, row_top(row));
        let (colour, dark) = shade(value);
        let corners = [(at, up), (at + cell.0 - 1, up + cell.1 - 1)];
        area.draw(&Rectangle::new(corners, colour.filled()))
            .map_err(failure)?;
        let words = format!("{:.0}", value * 100.0);
        let ink = if dark { WHITE } else { BLACK };
        put(&words, (at + cell.0 / 2, up + cell.1 / 2), 11, &ink)?;
    }
    Ok(())
}

/// Returns the colour for a value, and whether the colour is dark. Small values have light colours,
/// and large values have dark colours. Most of the colour range is for values near 1.
fn shade(value: f64) -> (RGBColor, bool) {
    let depth = value.clamp(0.0, 1.0).powi(4);
    let mix = |light: f64, dark: f64| (light + (dark - light) * depth) as u8;
    let colour = RGBColor(mix(245.0, 0.0), mix(245.0, 90.0), mix(245.0, 150.0));
    (colour, depth > 0.5)
}
