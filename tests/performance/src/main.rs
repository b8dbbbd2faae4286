// SPDX-License-Identifier: GPL-2.0-only

//! Redraws the figures of Reinhardt (2006) and Treydte (2007) from the results of `make
//! performance`, and writes `docs/performance.md`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use performance::page;
use performance::results::Results;

/// Writes the page with its pictures; fails if a transport could not be measured.
#[derive(Debug, Parser)]
struct Options {
    /// File of the results that the runner has stored.
    results: PathBuf,
    /// Directory in which to write the page; its pictures are in a directory beside it.
    docs: PathBuf,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the page and its pictures. Returns true if every transport was measured.
fn run(options: &Options) -> Result<bool> {
    let results = Results::load(&options.results)?;
    let page = page::write(&results)?;
    let pictures = options.docs.join(page::PICTURES);
    // Removes all old pictures, because some may no longer be drawn.
    if pictures.exists() {
        fs::remove_dir_all(&pictures).with_context(|| pictures.display().to_string())?;
    }
    fs::create_dir_all(&pictures).with_context(|| pictures.display().to_string())?;
    for (name, svg) in &page.pictures {
        let path = pictures.join(name);
        fs::write(&path, svg).with_context(|| path.display().to_string())?;
    }
    let path = options.docs.join("performance.md");
    fs::write(&path, &page.text).with_context(|| path.display().to_string())?;
    let count = page.pictures.len();
    eprintln!("{} and {count} pictures beside it", path.display());
    let failures = results.failures();
    for failure in &failures {
        eprintln!("not measured: {failure}");
    }
    Ok(failures.is_empty())
}
