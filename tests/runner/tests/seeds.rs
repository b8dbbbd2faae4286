// SPDX-License-Identifier: GPL-2.0-only

//! Checks that the figures, counts, cited numbers and commands in `docs/seeds.md` are complete and
//! up to date.

mod pages;

use std::collections::BTreeSet;

use pages::{files, links, names, read, root, section, table};

const STATES: [&str; 4] = ["shown", "differs", "not measured", "not built"];

/// A paper: its heading, and the numbers of its figures and tables.
struct Paper {
    heading: &'static str,
    figures: &'static [&'static str],
    tables: &'static [&'static str],
}

const PAPERS: [Paper; 5] = [
    Paper {
        heading: "Reinhardt 2006",
        figures: &[
            "2.1.1", "2.2.1", "2.2.2", "2.3.1", "2.3.2", "4.1.1", "4.3.1", "4.3.2", "4.3.3",
            "4.3.4", "4.4.1", "4.4.2", "4.4.3", "4.4.4", "5.1.1", "5.2.1", "5.3.1", "5.3.2",
            "5.3.3", "5.3.4", "5.3.5", "5.3.6", "5.3.7", "6.1.1", "6.4.1", "6.4.2", "6.4.3",
            "6.4.4", "6.4.5", "6.4.6",
        ],
        tables: &[],
    },
    Paper {
        heading: "Treydte 2007",
        figures: &[
            "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16",
            "17", "18", "19", "20", "21",
        ],
        tables: &["1", "2"],
    },
    Paper {
        heading: "Seifert and Kohmann 2004",
        figures: &["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"],
        tables: &["1"],
    },
    Paper {
        heading: "Balaji and others 2002",
        figures: &[
            "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16",
            "17",
        ],
        tables: &[],
    },
    Paper {
        heading: "Csanady and Wyckoff 1998",
        figures: &["1", "2", "3", "4", "5", "6"],
        tables: &[],
    },
];

fn page() -> String {
    read("docs/seeds.md")
}

fn rows(page: &str, paper: &Paper) -> Vec<Vec<String>> {
    table(page, &format!("\n## {}\n", paper.heading))
}

/// Returns all rows of the page's tables, each with the heading of the paper that it belongs to.
fn all_rows() -> Vec<(&'static str, Vec<String>)> {
    let page = page();
    let of = |paper: &Paper| {
        let heading = paper.heading;
        rows(&page, paper)
            .into_iter()
            .map(move |row| (heading, row))
    };
    PAPERS.iter().flat_map(of).collect()
}

/// Returns the state, the word in bold with which a row's last cell begins.
fn state(row: &[String]) -> &'static str {
    let cell = row.last().unwrap();
    let is = |state: &&&str| cell.starts_with(&format!("**{state}**"));
    STATES
        .iter()
        .find(is)
        .unwrap_or_else(|| panic!("no state: {cell}"))
}

/// Returns the numbers that follow a word, as in "figures 1, 2".
fn numbers_behind<'a>(cell: &'a str, word: &str) -> Vec<&'a str> {
    let tokens: Vec<&str> = cell
        .split_whitespace()
        .map(|token| token.trim_matches([',', ';']))
        .collect();
    let plural = format!("{word}s");
    let begin = tokens
        .iter()
        .position(|token| *token == word || *token == plural);
    let is_number = |token: &&&str| token.starts_with(|c: char| c.is_ascii_digit());
    begin.map_or_else(Vec::new, |begin| {
        tokens[begin + 1..]
            .iter()
            .take_while(is_number)
            .copied()
            .collect()
    })
}

/// Returns the numbers in a text: digits with commas and points.
fn numbers(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_alphanumeric() || ",._".contains(c)))
        .map(|token| token.trim_end_matches([',', '.']))
        .filter(|token| token.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
        .filter(|token| {
            token
                .chars()
                .all(|c| c.is_ascii_digit() || ",.".contains(c))
        })
        .collect()
}

/// Returns whether a name matches a pattern, in which `*` stands for any text.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(behind) = name.strip_prefix(start) else {
        return false;
    };
    (0..=behind.len()).any(|at| fits(rest, &behind[at..]))
}

/// Returns the words of a text.
fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_alphanumeric() || "_-".contains(c)))
        .collect()
}

/// Returns the words in the tests' sources, among them the names of scenarios and studies.
fn words_of_tests() -> BTreeSet<String> {
    let sources = files("tests")
        .into_iter()
        .filter(|name| name.ends_with(".rs"));
    let texts: Vec<String> = sources.map(|name| read(&name)).collect();
    let words = texts.iter().flat_map(|text| words(text));
    words.map(str::to_owned).collect()
}

/// Returns the values that a command gives to a variable or an option, as in `ONLY="a b"` or `-m
/// a,b`.
fn given<'a>(command: &'a str, name: &str) -> Vec<&'a str> {
    let Some((_, behind)) = command.split_once(name) else {
        return Vec::new();
    };
    let value = match behind.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next().unwrap(),
        None => behind.split([' ', '"']).next().unwrap(),
    };
    value.split([' ', ',']).collect()
}

#[test]
fn each_row_has_its_cells_and_its_state() {
    for (paper, row) in all_rows() {
        assert_eq!(row.len(), 5, "{paper}: {row:?}");
        assert!(!links(&row[2]).is_empty(), "{paper}: no page: {}", row[0]);
        let state = state(&row);
        if state != "not measured" && state != "not built" {
            assert!(!row[3].is_empty(), "{paper}: nothing found: {}", row[0]);
        }
        if state != "shown" {
            let why = row[4].trim_start_matches(['*']).len() > state.len() + 10;
            assert!(why, "{paper}: no reason: {}", row[0]);
        }
    }
}

#[test]
fn each_figure_and_table_has_a_row() {
    let page = page();
    for paper in &PAPERS {
        for (word, expected) in [("figure", paper.figures), ("table", paper.tables)] {
            let rows = rows(&page, paper);
            let told: BTreeSet<&str> = rows
                .iter()
                .flat_map(|row| numbers_behind(&row[0], word))
                .collect();
            let expected: BTreeSet<&str> = expected.iter().copied().collect();
            assert_eq!(told, expected, "{}: {word}s", paper.heading);
        }
    }
}

#[test]
fn the_counts_are_those_of_the_rows() {
    let page = page();
    let mut sums = [0; 5];
    let mut expected = Vec::new();
    for paper in &PAPERS {
        let rows = rows(&page, paper);
        let of = |wanted: &str| rows.iter().filter(|row| state(row) == wanted).count();
        let mut counts = STATES.map(of).to_vec();
        counts.push(rows.len());
        for (sum, count) in sums.iter_mut().zip(&counts) {
            *sum += count;
        }
        expected.push((paper.heading, counts));
    }
    expected.push(("all", sums.to_vec()));
    let told = table(&page, "## How many there are");
    for (row, (heading, counts)) in told.iter().zip(&expected) {
        assert_eq!(row[0], *heading);
        let texts: Vec<String> = counts.iter().map(ToString::to_string).collect();
        assert_eq!(row[1..], texts, "{heading}");
    }
    assert_eq!(told.len(), expected.len());
}

#[test]
fn each_number_found_is_in_a_linked_section() {
    let mut missing = Vec::new();
    for (paper, row) in all_rows() {
        let linked: Vec<String> = links(&row[2])
            .iter()
            .map(|link| match link.split_once('#') {
                Some((page, anchor)) => section(&read(&format!("docs/{page}")), anchor),
                None => read(&format!("docs/{link}")),
            })
            .collect();
        let there: BTreeSet<&str> = linked.iter().flat_map(|text| numbers(text)).collect();
        let found: String = row[3].split('`').step_by(2).collect();
        for number in numbers(&found) {
            if !there.contains(number) {
                missing.push(format!("{paper} {}: {number}", row[0]));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "not in the linked sections: {missing:#?}"
    );
}

/// The names that may occur in commands, taken from the words of the files that define them.
struct Known {
    targets: BTreeSet<String>,
    tests: BTreeSet<String>,
    mpi: BTreeSet<String>,
    programs: BTreeSet<String>,
    budgets: BTreeSet<String>,
    netgauge: BTreeSet<String>,
    enet: BTreeSet<String>,
}

impl Known {
    fn new() -> Self {
        let of = |name: &str| -> BTreeSet<String> {
            words(&read(name)).into_iter().map(str::to_owned).collect()
        };
        let makefile = read("Makefile");
        let targets = makefile
            .lines()
            .filter(|line| !line.starts_with(['\t', '#', '.']))
            .filter_map(|line| line.split_once(':'))
            .flat_map(|(targets, _)| targets.split(' ').map(str::to_owned));
        Self {
            targets: targets.collect(),
            tests: words_of_tests(),
            mpi: of("mpi/tests/hosts"),
            programs: &of("tests/programs/hosts") | &of("tests/programs/costs"),
            budgets: of("netgauge/budgets.toml"),
            netgauge: of("docs/man/netgauge.1"),
            enet: of("docs/man/enet.1"),
        }
    }

    /// Returns the unknown names in a command, or `None` if the text is not a command.
    fn missing(&self, command: &str) -> Option<Vec<String>> {
        let mut parts = command.split(' ');
        let program = parts.next()?;
        let verb = parts.next().unwrap_or_default();
        let missing = match program {
            "make" => self.missing_verb(command, verb),
            "netgauge" => self.missing_options(command),
            "cargo" => {
                let file = |name: &&str| !root().join(test_file(name)).exists();
                owned(given(command, "--test ").into_iter().filter(file))
            }
            "enet" => owned([verb].into_iter().filter(|verb| !self.enet.contains(*verb))),
            _ => return None,
        };
        Some(missing)
    }

    fn missing_verb(&self, command: &str, verb: &str) -> Vec<String> {
        let is_known = |name: &str| match verb {
            "scenarios" => any(&self.tests, of_streams(name)),
            "mpi-hosts" => self.mpi.contains(&format!("test_{name}")),
            "programs" => [format!("test_{name}"), format!("{name}_port")]
                .iter()
                .any(|word| self.programs.contains(word)),
            "simulation" | "scale" => self.tests.contains(name),
            "bench" => any(&self.budgets, name),
            _ => true,
        };
        let named = match verb {
            "simulation" => "OPTIONS=",
            "bench" => "--only ",
            "scale" => "--studies ",
            _ => "ONLY=",
        };
        let verb = [verb]
            .into_iter()
            .filter(|verb| !self.targets.contains(*verb));
        owned(
            verb.chain(
                given(command, named)
                    .into_iter()
                    .filter(|name| !is_known(name)),
            ),
        )
    }

    fn missing_options(&self, command: &str) -> Vec<String> {
        let values = ["-m ", "-x "]
            .into_iter()
            .flat_map(|option| given(command, option));
        let options = command
            .split(' ')
            .filter_map(|word| word.strip_prefix("--"));
        // The manual's source writes `--server` with one hyphen: `Fl -server`.
        let is_known = |name: &&str| {
            self.netgauge.contains(*name) || self.netgauge.contains(&format!("-{name}"))
        };
        owned(values.chain(options).filter(|name| !is_known(name)))
    }
}

fn test_file(name: &str) -> String {
    format!("tests/runner/tests/{name}.rs")
}

fn owned<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    names.map(str::to_owned).collect()
}

/// Returns whether one of the names matches a pattern.
fn any(names: &BTreeSet<String>, pattern: &str) -> bool {
    names.iter().any(|name| fits(pattern, name))
}

/// Returns the name of the scenario of streams that the scenario `name` of mapped sockets repeats;
/// `name` itself for other scenarios.
fn of_streams(name: &str) -> &str {
    name.strip_prefix("mapped_esp_")
        .filter(|behaviour| behaviour.starts_with("stream"))
        .unwrap_or(name)
}

#[test]
fn each_command_exists() {
    let known = Known::new();
    let mut unknown = Vec::new();
    let mut commands = 0;
    for (paper, row) in all_rows() {
        for command in row[2..].iter().flat_map(|cell| names(cell)) {
            if let Some(missing) = known.missing(command) {
                commands += 1;
                let place = format!("{paper} {}: {command}", row[0]);
                unknown.extend(missing.iter().map(|name| format!("{place}: {name}")));
            }
        }
    }
    assert!(commands > 150, "only {commands} commands");
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn the_page_is_found() {
    assert!(read("docs/using.md").contains("(seeds.md)"));
}
