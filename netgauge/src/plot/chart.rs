// SPDX-License-Identifier: MIT OR Apache-2.0

//! A chart of lines over a logarithmic axis. The lines differ by colour, dash and mark, so that
//! they are distinct on paper as well. A transport's line looks the same in every picture.

use std::collections::BTreeMap;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::axis::{Axis, Scale};
use crate::picture::{self, label, Area, Drawing, Failure, FONT, START};
use crate::transport::kinds::KINDS;

/// Width of the part with the lines, pixels.
const WIDTH: u32 = 720;
/// Height of the picture, unless the legend is higher, pixels.
const HEIGHT: u32 = 480;
/// Height of a title's line, pixels.
const TITLE: u32 = 24;
/// Width of the vertical axis, pixels.
const LEFT: u32 = 72;
/// Margin left of the vertical axis, and right of the lines, pixels.
const MARGINS: (u32, u32) = (8, 12);
/// Height of the horizontal axis, pixels.
const BELOW: u32 = 52;
/// Height of an entry of the legend, pixels.
const ENTRY: u32 = 22;
/// Length of the line in a legend's entry, pixels.
const STROKE: i32 = 44;
/// The maximum width of a letter in the legend, pixels.
const LETTER: usize = 8;
/// The distance between the middle and the edge of a mark, pixels.
const MARK: i32 = 4;
/// The number of corners of the polygon that stands for a circle.
const EDGES: u32 = 16;
/// Half the length of the stroke at each end of a bar, pixels.
const CAP: i32 = 3;
/// The horizontal distance between the bars of two successive lines, pixels. It keeps one bar from
/// hiding another.
const APART: f64 = 7.0;
/// The limit for the sum of all distances [`APART`] in a picture, pixels.
const TOGETHER: f64 = 50.0;

/// The colours of lines, in the order of the transports. People with colour blindness can
/// distinguish them (Okabe and Ito, 2008). Grey replaces yellow, which does not show on white.
/// Brown is for lines that belong to no transport.
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
    RGBColor(140, 86, 60),
];

/// The dashes of lines: the length of a dash, and the length of the gap between two dashes, pixels.
/// `None` is a solid line.
const DASHES: [Option<(i32, i32)>; 4] = [None, Some((10, 5)), Some((3, 4)), Some((16, 6))];

const GRID: RGBColor = RGBColor(210, 210, 210);
const GREY: RGBColor = RGBColor(90, 90, 90);

/// The form of the marks at a line's points.
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
    /// Returns the mark's corners around its middle, pixels. The last corner equals the first.
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

/// The style that distinguishes a line.
#[derive(Clone, Copy)]
struct Style {
    colour: RGBColor,
    dash: Option<(i32, i32)>,
    mark: Mark,
    filled: bool,
}

impl Style {
    /// Returns the style of line number `line` of transport number `transport`. All lines of a
    /// transport have the transport's colour, and no two of them have the same dash and mark. Lines
    /// of different transports differ even without colour if each transport has at most three
    /// lines.
    fn of(transport: usize, line: usize) -> Self {
        let (dashes, marks) = (DASHES.len(), MARKS.len());
        Self {
            colour: COLOURS[transport % COLOURS.len()],
            dash: DASHES[(transport + line) % dashes],
            mark: MARKS[(transport + 3 * line) % marks],
            filled: (transport / dashes + line / (marks * dashes)) % 2 == 0,
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
pub struct Line {
    /// The line's name.
    pub label: String,
    /// The name of the line's transport, which determines the line's colour.
    pub transport: String,
    /// The line's points from left to right, in the axes' units.
    pub points: Vec<(f64, f64)>,
    /// The ranges of the line's values, if they are shown. Each range has three numbers: the
    /// horizontal position, the minimum and the maximum.
    pub bars: Vec<(f64, f64, f64)>,
}

/// A horizontal line for comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Base {
    /// The line's name.
    pub label: String,
    /// The line's value, in the vertical axis's unit.
    pub value: f64,
}

/// The picture: titles, axes, lines and a legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The picture's title.
    pub title: String,
    /// The lines of text below the title.
    pub notes: Vec<String>,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines, in the order of the legend.
    pub lines: Vec<Line>,
    /// The horizontal line for comparison.
    pub base: Option<Base>,
}

impl Chart {
    /// Returns the height of the titles, pixels.
    fn head(&self) -> u32 {
        TITLE * (self.notes.len() as u32 + 1) + TITLE / 2
    }

    /// Returns the labels of the legend: the labels of the lines, and the label of the horizontal
    /// line.
    fn labels(&self) -> impl Iterator<Item = &str> {
        let lines = self.lines.iter().map(|line| &line.label[..]);
        lines.chain(self.base.iter().map(|base| &base.label[..]))
    }

    /// Returns the width of the legend, pixels.
    fn legend_width(&self) -> u32 {
        let letters = self.labels().map(|label| label.chars().count());
        STROKE as u32 + 36 + (letters.max().unwrap_or(0) * LETTER) as u32
    }

    /// Returns the lines' styles. A transport's first line looks the same in every picture. Its
    /// further lines have the same colour, or other colours if the picture has only this transport.
    fn styles(&self) -> Vec<Style> {
        let kinds = KINDS.iter();
        let mut transports = kinds.map(|kind| kind.name.to_owned()).collect();
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        let alone = self
            .lines
            .windows(2)
            .all(|two| two[0].transport == two[1].transport);
        let mut styles = Vec::new();
        for line in &self.lines {
            let transport = index_of(&mut transports, &line.transport);
            let count = counts.entry(transport).or_default();
            styles.push(match alone {
                // Only one transport has lines here, so its further lines get the colours of other
                // transports.
                true if *count > 0 => {
                    Style::of((transport + *count) % COLOURS.len(), *count / COLOURS.len())
                }
                _ => Style::of(transport, *count),
            });
            *count += 1;
        }
        styles
    }

    /// Returns the shift of line number `index` to the right, as a share of the horizontal axis's
    /// length. The shift is negative for a line that is moved to the left.
    fn beside(&self, index: usize) -> f64 {
        if self.lines.iter().all(|line| line.bars.is_empty()) {
            return 0.0;
        }
        let count = self.lines.len() as f64;
        let apart = APART.min(TOGETHER / count);
        let axis = f64::from(WIDTH - MARGINS.0 - LEFT - MARGINS.1);
        (index as f64 - (count - 1.0) / 2.0) * apart / axis
    }

    fn draw_lines<B, Y>(&self, area: &Area<B>, y_range: Y) -> Result<(), Failure<B>>
    where
        B: DrawingBackend,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let (x, y) = (&self.x, &self.y);
        let mut chart = ChartBuilder::on(area)
            .margin_left(MARGINS.0)
            .margin_right(MARGINS.1)
            .margin_bottom(4)
            .x_label_area_size(BELOW)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(x.range().log_scale().with_key_points(x.ticks()), y_range)?;
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
        if let Some(base) = &self.base {
            let ends = [x.range().start, x.range().end].map(|end| (end, base.value));
            chart.draw_series(LineSeries::new(ends, GREY.stroke_width(1)))?;
        }
        for (index, (line, style)) in self.lines.iter().zip(self.styles()).enumerate() {
            let beside = |place: f64| x.beside(place, self.beside(index));
            for &(place, least, greatest) in &line.bars {
                let ends = [least, greatest].map(|value| (beside(place), value));
                chart.draw_series(LineSeries::new(ends, style.colour.stroke_width(1)))?;
                let cap = |end| {
                    EmptyElement::at(end)
                        + PathElement::new([(-CAP, 0), (CAP, 0)], style.colour.stroke_width(1))
                };
                chart.draw_series(ends.map(cap))?;
            }
            let points = line
                .points
                .iter()
                .map(|(place, value)| (beside(*place), *value));
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

    fn draw_legend<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), Failure<B>> {
        let height = |index: usize| (ENTRY * index as u32 + ENTRY / 2) as i32;
        let ends = |y: i32| [(4, y), (4 + STROKE, y)];
        for (index, label) in self.labels().enumerate() {
            picture::label(area, label, (STROKE + 14, height(index)), 14, &BLACK, START)?;
        }
        for (index, style) in self.styles().into_iter().enumerate() {
            let y = height(index);
            let ends = ends(y);
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
        }
        if self.base.is_some() {
            let line = ends(height(self.lines.len()));
            area.draw(&PathElement::new(line, GREY.stroke_width(1)))?;
        }
        Ok(())
    }
}

/// Returns the index of `name` in `names`. If the name is not in the list, it is added at the end.
pub(super) fn index_of(names: &mut Vec<String>, name: &str) -> usize {
    let known = names.iter().position(|known| known == name);
    known.unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

impl Drawing for Chart {
    fn size(&self) -> (u32, u32) {
        let legend = ENTRY * self.labels().count() as u32 + BELOW;
        (
            WIDTH + self.legend_width(),
            self.head() + HEIGHT.max(legend),
        )
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), Failure<B>> {
        area.fill(&WHITE)?;
        let start = LEFT as i32 + 8;
        label(area, &self.title, (start, TITLE as i32), 19, &BLACK, START)?;
        for (number, note) in (2..).zip(&self.notes) {
            label(area, note, (start, TITLE as i32 * number), 13, &GREY, START)?;
        }
        let (_, below) = area.split_vertically(self.head());
        let (lines, legend) = below.split_horizontally(WIDTH);
        let y = self.y.range();
        match self.y.scale {
            Scale::Logarithmic => {
                self.draw_lines(&lines, y.log_scale().with_key_points(self.y.ticks()))?;
            }
            Scale::FromZero => self.draw_lines(&lines, y)?,
        }
        self.draw_legend(&legend)
    }
}

#[cfg(test)]
mod tests {
    use super::super::axis::Unit;
    use super::*;
    use crate::picture::tests::decode;
    use std::collections::BTreeSet;

    fn chart(count: u32) -> Chart {
        let line = |number: u32| Line {
            label: format!("line & {number}"),
            transport: format!("transport {}", number % 3),
            points: (0..5)
                .map(|power| (2f64.powi(power), f64::from(number + 1)))
                .collect(),
            bars: Vec::new(),
        };
        let lines: Vec<_> = (0..count).map(line).collect();
        let points = || lines.iter().flat_map(|line| &line.points);
        Chart {
            title: "a < title".to_owned(),
            notes: vec!["a note".to_owned()],
            x: Axis::new("message size", Unit::Bytes, points().map(|point| point.0)),
            y: Axis::new("time, us", Unit::Number, points().map(|point| point.1)),
            base: Some(Base {
                label: "base".to_owned(),
                value: 1.5,
            }),
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
            "base",
        ] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        // Each mark is a polygon. Each of the three lines has a mark at its five points, and one in
        // its legend entry.
        assert_eq!(svg.matches("<polygon").count(), 3 * (5 + 1));
    }

    #[test]
    fn lines_differ_without_their_colours() {
        let without = |style: Style| (style.dash, style.mark.corners(), style.filled);
        // Eight transports with three lines each have 24 different styles.
        let all = (0..24).map(|number| without(Style::of(number / 3, number % 3)));
        assert_eq!(all.collect::<BTreeSet<_>>().len(), 24);
        let one = (0..40).map(|number| without(Style::of(3, number)));
        assert_eq!(one.collect::<BTreeSet<_>>().len(), 40);
    }

    #[test]
    fn a_transport_looks_the_same_in_every_picture() {
        let looks = |names: &[&str]| -> Vec<_> {
            let mut chart = chart(names.len() as u32);
            for (line, name) in chart.lines.iter_mut().zip(names) {
                line.transport = (*name).to_owned();
            }
            let looks =
                |style: Style| (style.colour, style.dash, style.mark.corners(), style.filled);
            chart.styles().into_iter().map(looks).collect()
        };
        let names: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
        let all = looks(&names);
        for (name, look) in names.iter().zip(&all) {
            assert_eq!(&looks(&[name])[0], look);
        }
        let some = looks(&["new", "esp", "tcp", "esp"]);
        let place = |name: &str| names.iter().position(|known| *known == name).unwrap();
        assert_eq!(some[1], all[place("esp")]);
        assert_eq!(some[2], all[place("tcp")]);
        assert!(!all.contains(&some[0]));
        assert!(some[3].0 == some[1].0 && some[3] != some[1], "{some:?}");
        // The lines of a single transport have different colours.
        let alone = looks(&["esp"; 8]);
        assert_eq!(alone[0], all[place("esp")]);
        for (number, look) in alone.iter().enumerate() {
            assert!(alone[..number].iter().all(|other| other.0 != look.0));
        }
    }

    #[test]
    fn bars_reach_from_the_least_to_the_greatest_and_do_not_overlap() {
        let mut chart = chart(2);
        chart.y = Axis::from_zero("rate", [10.0].into_iter());
        for line in &mut chart.lines {
            line.points = vec![(4.0, 5.0)];
            line.bars = vec![(4.0, 0.0, 10.5)];
        }
        let svg = picture::svg(&chart).unwrap();
        let colour = |line: usize| {
            let RGBColor(red, green, blue) = chart.styles()[line].colour;
            format!("stroke=\"#{red:02X}{green:02X}{blue:02X}\" stroke-width=\"1\"")
        };
        // A bar is the first stroke of its colour and width. The strokes at its ends are drawn
        // later.
        let bar = |line: usize| -> Vec<f64> {
            let element = svg
                .split("<polyline")
                .find(|part| part.contains(&colour(line)));
            let points = element.unwrap().split("points=\"").nth(1).unwrap();
            let points = points.split('"').next().unwrap();
            let numbers = points.split([' ', ',']).filter(|text| !text.is_empty());
            numbers.map(|text| text.parse().unwrap()).collect()
        };
        let (one, other) = (bar(0), bar(1));
        assert_eq!(one[0], one[2]);
        assert_eq!((one[1], one[3]), (other[1], other[3]));
        assert!(one[1] - one[3] > 300.0, "{one:?}");
        assert!(
            (other[0] - one[0] - APART).abs() <= 1.0,
            "{one:?}, {other:?}"
        );
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
