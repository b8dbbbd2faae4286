// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pictures. The same code draws a picture as SVG and as PNG.
//!
//! An SVG file contains its text as text. A PNG is first drawn larger and then averaged, so that
//! its edges are smooth. The program contains the font for a PNG's text, so the host needs no font.

mod scaled;

use std::fs;
use std::path::Path;
use std::sync::Once;

use anyhow::{anyhow, ensure, Context as _, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::picture_file::Form;
use scaled::Scaled;

/// The font family of all text in pictures.
pub const FONT: &str = "sans-serif";

/// The number of PNG pixels for one pixel of the drawing, in each direction. Two are enough for
/// print.
const DENSITY: u32 = 2;
/// The number of dots that [`average`] reduces to one pixel of the PNG, in each direction.
const SMOOTHING: u32 = 2;
/// The maximum number of pixels in a drawing that is written as PNG. It is a hundred times the
/// number of pixels in an ordinary drawing.
const MOST_PIXELS: u64 = 50_000_000;

/// The anchor for a text whose coordinates name the left end of the text's middle line.
pub const START: Pos = Pos {
    h_pos: HPos::Left,
    v_pos: VPos::Center,
};

/// A part of a picture.
pub type Area<B> = DrawingArea<B, Shift>;

/// The error of drawing on a backend.
pub type Failure<B> = DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>;

/// A drawing.
pub trait Drawing {
    /// Returns the drawing's width and height, pixels.
    fn size(&self) -> (u32, u32);

    /// Draws on an area of the drawing's size.
    ///
    /// # Errors
    ///
    /// Fails with the backend's error.
    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Result<(), Failure<B>>;
}

/// Writes a drawing to a file, in the form that the file's extension names.
///
/// # Errors
///
/// Fails if the drawing fails, or if the file cannot be written.
pub fn save(drawing: &impl Drawing, path: &Path) -> Result<()> {
    let picture = match Form::of(path) {
        Ok(Form::Svg) => svg(drawing)?.into_bytes(),
        Ok(Form::Png) => png(drawing)?,
        Err(error) => return Err(anyhow!("{}: {error}", path.display())),
    };
    fs::write(path, picture).with_context(|| format!("writing {}", path.display()))
}

/// Returns a drawing as SVG.
///
/// # Errors
///
/// Fails with the error of the drawing.
pub fn svg(drawing: &impl Drawing) -> Result<String> {
    know_font();
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, drawing.size()).into_drawing_area();
    draw(drawing, &area)?;
    drop(area);
    Ok(text)
}

/// Returns a drawing as PNG.
///
/// # Errors
///
/// Fails if the drawing is too large, or if it cannot be drawn.
pub fn png(drawing: &impl Drawing) -> Result<Vec<u8>> {
    know_font();
    let (width, height) = drawing.size();
    ensure!(
        u64::from(width) * u64::from(height) <= MOST_PIXELS,
        "{width} x {height} pixels are too many for PNG: draw it as SVG"
    );
    let dots = (width * DENSITY * SMOOTHING, height * DENSITY * SMOOTHING);
    let mut buffer = vec![255; dots.0 as usize * dots.1 as usize * 3];
    let backend = BitMapBackend::with_buffer(&mut buffer, dots);
    let area = Scaled::new(backend, DENSITY * SMOOTHING).into_drawing_area();
    draw(drawing, &area)?;
    drop(area);

    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width * DENSITY, height * DENSITY);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&average(&buffer, dots.0 as usize))?;
    writer.finish()?;
    Ok(file)
}

fn draw<B: DrawingBackend>(drawing: &impl Drawing, area: &Area<B>) -> Result<()> {
    let result = drawing.draw(area).and_then(|()| area.present());
    result.map_err(|error| anyhow!("drawing: {error}"))
}

/// Writes a text. `place` says which point of the text is at the coordinates `at`.
///
/// # Errors
///
/// Fails with the backend's error.
pub fn label<B: DrawingBackend>(
    area: &Area<B>,
    text: &str,
    at: (i32, i32),
    size: i32,
    colour: &RGBColor,
    place: Pos,
) -> Result<(), Failure<B>> {
    let style = (FONT, size).into_font().color(colour).pos(place);
    area.draw(&Text::new(text, at, style))
}

/// Registers the program's font with plotters. This library measures all text by the font, and uses
/// the font for the text of a PNG.
fn know_font() {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| {
        // The error is ignored, because the font is a constant. If it were invalid, drawing would
        // fail and report that.
        let _ = plotters::style::register_font(FONT, FontStyle::Normal, dejavu::sans::regular());
    });
}

/// Averages each square of four dots to one pixel. `width` is the width of `dots`, in dots, and is
/// even.
fn average(dots: &[u8], width: usize) -> Vec<u8> {
    const DOT: usize = 3;
    let mut pixels = Vec::with_capacity(dots.len() / 4);
    for rows in dots.chunks_exact(2 * width * DOT) {
        let (upper, lower) = rows.split_at(width * DOT);
        for (upper, lower) in upper.chunks_exact(2 * DOT).zip(lower.chunks_exact(2 * DOT)) {
            for colour in 0..DOT {
                let sum = u16::from(upper[colour])
                    + u16::from(upper[DOT + colour])
                    + u16::from(lower[colour])
                    + u16::from(lower[DOT + colour]);
                // The mean of four bytes fits in a byte.
                pixels.push((sum / 4) as u8);
            }
        }
    }
    pixels
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::picture_file::parse_path;

    /// A drawing: a black rectangle in the left half, a text, a line and a circle.
    struct Sample;

    impl Drawing for Sample {
        fn size(&self) -> (u32, u32) {
            (80, 40)
        }

        fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<(), Failure<B>> {
            area.fill(&WHITE)?;
            area.draw(&Rectangle::new([(0, 0), (40, 40)], BLACK.filled()))?;
            area.draw(&Text::new("<x>", (50, 10), (FONT, 20)))?;
            let upwards = (FONT, 10).into_font().transform(FontTransform::Rotate270);
            area.draw(&Text::new("up", (70, 35), upwards))?;
            area.draw(&PathElement::new([(45, 35), (60, 30)], RED.stroke_width(2)))?;
            area.draw(&Circle::new((75, 20), 3, BLUE.filled()))
        }
    }

    /// Returns the width, height and pixels of a PNG.
    pub(crate) fn decode(file: &[u8]) -> (u32, u32, Vec<u8>) {
        let decoder = png::Decoder::new(std::io::Cursor::new(file));
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        pixels.truncate(info.buffer_size());
        (info.width, info.height, pixels)
    }

    #[test]
    fn svg_has_text_as_text() {
        let svg = svg(&Sample).unwrap();
        assert!(svg.starts_with("<svg width=\"80\" height=\"40\""), "{svg}");
        assert!(svg.contains("&lt;x&gt;"), "{svg}");
        assert!(svg.trim_end().ends_with("</svg>"), "{svg}");
    }

    #[test]
    fn png_is_denser_and_shows_every_element() {
        let (width, height, pixels) = decode(&png(&Sample).unwrap());
        assert_eq!((width, height), (160, 80));
        // Returns whether `is` is true of at least one pixel in a rectangle, from corner `from` to
        // corner `to`. The corners are in pixels of the drawing. Each pixel of the drawing is two
        // by two pixels of the PNG.
        let any = |from: (u32, u32), to: (u32, u32), is: fn(&[u8]) -> bool| {
            (from.1 * 2..to.1 * 2).any(|y| {
                (from.0 * 2..to.0 * 2).any(|x| {
                    let at = ((y * width + x) * 3) as usize;
                    is(&pixels[at..at + 3])
                })
            })
        };
        let black: fn(&[u8]) -> bool = |pixel| pixel.iter().all(|colour| *colour < 100);
        assert!(!any((0, 0), (39, 40), |pixel| pixel != [0, 0, 0]));
        assert!(any((50, 8), (69, 28), black), "no text");
        assert!(any((64, 20), (74, 36), black), "no text upwards");
        assert!(any((45, 28), (61, 37), |pixel| pixel[0] > 200 && pixel[1] < 100));
        assert!(any((72, 17), (79, 24), |pixel| pixel == [0, 0, 255]));
        assert!(!any((42, 1), (48, 20), |pixel| pixel != [255, 255, 255]));
    }

    #[test]
    fn too_large_a_png_is_refused_with_what_to_do() {
        struct Large;
        impl Drawing for Large {
            fn size(&self) -> (u32, u32) {
                (100_000, 100_000)
            }

            fn draw<B: DrawingBackend>(
                &self,
                _area: &DrawingArea<B, Shift>,
            ) -> Result<(), Failure<B>> {
                Ok(())
            }
        }
        let error = png(&Large).unwrap_err().to_string();
        assert!(error.contains("SVG"), "{error}");
    }

    #[test]
    fn the_name_says_the_form() {
        assert_eq!(Form::of(Path::new("a/b.svg")), Ok(Form::Svg));
        assert_eq!(Form::of(Path::new("b.PNG")), Ok(Form::Png));
        for name in ["b", "b.jpg", "svg", ".png", ""] {
            assert!(parse_path(name).unwrap_err().contains(".svg"), "{name}");
        }
        let error = save(&Sample, Path::new("absent-directory/b.svg")).unwrap_err();
        assert!(format!("{error:#}").contains("absent-directory/b.svg"));
    }

    #[test]
    fn squares_are_averaged() {
        // A row of two pixels, each of four dots.
        let row = [0, 0, 0, 100, 0, 0, 9, 9, 9, 9, 9, 9];
        let other = [0, 0, 0, 100, 0, 8, 9, 9, 9, 9, 9, 9];
        assert_eq!(average(&[row, other].concat(), 4), [50, 0, 2, 9, 9, 9]);
    }
}
