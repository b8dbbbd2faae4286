// SPDX-License-Identifier: MIT OR Apache-2.0

//! A backend that draws everything larger on another backend, including lines and text.

use plotters::prelude::*;
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingErrorKind,
};

/// A backend that wraps `inner`, and appears to be smaller than `inner` by an integer factor.
pub(super) struct Scaled<B> {
    inner: B,
    factor: u32,
}

/// The result of drawing.
type Drawn<B> = Result<(), DrawingErrorKind<<B as DrawingBackend>::ErrorType>>;

/// A style with a wider stroke.
struct Wide {
    color: BackendColor,
    width: u32,
}

impl BackendStyle for Wide {
    fn color(&self) -> BackendColor {
        self.color
    }

    fn stroke_width(&self) -> u32 {
        self.width
    }
}

impl<B: DrawingBackend> Scaled<B> {
    pub(super) fn new(inner: B, factor: u32) -> Self {
        Self { inner, factor }
    }

    fn place(&self, (x, y): BackendCoord) -> BackendCoord {
        let factor = self.factor as i32;
        (x * factor, y * factor)
    }

    fn style<S: BackendStyle>(&self, style: &S) -> Wide {
        Wide {
            color: style.color(),
            width: style.stroke_width() * self.factor,
        }
    }
}

impl<B: DrawingBackend> DrawingBackend for Scaled<B> {
    type ErrorType = B::ErrorType;

    fn get_size(&self) -> (u32, u32) {
        let (width, height) = self.inner.get_size();
        (width / self.factor, height / self.factor)
    }

    fn ensure_prepared(&mut self) -> Drawn<B> {
        self.inner.ensure_prepared()
    }

    fn present(&mut self) -> Drawn<B> {
        self.inner.present()
    }

    fn draw_pixel(&mut self, point: BackendCoord, color: BackendColor) -> Drawn<B> {
        let (x, y) = self.place(point);
        let last = self.factor as i32 - 1;
        self.inner
            .draw_rect((x, y), (x + last, y + last), &color, true)
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Drawn<B> {
        let (from, to, style) = (self.place(from), self.place(to), self.style(style));
        self.inner.draw_line(from, to, &style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        upper_left: BackendCoord,
        bottom_right: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Drawn<B> {
        let corners = (self.place(upper_left), self.place(bottom_right));
        let style = self.style(style);
        self.inner.draw_rect(corners.0, corners.1, &style, fill)
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn<B> {
        let path: Vec<_> = path.into_iter().map(|point| self.place(point)).collect();
        let style = self.style(style);
        self.inner.draw_path(path, &style)
    }

    fn draw_circle<S: BackendStyle>(
        &mut self,
        center: BackendCoord,
        radius: u32,
        style: &S,
        fill: bool,
    ) -> Drawn<B> {
        let (center, radius) = (self.place(center), radius * self.factor);
        let style = self.style(style);
        self.inner.draw_circle(center, radius, &style, fill)
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        corners: I,
        style: &S,
    ) -> Drawn<B> {
        let corners: Vec<_> = corners.into_iter().map(|point| self.place(point)).collect();
        self.inner.fill_polygon(corners, &style.color())
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        at: BackendCoord,
    ) -> Drawn<B> {
        let size = style.size() * f64::from(self.factor);
        let font = FontDesc::new(style.family(), size, style.style()).transform(style.transform());
        let style = TextStyle {
            font,
            color: style.color(),
            pos: style.anchor(),
        };
        let at = self.place(at);
        self.inner.draw_text(text, &style, at)
    }
}
