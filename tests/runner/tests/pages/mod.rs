// SPDX-License-Identifier: GPL-2.0-only

//! Helpers for the tests of the documentation. They find files, tables, links, and texts between
//! backticks.

#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::path::{Path, PathBuf};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads a file by its name relative to the project's root.
pub fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the files below a directory, relative to the project's root.
pub fn files(directory: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(directory)).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{directory}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&name));
        } else {
            found.push(name);
        }
    }
    found
}

/// Returns the cells of the first table after a heading, by row, without the table's head.
pub fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, behind) = page.split_once(heading).expect(heading);
    let rows = behind
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let inner = line
            .strip_prefix('|')
            .and_then(|line| line.strip_suffix('|'));
        inner
            .expect("a row begins and ends with a bar")
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    rows.skip(2).map(cells).collect()
}

/// Returns the texts between backticks.
pub fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Returns the targets of a text's links.
pub fn links(text: &str) -> Vec<&str> {
    text.split("](")
        .skip(1)
        .filter_map(|behind| Some(behind.split_once(')')?.0))
        .collect()
}

/// Returns a heading's anchor, as GitHub makes it.
pub fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            _ => c.is_alphanumeric().then_some(c),
        })
        .collect()
}

/// A heading of a page.
pub struct Heading<'a> {
    /// The number of the page's line, from 0 on.
    line: usize,
    level: usize,
    pub title: &'a str,
}

/// Returns the headings of a page, without lines of code that look like one.
pub fn headings(page: &str) -> Vec<Heading<'_>> {
    let mut is_code = false;
    let mut found = Vec::new();
    for (line, text) in page.lines().enumerate() {
        is_code ^= text.trim_start().starts_with("```");
        let title = text.trim_start_matches('#');
        let level = text.len() - title.len();
        if level > 0 && !is_code {
            let title = title.trim();
            found.push(Heading { line, level, title });
        }
    }
    found
}

/// Returns the part of a page below the heading with this anchor, with the headings below it.
pub fn section(page: &str, wanted: &str) -> String {
    let mut headings = headings(page).into_iter();
    let Some(begin) = headings.find(|heading| anchor(heading.title) == wanted) else {
        return String::new();
    };
    let end = headings.find(|heading| heading.level <= begin.level);
    let lines = end.map_or(usize::MAX, |end| end.line - begin.line);
    let text: Vec<_> = page.lines().skip(begin.line).take(lines).collect();
    text.join("\n")
}
