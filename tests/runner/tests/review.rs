// SPDX-License-Identifier: GPL-2.0-only

//! Checks that `docs/review.md` is up to date: each file of `rust/` has a row, and each name on the
//! page exists.

mod pages;

use std::collections::BTreeSet;

use pages::{files, names, read, root, table};

fn page() -> String {
    read("docs/review.md")
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
        .map(|name| read(&name))
        .chain([read("Makefile")])
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
    assert!(read("docs/development.md").contains("(review.md)"));
}
