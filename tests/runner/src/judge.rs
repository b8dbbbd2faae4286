// SPDX-License-Identifier: GPL-2.0-only

//! Counts passed and failed tests, and parses the results that guests print.

use std::collections::BTreeMap;
use std::fmt;

/// Taint bits that a healthy run never sets: bad page, died, warned and lockup.
/// Source: Documentation/admin-guide/tainted-kernels.rst.
const BAD_TAINTS: u64 = (1 << 5) | (1 << 7) | (1 << 9) | (1 << 14);

/// Returns whether the taint bits show that the kernel detected a fault, even a fault that it did
/// not print on the console.
pub fn badly_tainted(bits: u64) -> bool {
    bits & BAD_TAINTS != 0
}

/// One part of the tests with its results.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The part's name.
    pub name: String,
    /// Number of tests that passed.
    pub passed: u64,
    /// The tests that failed, each with its reason.
    pub failed: Vec<String>,
    /// The tests that this kernel cannot run.
    pub left_out: Vec<String>,
}

impl Part {
    /// Returns an empty part.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Returns a part that has one test.
    pub fn single<T>(name: &str, outcome: anyhow::Result<T>) -> Self {
        let mut part = Self::new(name);
        part.take(name, outcome);
        part
    }

    /// Counts a test. Prints a failure in full at once, and keeps its first line.
    pub fn take<T>(&mut self, test: &str, outcome: anyhow::Result<T>) {
        match outcome {
            Ok(_) => self.passed += 1,
            Err(error) => {
                let story = format!("{error:#}");
                eprintln!("{story}");
                let first = story.lines().next().unwrap_or_default();
                self.failed.push(format!("{test}: {first}"));
            }
        }
    }
}

/// All parts of the tests. `Display` prints a table, the failures, and a last line that has only
/// the counts.
#[derive(Debug, Default)]
pub struct Total(pub Vec<Part>);

impl Total {
    /// Returns whether nothing failed and at least one test passed.
    pub fn good(&self) -> bool {
        self.0.iter().all(|part| part.failed.is_empty())
            && self.0.iter().any(|part| part.passed > 0)
    }
}

impl fmt::Display for Total {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|part| part.name.len()).max().unwrap_or(0);
        writeln!(out, "{:width$}  {:>6}  {:>6}", "", "passed", "failed")?;
        for part in &self.0 {
            let failed = part.failed.len();
            writeln!(out, "{:width$}  {:>6}  {failed:>6}", part.name, part.passed)?;
        }
        for part in &self.0 {
            for failure in &part.failed {
                writeln!(out, "failed: {}: {failure}", part.name)?;
            }
        }
        let passed: u64 = self.0.iter().map(|part| part.passed).sum();
        let failed: usize = self.0.iter().map(|part| part.failed.len()).sum();
        write!(out, "{passed} passed, {failed} failed")?;
        match self.0.iter().map(|part| part.left_out.len()).sum() {
            0usize => Ok(()),
            left_out => write!(out, ", {left_out} left out"),
        }
    }
}

/// The requested scenarios and their results.
#[derive(Debug)]
pub struct Scenarios {
    awaited: BTreeMap<String, Option<Result<(), String>>>,
    unasked: Vec<String>,
    /// The reports on behaviours, by name. A behaviour is a test that ran over ESP or EDP and was
    /// compared with TCP or UDP.
    compared: BTreeMap<String, String>,
}

impl Scenarios {
    /// Returns a record that expects a result of each scenario in `names`.
    pub fn awaiting(names: impl IntoIterator<Item = String>) -> Self {
        Self {
            awaited: names.into_iter().map(|name| (name, None)).collect(),
            unasked: Vec::new(),
            compared: BTreeMap::new(),
        }
    }

    /// Formats the table of behaviours (tests over ESP or EDP) that were compared with TCP or UDP;
    /// `None` if no behaviour was compared.
    pub fn comparison(&self) -> Option<String> {
        let width = self.compared.keys().map(String::len).max()?;
        let mut table = String::new();
        for (name, report) in &self.compared {
            table += &format!("{name:width$}  {report}\n");
        }
        let same = |report: &&String| report.starts_with("same");
        let same = self.compared.values().filter(same).count();
        let other = self.compared.len() - same;
        Some(format!(
            "{table}{} behaviours like TCP's and UDP's: {same} the same, {other} with differences that docs/sockets.md explains",
            self.compared.len()
        ))
    }

    /// Handles a line that a guest's program printed; returns true if the line is a result.
    pub fn hear(&mut self, line: &str) -> bool {
        if let Some((name, report)) = line
            .strip_prefix("= ")
            .and_then(|rest| rest.split_once(": "))
        {
            self.compared.insert(name.to_owned(), report.to_owned());
            return false;
        }
        let (name, outcome) = if let Some(rest) = line.strip_prefix("not ok ") {
            let (name, reason) = rest.split_once(": ").unwrap_or((rest, "no reason given"));
            (name, Err(reason.to_owned()))
        } else if let Some(name) = line.strip_prefix("ok ") {
            (name, Ok(()))
        } else {
            return false;
        };
        match self.awaited.get_mut(name.trim()) {
            // A second report of a scenario does not replace a failure.
            Some(Some(Err(_))) => {}
            Some(known) => *known = Some(outcome),
            None => self.unasked.push(name.to_owned()),
        }
        true
    }

    /// Adds the results to `part`; a scenario without a report has failed.
    pub fn conclude(self, part: &mut Part) {
        for (name, outcome) in self.awaited {
            match outcome {
                Some(Ok(())) => part.passed += 1,
                Some(Err(reason)) => part.failed.push(format!("{name}: {reason}")),
                None => part.failed.push(format!("{name}: did not report")),
            }
        }
        for name in self.unasked {
            part.failed
                .push(format!("{name}: reported, but --list does not name it"));
        }
    }
}

/// Parses the output of `cargo test`. Returns the number of passed tests, and the names of the
/// failed tests.
pub fn cargo_test(output: &str) -> (u64, Vec<String>) {
    let mut passed = 0;
    let mut failed = Vec::new();
    for line in output.lines() {
        if let Some(counts) = line.strip_prefix("test result: ") {
            let count = counts
                .split([';', '.'])
                .find_map(|part| part.trim().strip_suffix(" passed"));
            passed += count
                .and_then(|text| text.trim().parse::<u64>().ok())
                .unwrap_or(0);
        } else if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            failed.push(name.to_owned());
        }
    }
    (passed, failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part_of(scenarios: Scenarios) -> Part {
        let mut part = Part::new("scenarios");
        scenarios.conclude(&mut part);
        part
    }

    #[test]
    fn silent_scenarios_fail() {
        let mut scenarios = Scenarios::awaiting(["a", "b", "c"].map(str::to_owned));
        assert!(scenarios.hear("ok a"));
        assert!(scenarios.hear("not ok b: ENODEV: no such device"));
        assert!(!scenarios.hear("# a remark"));
        let part = part_of(scenarios);
        assert_eq!(part.passed, 1);
        assert_eq!(
            part.failed,
            ["b: ENODEV: no such device", "c: did not report"]
        );
    }

    #[test]
    fn failures_stay_and_strangers_count_as_failures() {
        let mut scenarios = Scenarios::awaiting(["a".to_owned()]);
        scenarios.hear("not ok a: once");
        scenarios.hear("ok a");
        scenarios.hear("ok x");
        let part = part_of(scenarios);
        assert_eq!(part.passed, 0);
        assert_eq!(part.failed.len(), 2);
    }

    #[test]
    fn cargo_counts_are_added_up() {
        let output = "running 2 tests\ntest a ... ok\ntest b::c ... FAILED\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: ok. 41 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.10s\n";
        assert_eq!(cargo_test(output), (42, vec!["b::c".to_owned()]));
    }

    #[test]
    fn taints_of_faults_are_told_from_those_of_loading() {
        // Loading the module sets these taints: out of tree, and unsigned.
        assert!(!badly_tainted((1 << 12) | (1 << 13)));
        assert!(badly_tainted((1 << 12) | (1 << 9)));
    }

    #[test]
    fn the_last_line_is_the_count() {
        let good = Total(vec![Part {
            name: "crates".to_owned(),
            passed: 3,
            failed: vec![],
            left_out: vec![],
        }]);
        assert!(good.good());
        assert_eq!(good.to_string().lines().last(), Some("3 passed, 0 failed"));
        let mut partial = good;
        partial.0[0].left_out.push("a_clock".to_owned());
        assert!(partial.good());
        assert!(partial
            .to_string()
            .ends_with("3 passed, 0 failed, 1 left out"));
        let bad = Total(vec![Part::single::<()>(
            "module",
            Err(anyhow::anyhow!("no\nmore")),
        )]);
        assert!(!bad.good());
        assert!(!Total::default().good());
        assert!(bad
            .to_string()
            .contains("failed: module: module: no\n0 passed, 1 failed"));
    }
}
