// SPDX-License-Identifier: GPL-2.0-only

//! Checks that `docs/review.md` is up to date: each file of `rust/` has its row, and each name on
//! the page exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the files below a directory, relative to the root.
fn files(directory: &str) -> Vec<String> {
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

/// Returns the cells of the table after a heading, by row, without the table's head.
fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, behind) = page.split_once(heading).expect(heading);
    let rows = behind
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let inner = line.trim_matches('|');
        inner
            .split(" | ")
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    rows.skip(2).map(cells).collect()
}

fn page() -> String {
    fs::read_to_string(root().join("docs/review.md")).unwrap()
}

/// Returns the texts between backticks.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn each_file_of_rust_has_its_counterpart() {
    let sources: BTreeSet<String> = files("rust")
        .into_iter()
        .filter(|name| [".rs", ".c", ".h"].iter().any(|end| name.ends_with(end)))
        .collect();
    let page = page();
    let rows = table(&page, "## Counterparts");
    let told: Vec<String> = rows
        .iter()
        .map(|row| row[0].trim_matches('`').to_owned())
        .collect();
    assert!(told.is_sorted(), "the rows are in the order of names");
    let told: BTreeSet<String> = told.into_iter().collect();
    let missing: Vec<_> = sources.difference(&told).collect();
    assert!(missing.is_empty(), "without a row: {missing:?}");
    let gone: Vec<_> = told.difference(&sources).collect();
    assert!(gone.is_empty(), "a row without its file: {gone:?}");
    assert!(rows.iter().all(|row| row.len() == 3), "three cells a row");
}

#[test]
fn each_check_that_the_page_names_is_there() {
    let tests: Vec<String> = files("tests")
        .into_iter()
        .filter(|name| name.ends_with(".rs") && !name.ends_with("tests/review.rs"))
        .map(|name| fs::read_to_string(root().join(name)).unwrap())
        .chain([fs::read_to_string(root().join("Makefile")).unwrap()])
        .collect();
    let page = page();
    let rows = table(&page, "## Kinds of fault");
    assert!(rows.len() > 10, "{} kinds", rows.len());
    for row in rows {
        for name in names(&row[2]) {
            let is_there = if name.contains('/') {
                root().join(name).exists()
            } else {
                let word = name.split(' ').next().unwrap_or(name);
                tests.iter().any(|text| text.contains(word))
            };
            assert!(is_there, "{}: there is no {name}", row[0]);
        }
    }
}

#[test]
fn the_page_is_found() {
    let development = fs::read_to_string(root().join("docs/development.md")).unwrap();
    assert!(development.contains("(review.md)"));
}
