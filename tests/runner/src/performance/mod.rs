//! `make performance`: measures, draws the theses' figures anew, and writes `docs/performance.md`.

mod measure;
mod overheads;
mod page;
mod results;
mod streams;
mod words;

use std::fs;

use anyhow::{Context, Result};
use clap::Args;

use self::results::Results;
use crate::layout::Layout;
use crate::step;

/// What is done.
#[derive(Debug, Args)]
pub struct Options {
    /// Measure nothing, and write the page from what was measured last
    #[arg(long)]
    redraw: bool,
}

/// Writes the page and its pictures; true when every transport could be measured.
///
/// # Errors
/// When something does not build, a guest does not boot, its kernel reports a fault, or a file cannot be written.
pub fn run(layout: &Layout, options: &Options) -> Result<bool> {
    let kept = layout.build().join("performance.json");
    let results = if options.redraw {
        Results::load(&kept)?
    } else {
        let results = measure::everything(layout)?;
        results.save(&kept)?;
        results
    };
    let page = page::write(&results)?;
    let docs = layout.project.join("docs");
    let pictures = docs.join(page::PICTURES);
    // A picture that is no longer drawn is not to stay.
    if pictures.exists() {
        fs::remove_dir_all(&pictures).with_context(|| pictures.display().to_string())?;
    }
    fs::create_dir_all(&pictures).with_context(|| pictures.display().to_string())?;
    for (name, svg) in &page.pictures {
        let path = pictures.join(name);
        fs::write(&path, svg).with_context(|| path.display().to_string())?;
    }
    let path = docs.join("performance.md");
    fs::write(&path, &page.text).with_context(|| path.display().to_string())?;
    step::say(&format!(
        "{} and {} pictures beside it",
        path.display(),
        page.pictures.len()
    ));
    let failures = results.failures();
    for failure in &failures {
        eprintln!("not measured: {failure}");
    }
    Ok(failures.is_empty())
}
