// SPDX-License-Identifier: GPL-2.0-only

//! Checks that the manual pages render without warnings and document every error and option.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{ensure, Context, Result};

use crate::judge::Part;
use crate::layout::Layout;

/// The module's pages. They document all errors, options and counters that programs see.
const MODULE_PAGES: [&str; 3] = ["enet.7", "edp.7", "esp.7"];

/// The programs' pages. The programs' own tests compare these pages with the options.
const PROGRAM_PAGES: [&str; 3] = ["enet.1", "enet-switch.1", "netgauge.1"];

/// Checks each page. Scenarios check whether the module behaves as the pages say.
pub fn check(layout: &Layout) -> Part {
    let mut part = Part::new("manual");
    for page in MODULE_PAGES.iter().chain(&PROGRAM_PAGES) {
        part.take(page, lint(layout, page));
    }
    part.take("errors", errors(layout));
    part.take("options", options(layout));
    part.take("counters", counters(layout));
    part
}

fn read(layout: &Layout, path: &str) -> Result<String> {
    fs::read_to_string(layout.project.join(path)).with_context(|| path.to_owned())
}

/// Returns all pages of the module, concatenated.
fn all(layout: &Layout) -> Result<String> {
    MODULE_PAGES
        .iter()
        .map(|page| read(layout, &format!("docs/man/{page}")))
        .collect()
}

/// Returns the words of `text` that begin with `prefix` and consist of capitals, digits and
/// underscores.
fn names<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(move |word| word.len() > prefix.len() && word.starts_with(prefix))
        .filter(|word| !word.contains(|c: char| c.is_ascii_lowercase()))
}

/// Checks that the pages document every error in the module's sources that programs can get.
/// Internal errors are exempt.
fn errors(layout: &Layout) -> Result<()> {
    const INTERNAL: [&str; 3] = ["EEXIST", "ENOENT", "ENOIOCTLCMD"];
    let pages = all(layout)?;
    let listed = read(layout, "rust/errno.rs")?;
    let (_, listed) = listed
        .split_once("errnos! {")
        .context("rust/errno.rs has no list")?;
    let listed: BTreeSet<_> = names(listed, "E").collect();
    let mut directories = vec![layout.project.join("enet")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let source = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            for error in names(&source, "E").filter(|name| listed.contains(name)) {
                ensure!(
                    INTERNAL.contains(&error) || pages.contains(&format!(" Er {error}")),
                    "{error} of {} is in no page",
                    path.display()
                );
            }
        }
    }
    Ok(())
}

/// Checks that the pages document every socket option in `af_enet.h`, the header for programs.
fn options(layout: &Layout) -> Result<()> {
    let pages = all(layout)?;
    let header = read(layout, "tools/sockaddr_en/include/af_enet.h")?;
    for option in names(&header, "EDP_").chain(names(&header, "ESP_")) {
        ensure!(
            pages.contains(&format!(".Dv {option}")) || pages.contains(&format!(".It Dv {option}")),
            "{option} is in no page"
        );
    }
    Ok(())
}

/// Checks that `enet.7` documents every counter exactly once.
fn counters(layout: &Layout) -> Result<()> {
    let page = read(layout, "docs/man/enet.7")?;
    let source = read(layout, "enet/statistics.rs")?;
    let listed = source
        .split_once("\nstatistics! {")
        .and_then(|(_, rest)| rest.split_once("\n}"))
        .context("enet/statistics.rs has no list")?
        .0;
    let described: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix(".It Va "))
        .flat_map(|line| line.split(" , "))
        .collect();
    for counter in listed
        .lines()
        .filter_map(|line| line.trim().strip_suffix(','))
    {
        let count = described.iter().filter(|name| **name == counter).count();
        ensure!(count == 1, "enet.7 describes {counter} {count} times");
    }
    Ok(())
}

fn lint(layout: &Layout, page: &str) -> Result<()> {
    let path = layout.project.join("docs/man").join(page);
    let lint = Command::new("mandoc")
        .args(["-T", "lint", "-W", "warning"])
        .arg(&path)
        .output()
        .context("mandoc")?;
    let said = String::from_utf8_lossy(&lint.stdout);
    ensure!(
        lint.status.success() && said.is_empty(),
        "{page}: {}",
        said.trim()
    );
    let shown = Command::new("mandoc")
        .args(["-T", "utf8"])
        .arg(&path)
        .output()
        .context("mandoc")?;
    ensure!(
        shown.status.success() && shown.stdout.len() > 1000,
        "{page} is shown in {} bytes",
        shown.stdout.len()
    );
    Ok(())
}
