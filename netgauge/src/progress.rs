// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shows the user the progress of a run while it lasts.

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::Report;

/// A receiver of a run's progress.
pub trait Progress {
    /// Reports that the run measures a transport with a pattern from now on.
    fn begin(&self, _transport: &str, _pattern: &str) {}
    /// Reports that this many more sizes are done.
    fn advance(&self, _sizes: u64) {}
    /// Receives the report that would result if the run ended now. Patterns between two hosts call
    /// this function at the beginning of each run and after each size.
    fn measured(&self, _so_far: Report) {}
}

/// A receiver that ignores the progress.
#[derive(Debug)]
pub struct Quiet;

impl Progress for Quiet {}

/// A progress bar on standard error, hidden unless standard error is a terminal. The bar is drawn
/// between two sizes, never while a time is measured.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// Creates a bar for a run of `sizes` sizes in all.
    pub fn new(sizes: u64) -> Self {
        // The template is a constant; if it were wrong, the plain bar would be shown.
        let style = ProgressStyle::with_template("{msg:14} {bar:40} {pos}/{len} sizes")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(ProgressBar::new(sizes).with_style(style))
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

impl Progress for Bar {
    fn begin(&self, transport: &str, pattern: &str) {
        self.0.set_message(format!("{transport} {pattern}"));
        self.0.tick();
    }

    fn advance(&self, sizes: u64) {
        self.0.inc(sizes);
    }
}
