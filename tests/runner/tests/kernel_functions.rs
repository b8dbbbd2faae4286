// SPDX-License-Identifier: GPL-2.0-only

//! Checks that `docs/kernel-functions.md` is complete and up to date. Each kernel function in use
//! by `rust/` must have a row with the files that call the function.

mod pages;

use std::collections::{BTreeMap, BTreeSet};

use pages::{files, names, read, table};

fn page() -> String {
    read("docs/kernel-functions.md")
}

/// Returns all names that match a pattern of bindgen, such as `sock_(un)?register` or `a_(b|c)`.
fn expand(pattern: &str) -> BTreeSet<String> {
    let Some(end) = pattern.find(')') else {
        return BTreeSet::from([pattern.to_owned()]);
    };
    let begin = pattern[..end].rfind('(').expect("an opening bracket");
    let (before, inner, behind) = (
        &pattern[..begin],
        &pattern[begin + 1..end],
        &pattern[end + 1..],
    );
    let (is_optional, behind) = match behind.strip_prefix('?') {
        Some(behind) => (true, behind),
        None => (false, behind),
    };
    inner
        .split('|')
        .chain(is_optional.then_some(""))
        .flat_map(|choice| expand(&format!("{before}{choice}{behind}")))
        .collect()
}

/// Returns the functions that `rust/bindings.allow` lets `rust/` call, except the wrappers in
/// `rust/helpers.c`.
fn allowed() -> BTreeSet<String> {
    read("rust/bindings.allow")
        .lines()
        .filter_map(|line| line.strip_prefix("--allowlist-function "))
        .filter(|pattern| !pattern.starts_with("rust_helper_"))
        .flat_map(expand)
        .collect()
}

/// Returns each function of [`allowed`] that is called, with the calling files.
fn called() -> BTreeMap<String, BTreeSet<String>> {
    let allowed = allowed();
    let mut called: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let sources = files("rust")
        .into_iter()
        .filter(|name| name.ends_with(".rs"));
    for source in sources {
        let text = read(&source);
        let file = source.strip_prefix("rust/").unwrap().to_owned();
        for behind in text.split("bindings::").skip(1) {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let name: String = behind.chars().take_while(|c| is_name(*c)).collect();
            if allowed.contains(&name) {
                called.entry(name).or_default().insert(file.clone());
            }
        }
    }
    called
}

/// Returns the names of the wrappers in `rust/helpers.c`.
fn wrappers() -> BTreeSet<String> {
    let source = read("rust/helpers.c");
    let name = |line: &str| {
        let (_, behind) = line.strip_prefix("H(")?.split_once(", ")?;
        Some(behind.split_once(',')?.0.to_owned())
    };
    source.lines().filter_map(name).collect()
}

fn listed(rows: &[Vec<String>]) -> BTreeSet<String> {
    let all: Vec<&str> = rows.iter().flat_map(|row| names(&row[0])).collect();
    let listed: BTreeSet<String> = all.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(listed.len(), all.len(), "a name has two rows");
    listed
}

#[test]
fn each_function_has_a_row() {
    let page = page();
    let rows = table(&page, "## Functions");
    let called = called();
    assert!(called.len() > 80, "only {} functions", called.len());
    assert_eq!(listed(&rows), called.keys().cloned().collect());
    for row in &rows {
        assert_eq!(row.len(), 4, "{row:?}");
        assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        let callers: BTreeSet<&str> = names(&row[0])
            .iter()
            .flat_map(|name| &called[*name])
            .map(String::as_str)
            .collect();
        let told: BTreeSet<&str> = names(&row[1]).into_iter().collect();
        assert_eq!(told, callers, "{}", row[0]);
    }
}

#[test]
fn each_wrapper_has_a_row() {
    let page = page();
    let rows = table(&page, "## Inlines and macros");
    assert!(rows.iter().all(|row| row.len() == 3 && !row[2].is_empty()));
    assert_eq!(listed(&rows), wrappers());
}

/// Fails if a function in `bindings.allow` is never called. The pattern for `sysctl` is exempt,
/// because it lists functions of several kernel versions.
#[test]
fn each_allowed_function_is_called() {
    let called = called();
    let unused: Vec<String> = allowed()
        .into_iter()
        .filter(|name| !called.contains_key(name) && !name.contains("sysctl"))
        .collect();
    assert!(unused.is_empty(), "{unused:?}");
}

#[test]
fn patterns_are_expanded() {
    let names = |pattern| Vec::from_iter(expand(pattern));
    assert_eq!(names("a"), ["a"]);
    assert_eq!(names("(un)?register"), ["register", "unregister"]);
    assert_eq!(names("a_(b_(c|d)|e)"), ["a_b_c", "a_b_d", "a_e"]);
}

#[test]
fn the_page_is_found() {
    assert!(read("docs/using.md").contains("(kernel-functions.md)"));
}
