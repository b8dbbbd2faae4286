// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lines on logarithmic axes. They differ by colour, dash and mark, so that they can be told apart
//! on paper too.

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use crate::picture::{Drawing, Failure, FONT};

/// Width of the lines' part, pixels.
const WIDTH: u32 = 720;
/// Height of the picture, if the legend needs no more, pixels.
const HEIGHT: u32 = 480;
/// Height of a title's line, pixels.
const TITLE: u32 = 24;
/// Room for the vertical axis, pixels.
const LEFT: u32 = 72;
/// Room for the horizontal axis, pixels.
const BELOW: u32 = 52;
/// Height of an entry of the legend, pixels.
const ENTRY: u32 = 22;
/// Length of an entry's line, pixels.
const STROKE: i32 = 44;
/// Width of a letter of the legend, at most, pixels.
const LETTER: usize = 8;
/// Size of a mark, from its middle, pixels.
const MARK: i32 = 4;
/// Parts of a circle's edge.
const EDGES: u32 = 16;

/// Colours that those tell apart too who see few of them (Okabe and Ito, 2008), without yellow,
/// which does not show on white.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(0, 0, 0),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// Lengths of a dash and of the gap behind it, pixels; none is a whole line.
const DASHES: [Option<(i32, i32)>; 4] = [None, Some((10, 5)), Some((3, 4)), Some((16, 6))];

const GRID: RGBColor = RGBColor(210, 210, 210);
const GREY: RGBColor = RGBColor(90, 90, 90);

/// What a line's places are marked with.
#[derive(Clone, Copy, Debug)]
enum Mark {
    Circle,
    Square,
    Triangle,
    Diamond,
    Valley,
}

const MARKS: [Mark; 5] = [
    Mark::Circle,
    Mark::Square,
    Mark::Triangle,
    Mark::Diamond,
    Mark::Valley,
];

impl Mark {
    /// Its corners around its middle; the last one is the first again.
    fn corners(self) -> Vec<(i32, i32)> {
        let (near, far) = (MARK, MARK + 1);
        let mut corners = match self {
            Self::Circle => (0..EDGES)
                .map(|part| {
                    let angle = f64::from(part) * std::f64::consts::TAU / f64::from(EDGES);
                    let place = |share: f64| (share * f64::from(far)).round() as i32;
                    (place(angle.cos()), place(angle.sin()))
                })
                .collect(),
            Self::Square => vec![(-near, -near), (near, -near), (near, near), (-near, near)],
            Self::Triangle => vec![(0, -far), (far, near), (-far, near)],
            Self::Diamond => vec![(0, -far - 1), (far + 1, 0), (0, far + 1), (-far - 1, 0)],
            Self::Valley => vec![(0, far), (-far, -near), (far, -near)],
        };
        corners.extend(corners.first().copied());
        corners
    }
}

/// What tells a line from the others.
#[derive(Clone, Copy)]
struct Style {
    colour: RGBColor,
    dash: Option<(i32, i32)>,
    mark: Mark,
    filled: bool,
}

impl Style {
    /// That of line number `index`: neighbours differ in everything, and the combinations last for
    /// more lines than can be read.
    fn of(index: usize) -> Self {
        Self {
            colour: COLOURS[index % COLOURS.len()],
            dash: DASHES[index % DASHES.len()],
            mark: MARKS[index % MARKS.len()],
            filled: (index / MARKS.len()) % 2 == 0,
        }
    }

    fn stroke(self) -> ShapeStyle {
        self.colour.stroke_width(2)
    }

    fn inside(self) -> ShapeStyle {
        if self.filled {
            self.colour.filled()
        } else {
            WHITE.filled()
        }
    }
}

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    /// What it is of.
    pub(super) label: String,
    /// Its places from left to right, in the axes' units.
    pub(super) points: Vec<(f64, f64)>,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chart {
    /// What it is.
    pub(super) title: String,
    /// What is said below the title, a line each.
    pub(super) notes: Vec<String>,
    /// The horizontal axis.
    pub(super) x: Axis,
    /// The vertical one.
    pub(super) y: Axis,
    /// The lines, in the order of the legend.
    pub(super) lines: Vec<Line>,
    /// A height that others are compared with.
    pub(super) base: Option<f64>,
}

impl Chart {
    /// Height of the titles, pixels.
    fn head(&self) -> u32 {
        TITLE * (self.notes.len() as u32 + 1) + TITLE / 2
    }

    /// Width of the legend, pixels.
    fn legend_width(&self) -> u32 {
        let letters = self.lines.iter().map(|line| line.label.chars().count());
        STROKE as u32 + 36 + (letters.max().unwrap_or(0) * LETTER) as u32
    }

    fn draw_lines<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), Failure<B>> {
        let (x, y) = (&self.x, &self.y);
        let mut chart = ChartBuilder::on(area)
            .margin_right(12)
            .margin_left(8)
            .margin_bottom(4)
            .x_label_area_size(BELOW)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(
                x.range().log_scale().with_key_points(x.ticks()),
                y.range().log_scale().with_key_points(y.ticks()),
            )?;
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|tick| x.text(*tick))
            .y_label_formatter(&|tick| y.text(*tick))
            .label_style((FONT, 14))
            .axis_desc_style((FONT, 15))
            .x_desc(&x.label)
            .y_desc(&y.label)
            .draw()?;
        if let Some(base) = self.base {
            let ends = [x.range().start, x.range().end].map(|end| (end, base));
            chart.draw_series(LineSeries::new(ends, GREY.stroke_width(1)))?;
        }
        for (index, line) in self.lines.iter().enumerate() {
            let style = Style::of(index);
            let points = line.points.iter().copied();
            match style.dash {
                None => chart.draw_series(LineSeries::new(points.clone(), style.stroke()))?,
                Some((dash, gap)) => {
                    let stroke = style.stroke();
                    chart.draw_series(DashedLineSeries::new(points.clone(), dash, gap, stroke))?
                }
            };
            let corners = style.mark.corners();
            chart.draw_series(points.map(|point| {
                EmptyElement::at(point)
                    + Polygon::new(corners.clone(), style.inside())
                    + PathElement::new(corners.clone(), style.stroke())
            }))?;
        }
        Ok(())
    }

    fn draw_legend<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), Failure<B>> {
        for (index, line) in self.lines.iter().enumerate() {
            let style = Style::of(index);
            let y = (ENTRY * index as u32 + ENTRY / 2) as i32;
            let ends = [(4, y), (4 + STROKE, y)];
            match style.dash {
                None => area.draw(&PathElement::new(ends, style.stroke()))?,
                Some((dash, gap)) => {
                    area.draw(&DashedPathElement::new(ends, dash, gap, style.stroke()))?;
                }
            }
            let corners = style.mark.corners();
            area.draw(
                &(EmptyElement::at((4 + STROKE / 2, y))
                    + Polygon::new(corners.clone(), style.inside())
                    + PathElement::new(corners, style.stroke())),
            )?;
            area.draw(&text(&line.label, (STROKE + 14, y), 14, &BLACK))?;
        }
        Ok(())
    }
}

/// A text that begins at `at`, which is half its height.
fn text<'a>(
    text: &'a str,
    at: (i32, i32),
    size: i32,
    colour: &'a RGBColor,
) -> Text<'a, (i32, i32), &'a str> {
    let place = Pos::new(HPos::Left, VPos::Center);
    let style = TextStyle::from((FONT, size).into_font())
        .color(colour)
        .pos(place);
    Text::new(text, at, style)
}

impl Drawing for Chart {
    fn size(&self) -> (u32, u32) {
        let legend = ENTRY * self.lines.len() as u32 + BELOW;
        (
            WIDTH + self.legend_width(),
            self.head() + HEIGHT.max(legend),
        )
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<(), Failure<B>> {
        area.fill(&WHITE)?;
        let start = LEFT as i32 + 8;
        area.draw(&text(&self.title, (start, TITLE as i32), 19, &BLACK))?;
        for (number, note) in (2..).zip(&self.notes) {
            area.draw(&text(note, (start, TITLE as i32 * number), 13, &GREY))?;
        }
        let (_, below) = area.split_vertically(self.head());
        let (lines, legend) = below.split_horizontally(WIDTH);
        self.draw_lines(&lines)?;
        self.draw_legend(&legend)
    }
}

#[cfg(test)]
mod tests {
    use super::super::axis::Unit;
    use super::*;
    use crate::picture::{self, tests::decode};
    use std::collections::BTreeSet;

    fn chart(count: u32) -> Chart {
        let line = |number: u32| Line {
            label: format!("line & {number}"),
            points: (0..5)
                .map(|power| (2f64.powi(power), f64::from(number + 1)))
                .collect(),
        };
        let lines: Vec<_> = (0..count).map(line).collect();
        let points = || lines.iter().flat_map(|line| &line.points);
        Chart {
            title: "a < title".to_owned(),
            notes: vec!["a note".to_owned()],
            x: Axis::new("message size", Unit::Bytes, points().map(|point| point.0)),
            y: Axis::new("time, us", Unit::Number, points().map(|point| point.1)),
            base: Some(1.5),
            lines,
        }
    }

    #[test]
    fn all_text_is_in_the_svg() {
        let svg = picture::svg(&chart(3)).unwrap();
        for text in [
            "a &lt; title",
            "a note",
            "message size",
            "time, us",
            "line &amp; 2",
            "16 B",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        // Three lines and their entries have marks: polygons.
        assert_eq!(svg.matches("<polygon").count(), 3 * (5 + 1));
    }

    #[test]
    fn lines_differ_without_their_colours() {
        let marks: BTreeSet<_> = (0..20)
            .map(|index| {
                let style = Style::of(index);
                (style.dash, style.mark.corners(), style.filled)
            })
            .collect();
        assert_eq!(marks.len(), 20);
    }

    #[test]
    fn a_long_legend_makes_the_picture_higher() {
        let few = chart(2).size();
        assert_eq!(few, chart(3).size());
        let many = chart(40);
        assert!(many.size().1 > few.1);
        let (width, height, _) = decode(&picture::png(&many).unwrap());
        assert_eq!((width, height), (many.size().0 * 2, many.size().1 * 2));
    }

    #[test]
    fn lines_of_one_place_are_drawn() {
        let mut chart = chart(9);
        chart
            .lines
            .iter_mut()
            .for_each(|line| line.points.truncate(1));
        let svg = picture::svg(&chart).unwrap();
        assert_eq!(svg.matches("<polygon").count(), 9 * 2);
    }
}
