//! Lines over a logarithmic axis of sizes, as SVG. Each line has a dash and a mark of its own, so that print in grey tells
//! them apart.

use anyhow::{ensure, Result};
use netgauge::picture::{self, Drawing, Failure, FONT};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::coord::Shift;
use plotters::element::{DashedPathElement, Drawable, PointCollection};
use plotters::prelude::*;
use plotters_backend::{BackendCoord, DrawingErrorKind};

use super::results::Points;
use super::words;

const SIZE: (u32, u32) = (780, 440);
/// Room on the right for the names of the lines, pixels.
const NAMES: i32 = 220;

/// Colours that the colour-blind tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 86, 86),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// Lengths of dashes and of the gaps between them, pixels; the first is longer than any line, which is solid.
const DASHES: [(u32, u32); 4] = [(100_000, 1), (10, 3), (5, 4), (2, 3)];

/// A line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Sizes and values.
    pub points: Points,
}

/// What y is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From 0.
    Linear,
    /// Powers of 10.
    Logarithmic,
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// What x is; powers of 2, named as sizes if it is `bytes`.
    pub x: String,
    /// What y is.
    pub y: String,
    /// How y goes.
    pub scale: Scale,
    /// The lines; those without points are left out.
    pub lines: Vec<Line>,
}

/// The least and the greatest.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), value| (least.min(value), most.max(value)),
    )
}

impl Chart {
    /// As SVG.
    ///
    /// # Errors
    /// When there is no point in it.
    pub fn svg(&self) -> Result<String> {
        ensure!(
            self.lines.iter().any(|line| !line.points.is_empty()),
            "{}: nothing was measured to draw",
            self.title
        );
        let mut svg = picture::svg(self)?;
        svg.push('\n');
        Ok(svg)
    }

    fn draw_axes<B, Y>(&self, area: &DrawingArea<B, Shift>, y: Y) -> Result<(), Failure<B>>
    where
        B: DrawingBackend,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let (least, most) = range(self.lines.iter().flat_map(|l| &l.points).map(|p| p.0));
        let bytes = self.x == "bytes";
        let name_x = move |x: &f64| match bytes {
            true => words::size(*x),
            false => words::number(*x),
        };
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 16))
            .margin(10)
            .margin_right(NAMES)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(
                (least..most.max(least * 2.0) * 1.02).log_scale().base(2.0),
                y,
            )?;
        chart
            .configure_mesh()
            .x_desc(&self.x)
            .y_desc(&self.y)
            .label_style((FONT, 12))
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(220, 220, 220))
            .x_labels(11)
            .x_label_formatter(&name_x)
            .y_label_formatter(&|y| words::number(*y))
            .draw()?;
        let positive = |points: &Points| -> Points {
            let shown = |point: &&(f64, f64)| self.scale == Scale::Linear || point.1 > 0.0;
            points.iter().filter(shown).copied().collect()
        };
        let lines = self.lines.iter().filter(|line| !line.points.is_empty());
        for (place, line) in lines.enumerate() {
            let colour = COLOURS[place % COLOURS.len()];
            let points = positive(&line.points);
            let path = dashed(&points, place, colour);
            chart.draw_series([path])?;
            let marks = points.iter().map(|point| Mark {
                at: *point,
                place,
                colour,
            });
            chart.draw_series(marks)?;
            // The names stand right of the axes.
            let row = 34 + 22 * place as i32;
            let left = SIZE.0 as i32 - NAMES + 8;
            let key = [(left, row), (left + 34, row)];
            area.draw(&dashed(&key, place, colour))?;
            area.draw(&Mark {
                at: (left + 17, row),
                place,
                colour,
            })?;
            let name = Text::new(line.name.clone(), (left + 42, row - 6), (FONT, 13));
            area.draw(&name)?;
        }
        Ok(())
    }
}

impl Drawing for Chart {
    fn size(&self) -> (u32, u32) {
        SIZE
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<(), Failure<B>> {
        area.fill(&WHITE)?;
        let y = self.lines.iter().flat_map(|line| &line.points).map(|p| p.1);
        match self.scale {
            Scale::Linear => {
                let (_, most) = range(y);
                self.draw_axes(area, 0.0..most * 1.05)
            }
            Scale::Logarithmic => {
                // 0 has no place on such an axis.
                let (least, most) = range(y.filter(|y| *y > 0.0));
                self.draw_axes(area, (least / 1.3..most * 1.3).log_scale())
            }
        }
    }
}

/// A line with the dash of its place.
fn dashed<C: Clone>(
    points: &[C],
    place: usize,
    colour: RGBColor,
) -> DashedPathElement<std::vec::IntoIter<C>, u32> {
    let (dash, gap) = DASHES[place % DASHES.len()];
    DashedPathElement::new(points.to_vec(), dash, gap, colour.stroke_width(2))
}

/// A mark with the shape of its line's place.
struct Mark<C> {
    at: C,
    place: usize,
    colour: RGBColor,
}

impl<'a, C> PointCollection<'a, C> for &'a Mark<C> {
    type Point = &'a C;
    type IntoIter = std::iter::Once<&'a C>;

    fn point_iter(self) -> Self::IntoIter {
        std::iter::once(&self.at)
    }
}

impl<C, B: DrawingBackend> Drawable<B> for Mark<C> {
    fn draw<I: Iterator<Item = BackendCoord>>(
        &self,
        points: I,
        backend: &mut B,
        _: (u32, u32),
    ) -> Result<(), DrawingErrorKind<B::ErrorType>> {
        let colour = &self.colour;
        for (x, y) in points {
            let square = [(x - 3, y - 3), (x + 3, y + 3)];
            let triangle = [(x - 5, y + 4), (x + 5, y + 4), (x, y - 5), (x - 5, y + 4)];
            match self.place % 6 {
                0 => backend.draw_circle((x, y), 4, colour, true)?,
                1 => backend.fill_polygon(triangle, colour)?,
                2 => backend.draw_rect(square[0], square[1], colour, true)?,
                3 => backend.draw_circle((x, y), 4, colour, false)?,
                4 => backend.draw_path(triangle, colour)?,
                _ => backend.draw_rect(square[0], square[1], colour, false)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, lines: Vec<Line>) -> Chart {
        Chart {
            title: "Title".to_owned(),
            x: "bytes".to_owned(),
            y: "instructions".to_owned(),
            scale,
            lines,
        }
    }

    fn line(name: &str, points: &[(f64, f64)]) -> Line {
        Line {
            name: name.to_owned(),
            points: points.to_vec(),
        }
    }

    #[test]
    fn a_picture_has_its_lines_names_and_axes() {
        let points = [(1.0, 10.0), (1024.0, 20.0), (65536.0, 3000.0)];
        let names: Vec<_> = (0..9).map(|number| format!("line {number}")).collect();
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let lines = names.iter().map(|name| line(name, &points)).collect();
            let svg = chart(scale, lines).svg().unwrap();
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            for text in [
                "Title",
                "bytes",
                "instructions",
                "line 0",
                "line 8",
                "64 KiB",
            ] {
                assert!(svg.contains(text), "{scale:?}: {text} is missing:\n{svg}");
            }
        }
    }

    #[test]
    fn zeros_and_missing_lines_do_not_spoil_it() {
        let lines = vec![
            line("none", &[]),
            line("zeros", &[(1.0, 0.0), (2.0, 0.0), (4.0, 5.0)]),
        ];
        for scale in [Scale::Linear, Scale::Logarithmic] {
            let svg = chart(scale, lines.clone()).svg().unwrap();
            assert!(svg.contains("zeros") && !svg.contains("none<"), "{svg}");
        }
        assert!(chart(Scale::Linear, vec![line("none", &[])]).svg().is_err());
    }
}
