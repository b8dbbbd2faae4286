// SPDX-License-Identifier: GPL-2.0-only

//! Checks that the links of the documentation lead to existing files and headings.

mod pages;

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use pages::{anchor, files, headings, links, read, root};

/// Returns the pages whose links are checked.
fn documents() -> Vec<String> {
    let mut found: Vec<String> = [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
    ]
    .map(str::to_owned)
    .into();
    for directory in ["docs", "netgauge", "tools", "packaging"] {
        found.extend(
            files(directory)
                .into_iter()
                // The CHANGELOG.md of each crate is a symbolic link to the project's, which is in
                // the list above.
                .filter(|name| name.ends_with(".md") && !pages::root().join(name).is_symlink()),
        );
    }
    found
}

/// Returns the page's text without code, in which brackets are not links.
fn prose(page: &str) -> String {
    let mut text = String::new();
    for (number, part) in page.split("```").enumerate() {
        if number % 2 == 0 {
            text.push_str(part);
        }
    }
    text.split('`').step_by(2).collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    let titles = headings(page).into_iter().map(|heading| heading.title);
    let mut found: BTreeSet<String> = titles.map(anchor).collect();
    let ids = page.split("<a id=\"").skip(1);
    found.extend(ids.filter_map(|behind| Some(behind.split_once('"')?.0.to_owned())));
    found
}

/// Returns the path with each `..` resolved.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for step in path.components() {
        match step {
            Component::ParentDir => assert!(plain.pop(), "{}: leaves the project", path.display()),
            step => plain.push(step),
        }
    }
    plain
}

#[test]
fn each_link_leads_somewhere() {
    let mut broken = Vec::new();
    let mut followed = 0;
    for document in documents() {
        let text = prose(&read(&document));
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            followed += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                PathBuf::from(&document)
            } else {
                plain(&Path::new(&document).with_file_name("").join(file))
            };
            let is_there = root().join(&target).exists()
                && (heading.is_empty()
                    || anchors(&read(target.to_str().unwrap())).contains(heading));
            if !is_there {
                broken.push(format!("{document}: {link}"));
            }
        }
    }
    assert!(followed > 300, "only {followed} links");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn an_anchor_is_githubs() {
    assert_eq!(anchor("Lost, or only late?"), "lost-or-only-late");
    assert_eq!(anchor("The engines: `edp/`, `esp/`"), "the-engines-edp-esp");
    assert_eq!(
        anchor("burst_length and packets_to_ack"),
        "burst_length-and-packets_to_ack"
    );
}
