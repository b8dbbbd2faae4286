// SPDX-License-Identifier: GPL-2.0-only

//! The limits of each benchmark figure, read from `netgauge/budgets.toml`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;

use super::figures::{Figure, JUMBO};
use crate::layout::Layout;

/// The bases of ratios. A figure is divided by TCP's figure (`tcp`), by the figure of raw packets
/// (`raw`), by the same transport's figure with the default MTU (`usual`), or by the figure of the
/// same protocol with copying sends (`copy`).
const BASES: [&str; 4] = ["tcp", "raw", "usual", "copy"];

/// Returns the figure by which `figure` is divided for the ratio to `base`; `None` if that figure
/// was not measured.
fn base_of<'a>(base: &str, figure: &Figure, figures: &'a [Figure]) -> Option<&'a Figure> {
    let (transport, name) = match base {
        "usual" => (figure.transport.as_str(), figure.name.strip_prefix(JUMBO)?),
        "copy" => (figure.transport.split_once('-')?.0, figure.name.as_str()),
        _ => (base, figure.name.as_str()),
    };
    figures
        .iter()
        .find(|other| other.transport == transport && other.name == name)
}

/// A figure below this share of its budget has improved so much that the budget should be lowered.
const LOOSE: f64 = 0.9;

/// The limits of one figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    /// The limit for the number of instructions.
    count: f64,
    /// The limit for the ratio to TCP's figure.
    tcp: Option<f64>,
    /// The limit for the ratio to the figure of raw packet sockets.
    raw: Option<f64>,
    /// The limit for the ratio to the figure with the default MTU.
    usual: Option<f64>,
    /// The limit for the ratio to the figure of the same protocol with sends that copy. Only
    /// transports whose sends do not copy, such as `esp-splice`, have this limit.
    copy: Option<f64>,
}

impl Budget {
    /// Returns the limit of the ratio to `base`.
    fn ratio(&self, base: &str) -> Option<f64> {
        match base {
            "tcp" => self.tcp,
            "raw" => self.raw,
            "usual" => self.usual,
            "copy" => self.copy,
            _ => None,
        }
    }
}

/// All budgets, by transport and name of the figure.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Budgets(BTreeMap<String, BTreeMap<String, Budget>>);

/// A figure with its budget.
#[derive(Debug)]
pub struct Verdict {
    transport: String,
    figure: String,
    /// The comparisons: first the number of instructions, then the ratios.
    comparisons: Result<Vec<Comparison>>,
}

#[derive(Clone, Debug)]
struct Comparison {
    /// The compared quantity: instructions, or a ratio.
    what: String,
    measured: f64,
    most: f64,
}

impl Comparison {
    fn used(&self) -> f64 {
        self.measured / self.most
    }
}

fn path(layout: &Layout) -> PathBuf {
    layout.project.join("netgauge/budgets.toml")
}

impl Budgets {
    /// Reads the budgets' file.
    ///
    /// # Errors
    /// If the file does not exist or is malformed.
    pub fn read(layout: &Layout) -> Result<Self> {
        let path = path(layout);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let budgets: Self = toml::from_str(text)?;
        for (transport, figures) in &budgets.0 {
            for (figure, budget) in figures {
                let numbers = [
                    Some(budget.count),
                    budget.tcp,
                    budget.raw,
                    budget.usual,
                    budget.copy,
                ];
                ensure!(
                    numbers.into_iter().flatten().all(|number| number > 0.0),
                    "{transport}, {figure}: a budget is greater than 0"
                );
            }
        }
        Ok(budgets)
    }

    /// Compares each figure with its budget.
    pub fn judge(&self, figures: &[Figure]) -> Vec<Verdict> {
        figures
            .iter()
            .map(|figure| Verdict {
                transport: figure.transport.clone(),
                figure: figure.name.clone(),
                comparisons: self.compare(figure, figures),
            })
            .collect()
    }

    fn compare(&self, figure: &Figure, figures: &[Figure]) -> Result<Vec<Comparison>> {
        let Figure {
            transport, name, ..
        } = figure;
        let budget = self
            .0
            .get(transport)
            .and_then(|budgets| budgets.get(name))
            .with_context(|| format!("there is no budget: add {transport}.{name}"))?;
        let count = figure.count.context("it could not be measured")?;
        let mut comparisons = vec![Comparison {
            what: "instructions".to_owned(),
            measured: count,
            most: budget.count,
        }];
        for base in BASES {
            let (Some(most), Some(of_base)) = (budget.ratio(base), base_of(base, figure, figures))
            else {
                continue;
            };
            let of_base = of_base
                .count
                .with_context(|| format!("{base} could not be measured, to compare with"))?;
            comparisons.push(Comparison {
                what: format!("/{base}"),
                measured: count / of_base,
                most,
            });
        }
        Ok(comparisons)
    }
}

impl Verdict {
    /// Returns the figure's name.
    pub fn name(&self) -> String {
        format!("{} {}", self.transport, self.figure)
    }

    /// Returns whether the figure was measured and keeps its budget.
    pub fn is_good(&self) -> bool {
        self.outcome().is_ok()
    }

    /// Returns an error if the figure breaks its budget.
    ///
    /// # Errors
    /// If the figure could not be measured, has no budget, or exceeds it.
    pub fn outcome(&self) -> Result<()> {
        let comparisons = match &self.comparisons {
            Ok(comparisons) => comparisons,
            Err(error) => bail!("{}: {error:#}", self.name()),
        };
        for comparison in comparisons {
            ensure!(
                comparison.used() <= 1.0,
                "{}: {} {:.3} exceeds its budget, {:.3}, by {:.1} %",
                self.name(),
                comparison.what,
                comparison.measured,
                comparison.most,
                (comparison.used() - 1.0) * 100.0
            );
        }
        Ok(())
    }

    /// Returns a remark if the budget is much larger than needed.
    fn loose(&self) -> Option<String> {
        let comparisons = self.comparisons.as_ref().ok()?;
        let loosest = comparisons
            .iter()
            .min_by(|one, other| one.used().total_cmp(&other.used()))?;
        (loosest.used() < LOOSE).then(|| {
            format!(
                "{}: {} {:.3} is {:.0} % below its budget: lower that in netgauge/budgets.toml",
                self.name(),
                loosest.what,
                loosest.measured,
                (1.0 - loosest.used()) * 100.0
            )
        })
    }
}

/// Formats a line for each figure: its instructions and ratios, each followed by its limit in
/// brackets. Below these lines, lists the figures that exceed their budgets, and the figures far
/// below theirs.
pub fn table(figures: &[Figure], verdicts: &[Verdict]) -> String {
    let mut text = String::from(
        "Instructions of both ends together: message-N is half a round trip of N bytes (median; p99- its 99th percentile),\n\
         polled-N the same in one thread that holds both ends and polls, turns-100 one byte on 100 connections in turn,\n\
         flood-N a message of N bytes in a flood;\n\
         byte is a byte of a stream written in blocks of 64 KiB, byte-1M of 1 MiB.\n\
         jumbo- is with an MTU of 9000; cut- is on a link without segmentation offload, and joined- on one where the receiver\n\
         has GRO; checksum- is with esp.checksum. kernel- is the part that the kernel executes, softirq- the part of that in softirqs. Ratios are to TCP, to\n\
         packet sockets, to the same with the usual MTU, and of a transport that sends by MSG_ZEROCOPY or splice to the same that\n\
         copies. lossy- is on a cut link that loses one packet of a thousand, late- on one that delays one of a hundred by 20 us. In\n\
         brackets the budgets.\n\n",
    );
    let _ = writeln!(
        text,
        "{:<13}{:<20}{:>20}  {:>16}  {:>16}  {:>16}  {:>16}",
        "", "", "instructions", "/tcp", "/raw", "/usual", "/copy"
    );
    for (figure, verdict) in figures.iter().zip(verdicts) {
        let digits = if figure.name.contains("byte") { 3 } else { 0 };
        let _ = write!(text, "{:<13}{:<20}", figure.transport, figure.name);
        let Some(count) = figure.count else {
            text += "not measured\n";
            continue;
        };
        let most = |what: &str| {
            let comparisons = verdict.comparisons.as_ref().ok()?;
            let comparison = comparisons.iter().find(|c| c.what == what)?;
            Some(comparison.most)
        };
        let bracket = |most: Option<f64>, digits: usize| {
            most.map_or_else(String::new, |most| format!("({most:.digits$})"))
        };
        let budget = bracket(most("instructions"), digits);
        let _ = write!(text, "{count:>10.digits$}{budget:>10}");
        for base in BASES {
            let of_base = base_of(base, figure, figures).and_then(|base| base.count);
            let ratio = of_base.map_or_else(String::new, |base| format!("{:.3}", count / base));
            let budget = bracket(most(&format!("/{base}")), 3);
            let _ = write!(text, "  {ratio:>8}{budget:>8}");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text.push('\n');
    let mut good = true;
    for verdict in verdicts {
        if let Err(error) = verdict.outcome() {
            good = false;
            let _ = writeln!(text, "not kept: {error:#}");
        } else if let Some(loose) = verdict.loose() {
            let _ = writeln!(text, "{loose}");
        }
    }
    if good {
        text += "All figures keep their budgets.\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGETS: &str = "
        [tcp]
        message-1 = { count = 13000 }
        [esp]
        message-1 = { count = 9000, tcp = 0.75 }
    ";

    fn figure(transport: &str, count: Option<f64>) -> Figure {
        Figure {
            transport: transport.to_owned(),
            name: "message-1".to_owned(),
            count,
        }
    }

    fn judge(budgets: &str, tcp: Option<f64>, esp: Option<f64>) -> (Vec<bool>, String) {
        let figures = [figure("tcp", tcp), figure("esp", esp)];
        let verdicts = Budgets::parse(budgets).unwrap().judge(&figures);
        let good = verdicts.iter().map(Verdict::is_good).collect();
        (good, table(&figures, &verdicts))
    }

    #[test]
    fn figures_within_their_budgets_are_good() {
        let (good, text) = judge(BUDGETS, Some(12_500.0), Some(8_900.0));
        assert_eq!(good, [true, true], "{text}");
        assert!(text.contains("8900    (9000)     0.712 (0.750)"), "{text}");
        assert!(text.ends_with("All figures keep their budgets.\n"));
        assert!(!text.contains("lower"), "{text}");
    }

    #[test]
    fn a_figure_beyond_its_budget_or_its_ratio_is_not() {
        let (good, text) = judge(BUDGETS, Some(12_500.0), Some(9_100.0));
        assert_eq!(good, [true, false]);
        assert!(
            text.contains("not kept: esp message-1: instructions 9100"),
            "{text}"
        );
        let (good, text) = judge(BUDGETS, Some(11_000.0), Some(8_900.0));
        assert_eq!(good, [true, false]);
        assert!(
            text.contains("not kept: esp message-1: /tcp 0.809"),
            "{text}"
        );
    }

    #[test]
    fn a_large_mtu_is_compared_with_the_usual_one() {
        let budgets = Budgets::parse(
            "[esp]
            message-1 = { count = 9000 }
            jumbo-message-1 = { count = 9900, usual = 1.02 }",
        )
        .unwrap();
        let usual = figure("esp", Some(9000.0));
        let verdict = |count: f64| {
            let jumbo = Figure {
                name: "jumbo-message-1".to_owned(),
                ..figure("esp", Some(count))
            };
            let figures = [usual.clone(), jumbo];
            let verdicts = budgets.judge(&figures);
            assert!(verdicts[0].is_good());
            (verdicts[1].is_good(), table(&figures, &verdicts))
        };
        let (good, text) = verdict(9150.0);
        assert!(good && text.contains("1.017 (1.020)"), "{text}");
        let (good, text) = verdict(9250.0);
        assert!(!good && text.contains("/usual 1.028"), "{text}");
    }

    #[test]
    fn a_figure_without_number_or_budget_is_not_good() {
        let (good, text) = judge(BUDGETS, Some(12_500.0), None);
        assert_eq!(good, [true, false]);
        assert!(text.contains("could not be measured"), "{text}");
        let (good, _) = judge(BUDGETS, None, Some(8_900.0));
        assert_eq!(good, [false, false]);
        let (good, text) = judge("[tcp]\n", Some(1.0), Some(1.0));
        assert_eq!(good, [false, false]);
        assert!(text.contains("add esp.message-1"), "{text}");
    }

    #[test]
    fn a_budget_that_is_far_too_large_is_told() {
        let (good, text) = judge(BUDGETS, Some(12_500.0), Some(7_000.0));
        assert_eq!(good, [true, true]);
        assert!(
            text.contains("esp message-1: /tcp 0.560 is 25 % below"),
            "{text}"
        );
    }

    #[test]
    fn what_is_no_budget_is_refused() {
        for text in [
            "[esp]\nmessage-1 = { count = 0 }",
            "[esp]\nmessage-1 = { cuont = 1 }",
            "[esp]\nmessage-1 = { count = 1, tcp = -1 }",
            "[esp]\nmessage-1 = 7",
        ] {
            assert!(Budgets::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_projects_budgets_can_be_read() {
        Budgets::parse(include_str!("../../../../netgauge/budgets.toml")).unwrap();
    }
}
