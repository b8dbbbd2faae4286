// SPDX-License-Identifier: GPL-2.0-only

//! Draws the panels of the demonstration as a picture.

use anyhow::{anyhow, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::page::{Bar, Panel};

/// Lengths in pixels: the width of the picture, of the margin at either side, and of the columns
/// with names and numbers before the bars.
const WIDTH: i32 = 900;
const MARGIN: i32 = 20;
const NAMES: i32 = 80;
const VALUES: i32 = 90;
/// The length of the longest bar; notes are to the right of it.
const LONGEST: i32 = 400;

/// Heights in pixels: of a title, of a bar with its space, of the space after a panel, and of a
/// line of text.
const TITLE: i32 = 26;
const ROW: i32 = 22;
const GAP: i32 = 16;
const LINE: i32 = 18;

const TEXT: RGBColor = RGBColor(40, 40, 40);
const GREY: RGBColor = RGBColor(150, 160, 170);
/// The colour of the bars of this project's protocols.
const OURS: RGBColor = RGBColor(0, 110, 190);
const OUR_NAMES: [&str; 3] = ["edp", "esp", "enet run"];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// Draws the panels, and under them the lines of text in `below`.
///
/// # Errors
/// The errors of plotters.
pub fn svg(panels: &[Panel], below: &[String]) -> Result<String> {
    let rows: usize = panels.iter().map(|panel| panel.bars.len()).sum();
    let height = 2 * MARGIN
        + panels.len() as i32 * (TITLE + GAP)
        + rows as i32 * ROW
        + below.len() as i32 * LINE;
    let mut text = String::new();
    let area =
        SVGBackend::with_string(&mut text, (WIDTH as u32, height as u32)).into_drawing_area();
    draw(&area, panels, below)
        .and_then(|()| area.present())
        .map_err(|error| anyhow!("drawing: {error}"))?;
    drop(area);
    text.push('\n');
    Ok(text)
}

fn draw<'a>(area: &Area<'a>, panels: &[Panel], below: &[String]) -> Drawn<'a> {
    area.fill(&WHITE)?;
    let mut y = MARGIN;
    for panel in panels {
        write(area, &panel.title, (MARGIN, y), 15, HPos::Left)?;
        y += TITLE;
        for bar in &panel.bars {
            draw_bar(area, bar, panel.share(bar), y)?;
            y += ROW;
        }
        y += GAP;
    }
    for line in below {
        write(area, line, (MARGIN, y), 12, HPos::Left)?;
        y += LINE;
    }
    Ok(())
}

fn draw_bar<'a>(area: &Area<'a>, bar: &Bar, share: f64, y: i32) -> Drawn<'a> {
    let colour = if OUR_NAMES.contains(&bar.name.as_str()) {
        OURS
    } else {
        GREY
    };
    let start = MARGIN + NAMES + VALUES;
    let end = start + (share * f64::from(LONGEST)).round() as i32;
    write(area, &bar.name, (MARGIN, y), 13, HPos::Left)?;
    write(area, &bar.value, (start - 10, y), 13, HPos::Right)?;
    area.draw(&Rectangle::new(
        [(start, y - 7), (end, y + 7)],
        colour.filled(),
    ))?;
    write(area, &bar.note, (start + LONGEST + 10, y), 12, HPos::Left)
}

/// Writes a text vertically centred at `at`, unless it is empty.
fn write<'a>(area: &Area<'a>, text: &str, at: (i32, i32), size: i32, side: HPos) -> Drawn<'a> {
    if text.is_empty() {
        return Ok(());
    }
    let style = ("sans-serif", size).into_font().color(&TEXT);
    let style = style.pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text, at, style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_the_titles_numbers_and_bars() {
        let bar = |name: &str, length: f64| Bar {
            name: name.to_owned(),
            value: format!("{length:.0} us"),
            length,
            note: "a note".to_owned(),
        };
        let panel = Panel::new("Times".to_owned(), vec![bar("tcp", 50.0), bar("esp", 5.0)]);
        let svg = svg(&[panel], &["Emulated: all & more".to_owned()]).unwrap();
        for text in ["Times", "50 us", "5 us", "a note", "all &amp; more"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        // The longest bar has full length, and the other bar a tenth of it.
        for width in [LONGEST, LONGEST / 10] {
            assert!(svg.contains(&format!("width=\"{width}\"")), "{svg}");
        }
        assert!(svg.contains("#006EBE"), "{svg}");
    }
}
