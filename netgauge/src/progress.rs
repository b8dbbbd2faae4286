// SPDX-License-Identifier: MIT OR Apache-2.0

//! How far a run is, for a person who watches.

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::Report;

/// Is told how far a run is.
pub trait Progress {
    /// A transport is measured with a pattern from now on.
    fn begin(&self, _transport: &str, _pattern: &str) {}
    /// So many more sizes are done.
    fn advance(&self, _sizes: u64) {}
    /// The report if the run ended here. Patterns of two tell it at the beginning of each
    /// run, and after each size.
    fn measured(&self, _so_far: Report) {}
}

/// Nobody watches.
#[derive(Debug)]
pub struct Quiet;

impl Progress for Quiet {}

/// A bar on standard error if that is a terminal. It is drawn between two sizes, never while the
/// clock runs.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar for so many sizes in all.
    pub fn new(sizes: u64) -> Self {
        // The template is constant; were it wrong, the plain bar would do.
        let style = ProgressStyle::with_template("{msg:14} {bar:40} {pos}/{len} sizes")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(ProgressBar::new(sizes).with_style(style))
    }

    /// Takes the bar away.
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
