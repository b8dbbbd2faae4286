// SPDX-License-Identifier: MIT OR Apache-2.0

//! The picture of patterns of many: goodput over the number of clients or the size of messages, a
//! curve for each transport, from the worst round to the best.

use std::path::Path;

use anyhow::{bail, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::all::{AllReport, Together};
use super::many_one;
use super::one_many::{ManyReport, ManyRow};
use crate::picture::{self, Drawing, Failure, FONT};
use crate::sizes::human;

/// Size of the picture, pixels.
const SIZE: (i32, i32) = (860, 480);
/// Room above the curves, for the title, pixels.
const TOP: i32 = 64;
/// Room to their left, for an axis, pixels.
const LEFT: i32 = 84;
/// Room to their right, for the names, pixels.
const RIGHT: i32 = 220;
/// Room below them, for an axis, pixels.
const BELOW: i32 = 72;
/// Half the size of a mark, pixels.
const MARK: i32 = 5;
/// How far curves stand beside each other, so that none hides another one's marks, pixels.
const APART: i32 = 7;

/// Colours that people tell apart who see few of them (Okabe and Ito, 2008); the marks are for
/// those who print in black.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    BLACK,
];

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

/// A place on a curve, bit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Which tick of the horizontal axis.
    pub tick: usize,
    /// The least.
    pub worst: u64,
    /// What the curve goes through.
    pub middle: u64,
    /// The greatest.
    pub best: u64,
}

/// One curve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve {
    /// What it shows.
    pub name: String,
    /// Its places, from left to right.
    pub points: Vec<Point>,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curves {
    /// What it is.
    pub title: String,
    /// What is measured upwards.
    pub up: String,
    /// What the ticks are.
    pub along: String,
    /// What is at each tick of the horizontal axis.
    pub ticks: Vec<String>,
    /// The curves.
    pub curves: Vec<Curve>,
    /// The link's rate, bit/s, if it is to be shown.
    pub rate: Option<u64>,
}

impl Curves {
    /// What a report on one-many or many-one shows: goodput over clients, or if there is one number
    /// of them, over sizes.
    pub fn of_many(report: &ManyReport) -> Self {
        let clients = distinct(report.runs.iter().map(|run| run.clients as u64));
        let sizes = distinct(
            report
                .runs
                .iter()
                .flat_map(|run| &run.rows)
                .map(|row| row.size),
        );
        let over_clients = clients.len() > 1;
        let several = over_clients && sizes.len() > 1;
        let mut curves: Vec<Curve> = Vec::new();
        for run in &report.runs {
            let medium = match &run.congestion {
                Some(congestion) => format!("{} {congestion}", run.transport),
                None => run.transport.clone(),
            };
            for row in &run.rows {
                let (tick, name) = match over_clients {
                    true if several => {
                        (run.clients as u64, format!("{medium}, {}", human(row.size)))
                    }
                    true => (run.clients as u64, medium.clone()),
                    false => (row.size, medium.clone()),
                };
                let ticks = if over_clients { &clients } else { &sizes };
                let point = ticks.binary_search(&tick).ok().zip(row_point(row));
                add(
                    &mut curves,
                    name,
                    point.map(|(tick, point)| Point { tick, ..point }),
                );
            }
        }
        let sent = match &report.pattern[..] {
            many_one::NAME => "one server to many clients",
            _ => "many clients to one server",
        };
        let (along, ticks, of) = if over_clients {
            let ticks = clients.iter().map(u64::to_string).collect();
            let of = sizes.first().filter(|_| !several);
            let of = of.map_or(String::new(), |size| format!(", {} each", human(*size)));
            ("clients", ticks, of)
        } else {
            let ticks = sizes.iter().map(|size| human(*size)).collect();
            let of = clients.first().map_or(0, |count| *count);
            let s = if of == 1 { "" } else { "s" };
            ("message of each client", ticks, format!(", {of} client{s}"))
        };
        Self {
            title: format!("{}: {sent}{of}", report.pattern),
            up: "goodput of all together, Mbit/s".to_owned(),
            along: along.to_owned(),
            ticks,
            curves,
            rate: report.rate_bit_per_s,
        }
    }

    /// What a report on all-to-all or bisection shows: what a host gets over sizes.
    pub fn of_all(report: &AllReport) -> Self {
        let sizes = distinct(
            report
                .runs
                .iter()
                .flat_map(|run| &run.rows)
                .map(|row| row.size),
        );
        let mut curves = Vec::new();
        for run in &report.runs {
            for row in &run.rows {
                let tick = sizes.binary_search(&row.size).ok();
                let point = tick.zip(row.host_bit_per_s).map(|(tick, host)| Point {
                    tick,
                    worst: host.worst,
                    middle: host.average,
                    best: host.best,
                });
                add(&mut curves, run.medium(), point);
            }
        }
        let hosts = report.participants.len();
        let does = if report.pattern == Together::Bisection.name() {
            "in random pairs"
        } else {
            "each to all others"
        };
        Self {
            title: format!("{}: {hosts} hosts, {does}", report.pattern),
            up: "what a host gets, average, Mbit/s".to_owned(),
            along: "message".to_owned(),
            ticks: sizes.iter().map(|size| human(*size)).collect(),
            curves,
            rate: report.rate_bit_per_s,
        }
    }

    /// The value at the upper end of the axis, bit/s: above everything that is drawn.
    fn most(&self) -> f64 {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        let best = points.map(|point| point.best).max().unwrap_or(0);
        best.max(self.rate.unwrap_or(0)) as f64 * 1.05
    }
}

impl Drawing for Curves {
    fn size(&self) -> (u32, u32) {
        (SIZE.0 as u32, SIZE.1 as u32)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<(), Failure<B>> {
        area.fill(&WHITE)?;
        let label = |text: &str, at, size, place| {
            let style = (FONT, size).into_font().color(&BLACK).pos(place);
            area.draw(&Text::new(text.to_owned(), at, style))
        };
        let (width, height) = (SIZE.0 - LEFT - RIGHT, SIZE.1 - TOP - BELOW);
        let most = self.most();
        let x = |tick: usize| LEFT + width * (2 * tick as i32 + 1) / (2 * self.ticks.len() as i32);
        let y = |value: f64| TOP + height - (f64::from(height) * value / most).round() as i32;

        label(&self.title, (LEFT, TOP / 2), 18, START)?;
        let step = step(most / 1e6);
        for index in 0.. {
            let mbit = f64::from(index) * step;
            if mbit * 1e6 > most {
                break;
            }
            let at = y(mbit * 1e6);
            let grid = PathElement::new([(LEFT, at), (LEFT + width, at)], BLACK.mix(0.15));
            area.draw(&grid)?;
            label(&number(mbit, step), (LEFT - 8, at), 14, END)?;
        }
        for (tick, text) in self.ticks.iter().enumerate() {
            label(text, (x(tick), TOP + height + 16), 14, MIDDLE)?;
        }
        label(
            &self.along,
            (LEFT + width / 2, TOP + height + 44),
            15,
            MIDDLE,
        )?;
        let upwards = (FONT, 15).into_font().transform(FontTransform::Rotate270);
        area.draw(&Text::new(
            self.up.clone(),
            (20, TOP + height / 2),
            upwards.color(&BLACK).pos(MIDDLE),
        ))?;
        if let Some(rate) = self.rate {
            let at = y(rate as f64);
            area.draw(&PathElement::new([(LEFT, at), (LEFT + width, at)], BLACK))?;
            // Its name is below those of the curves.
            let (left, at) = (LEFT + width + 16, legend(self.curves.len()));
            let line = [(left - MARK, at), (left + MARK, at)];
            area.draw(&PathElement::new(line, BLACK))?;
            label("rate of the link", (left + 14, at), 14, START)?;
        }
        area.draw(&Rectangle::new(
            [(LEFT, TOP), (LEFT + width, TOP + height)],
            BLACK,
        ))?;

        for (index, curve) in self.curves.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let beside = APART * (2 * index as i32 + 1 - self.curves.len() as i32) / 2;
            let at = |point: &Point, value: u64| (x(point.tick) + beside, y(value as f64));
            let path: Vec<_> = curve.points.iter().map(|p| at(p, p.middle)).collect();
            area.draw(&PathElement::new(path, colour.stroke_width(2)))?;
            for point in &curve.points {
                let ends = [at(point, point.worst), at(point, point.best)];
                area.draw(&PathElement::new(ends, colour))?;
                for (x, y) in ends {
                    area.draw(&PathElement::new([(x - 3, y), (x + 3, y)], colour))?;
                }
                mark(area, index, at(point, point.middle), colour)?;
            }
            let beside = (LEFT + width + 16, legend(index));
            mark(area, index, beside, colour)?;
            label(&curve.name, (beside.0 + 14, beside.1), 14, START)?;
        }
        Ok(())
    }
}

/// The height at which the name of a curve stands.
fn legend(index: usize) -> i32 {
    TOP + 24 + 22 * index as i32
}

/// Draws a curve's mark: each of the first has a shape of its own.
fn mark<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    index: usize,
    (x, y): (i32, i32),
    colour: RGBColor,
) -> Result<(), Failure<B>> {
    let corners = [(x - MARK, y - MARK), (x + MARK, y + MARK)];
    match index % 6 {
        0 => area.draw(&Circle::new((x, y), MARK, colour.filled())),
        1 => area.draw(&Rectangle::new(corners, colour.filled())),
        2 => area.draw(&TriangleMarker::new((x, y), MARK + 1, colour.filled())),
        3 => area.draw(&Cross::new((x, y), MARK, colour.stroke_width(2))),
        4 => {
            area.draw(&Circle::new((x, y), MARK, WHITE.filled()))?;
            area.draw(&Circle::new((x, y), MARK, colour.stroke_width(2)))
        }
        _ => {
            area.draw(&Rectangle::new(corners, WHITE.filled()))?;
            area.draw(&Rectangle::new(corners, colour.stroke_width(2)))
        }
    }
}

/// Adds a place to the curve of this name.
fn add(curves: &mut Vec<Curve>, name: String, point: Option<Point>) {
    let Some(point) = point else { return };
    match curves.iter_mut().find(|curve| curve.name == name) {
        Some(curve) => {
            curve.points.push(point);
            curve.points.sort_unstable_by_key(|point| point.tick);
        }
        None => curves.push(Curve {
            name,
            points: vec![point],
        }),
    }
}

fn row_point(row: &ManyRow) -> Option<Point> {
    row.goodput_bit_per_s.map(|goodput| Point {
        tick: 0,
        worst: goodput.worst,
        middle: goodput.median,
        best: goodput.best,
    })
}

/// The different ones, ascending.
fn distinct(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// The distance of ticks up to `most`: one, two or five of a power of ten, so that there are four
/// to ten.
fn step(most: f64) -> f64 {
    let power = 10f64.powf((most.max(1e-9) / 10.0).log10().ceil());
    let fits = [power / 5.0, power / 2.0, power];
    let first = fits.into_iter().find(|step| most / step <= 10.0);
    first.unwrap_or(power)
}

/// A tick's number, with as much behind the point as the step between ticks has.
fn number(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    format!("{value:.decimals$}")
}

/// Writes the picture.
///
/// # Errors
///
/// There is nothing to draw, or the file cannot be written.
pub fn write(curves: &Curves, path: &Path) -> Result<()> {
    if curves.curves.is_empty() {
        bail!(
            "{}: nothing was measured that could be drawn",
            path.display()
        );
    }
    picture::save(curves, path)
}

#[cfg(test)]
mod tests {
    use super::super::print::samples;
    use super::*;

    fn point(tick: usize, middle: u64) -> Point {
        Point {
            tick,
            worst: middle - 1_000_000,
            middle,
            best: middle + 2_000_000,
        }
    }

    #[test]
    fn several_numbers_of_clients_are_the_axis_and_sizes_are_curves() {
        let mut report = samples::many();
        let mut more = report.runs[0].clone();
        more.clients = 8;
        report.runs.push(more);
        let curves = Curves::of_many(&report);
        assert_eq!(curves.ticks, ["1", "2", "8"]);
        assert_eq!(curves.title, "one-many: many clients to one server");
        let names: Vec<_> = curves.curves.iter().map(|curve| &curve.name[..]).collect();
        // What was not measured has no curve.
        assert_eq!(names, ["tcp reno, 1 KiB", "tcp reno, 64 KiB"]);
        let expected = [point(1, 80_000_000), point(2, 80_000_000)];
        assert_eq!(curves.curves[0].points, expected);
        let svg = picture::svg(&curves).unwrap();
        for text in [
            "tcp reno, 64 KiB",
            "clients",
            "rate of the link",
            "goodput",
            ">8<",
        ] {
            assert!(svg.replace('\n', "").contains(text), "{text}: {svg}");
        }
    }

    #[test]
    fn one_number_of_clients_leaves_the_axis_to_sizes() {
        let mut report = samples::many();
        report.runs.truncate(1);
        let curves = Curves::of_many(&report);
        assert_eq!(curves.ticks, ["1 KiB", "64 KiB"]);
        assert_eq!(
            curves.title,
            "one-many: many clients to one server, 2 clients"
        );
        assert_eq!(curves.curves.len(), 1);
        let expected = [point(0, 80_000_000), point(1, 190_000_000)];
        assert_eq!(curves.curves[0].points, expected);
    }

    #[test]
    fn nothing_measured_is_not_drawn() {
        let mut report = samples::many();
        report.runs.clear();
        let error = write(&Curves::of_many(&report), Path::new("unwritten.svg")).unwrap_err();
        assert!(
            error.to_string().contains("nothing was measured"),
            "{error}"
        );
        assert!(!Path::new("unwritten.svg").exists());
    }

    #[test]
    fn ticks_are_round_numbers() {
        for (most, expected) in [(1050.0, 200.0), (199.0, 20.0), (1000.0, 100.0), (0.7, 0.1)] {
            assert!(
                (step(most) - expected).abs() < 1e-9,
                "{most}: {}",
                step(most)
            );
        }
        assert_eq!(number(0.30000000000000004, 0.1), "0.3");
        assert_eq!(number(1000.0, 200.0), "1000");
    }
}
