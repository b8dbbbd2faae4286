// SPDX-License-Identifier: GPL-2.0-only

//! Checks the ESP engine with every placement of a few faults, and prints what was explored.

use std::panic;
use std::process::ExitCode;

use clap::Parser;
use esp_model::check::{check, Report};
use esp_model::families::{families, Family, Scale};
use esp_model::fault::PROPERTIES;
use esp_model::scene::Sights;

/// Checks the ESP engine on small simulated networks, with every placement of up to three lost
/// packets and one duplicate.
///
/// The simulated cases form groups of similar cases, which have names. The exit status is 1 if a
/// property is broken. In this case the shortest run with a broken property is printed. The exit
/// status is also 1 if an event that a group requires did not occur.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Also check larger cases, which takes long.
    #[arg(long, conflicts_with = "quick")]
    deep: bool,
    /// Check fewer cases, with fewer faults.
    #[arg(long)]
    quick: bool,
    /// Check only the groups of cases whose name contains NAME; can be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Lose at most this many packets in a run, in every group of cases.
    #[arg(long, value_name = "PACKETS")]
    losses: Option<u8>,
    /// Let at most this many packets arrive twice in a run, in every group of cases.
    #[arg(long, value_name = "PACKETS")]
    duplicates: Option<u8>,
    /// Number of threads that check cases.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

impl Options {
    fn chosen(&self) -> Vec<Family> {
        let scale = match (self.quick, self.deep) {
            (true, _) => Scale::Quick,
            (_, true) => Scale::Deep,
            _ => Scale::Small,
        };
        let mut chosen = families(scale);
        chosen
            .retain(|f| self.only.is_empty() || self.only.iter().any(|name| f.name.contains(name)));
        for family in &mut chosen {
            family.budget.losses = self
                .losses
                .map_or(family.budget.losses, |most| most.min(family.budget.losses));
            family.budget.duplicates = self.duplicates.map_or(family.budget.duplicates, |most| {
                most.min(family.budget.duplicates)
            });
        }
        chosen
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let chosen = options.chosen();
    if chosen.is_empty() {
        let names: Vec<_> = families(Scale::Quick).iter().map(|f| f.name).collect();
        eprintln!("no family is called so; there are: {}", names.join(", "));
        return ExitCode::from(2);
    }
    // Print nothing when the engine panics, because the check reports the panic with its trace.
    panic::set_hook(Box::new(|_| {}));
    println!(
        "{:<16} {:>5} {:>4} {:>3} {:>4} {:>3} {:>9} {:>9} {:>10} {:>8} {:>7}  {:<12} seen",
        "family",
        "cases",
        "lost",
        "dup",
        "over",
        "die",
        "states",
        "ends",
        "longest",
        "bound",
        "took",
        "properties"
    );
    let (mut good, mut states) = (true, 0);
    for family in &chosen {
        let report = check(family, options.threads);
        print_row(family, &report);
        print_violation(&report);
        good &= report.holds();
        states += report.states;
    }
    println!("\n{states} states. The properties:");
    for property in PROPERTIES {
        println!("  {property}");
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn print_row(family: &Family, report: &Report) {
    let verdict = match &report.violation {
        None if report.missing == Sights::NONE => "all hold".to_owned(),
        None => format!("NOT SEEN: {}", report.missing.names()),
        Some(violation) => format!("BROKEN: {}", violation.property),
    };
    let bound = family
        .cases
        .iter()
        .map(|case| case.bound)
        .max()
        .unwrap_or(0);
    println!(
        "{:<16} {:>5} {:>4} {:>3} {:>4} {:>3} {:>9} {:>9} {:>7.1} ms {:>5} ms {:>5.1} s  {:<12} {}",
        family.name,
        family.cases.len(),
        family.budget.losses,
        family.budget.duplicates,
        family.budget.reorders,
        u8::from(family.budget.death),
        report.states,
        report.ends,
        report.longest as f64 / 1e6,
        bound / 1_000_000,
        report.took.as_secs_f64(),
        verdict,
        report.sights.names(),
    );
}

fn print_violation(report: &Report) {
    let Some(violation) = &report.violation else {
        return;
    };
    println!(
        "\nThe shortest run that breaks \"{}\" has {} losses and {} duplicates:\n",
        violation.property, violation.budget.losses, violation.budget.duplicates
    );
    for line in &violation.trace {
        println!("  {line}");
    }
    println!();
}
