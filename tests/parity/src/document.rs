// SPDX-License-Identifier: GPL-2.0-only

//! Checks that `docs/sockets.md` lists exactly the declared differences of all behaviours. A
//! behaviour is a test that runs once per family of protocols.

use std::collections::BTreeSet;

const DOCUMENT: &str = include_str!("../../../docs/sockets.md");

/// Returns the rows of the table without their last column. Each row is about a note: a result that
/// a behaviour observes, under a label. The columns are the behaviour's name, the note's label, the
/// result over TCP or UDP, the result over ESP or EDP, and the reason for the difference.
fn rows() -> BTreeSet<[String; 4]> {
    DOCUMENT
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            assert_eq!(cells.len(), 5, "not five cells: {line}");
            assert!(cells[4].len() > 10, "no reason: {line}");
            // Markdown escapes a bar in a cell.
            let cell = |index: usize| cells[index].trim_matches('`').replace("\\|", "|");
            [cell(0), cell(1), cell(2), cell(3)]
        })
        .collect()
}

#[test]
fn differences_are_those_of_the_document() {
    let mut declared = BTreeSet::new();
    for comparison in crate::comparisons() {
        // The table has no rows for mapped sockets of IPv6, because the rows for IPv4 hold for
        // both.
        let name = comparison.name.replace("mapped_esp6_", "mapped_esp_");
        for known in comparison.differences {
            declared.insert([&name, known.what, known.inet, known.enet].map(String::from));
        }
    }
    let rows = rows();
    let missing: Vec<_> = declared.difference(&rows).collect();
    let stale: Vec<_> = rows.difference(&declared).collect();
    assert!(missing.is_empty(), "not in docs/sockets.md: {missing:#?}");
    assert!(stale.is_empty(), "only in docs/sockets.md: {stale:#?}");
}
