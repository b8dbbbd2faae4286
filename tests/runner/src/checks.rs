// SPDX-License-Identifier: GPL-2.0-only

//! `make test`. It runs the crates' tests, the model checker, the scenarios and the benchmark's
//! budgets. It checks format and warnings, the manual, the module and its `modinfo`, the dissector,
//! and misuses that must not compile.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{ensure, Context, Result};

use crate::bench;
use crate::dissector;
use crate::judge::{cargo_test, Part, Total};
use crate::layout::Layout;
use crate::manual;
use crate::misuses;
use crate::programs;
use crate::python;
use crate::scenarios;
use crate::stack;
use crate::step;

/// Runs all tests; a part that cannot run counts as failed.
///
/// # Errors
/// If logs cannot be written.
pub fn run(layout: &Layout) -> Result<Total> {
    // Most crates' tests leave a processor idle, so the model checker runs at the same time.
    let (model, parts) = step::both(
        || model(layout),
        || {
            let tested = [crates(layout)?, lints(layout)?];
            let others = [manual::check(layout), python::check(layout)];
            anyhow::Ok(tested.into_iter().chain(others).collect::<Vec<_>>())
        },
    );
    let mut parts = parts?;
    parts.push(model);
    let built = programs::build_module(layout);
    let module_is_there = built.is_ok();
    let mut module = Part::new("module");
    module.take("build", built);
    if module_is_there {
        modinfo(layout, &mut module);
        module.take("stack frames", stack::check(&layout.module()));
    }
    parts.push(module);
    if !module_is_there {
        // The part `module` already reports the failed build. The scenarios, which need the module,
        // count as failed.
        let nothing = Err(anyhow::anyhow!("there is no module to run them with"));
        parts.push(part("scenarios", nothing));
        return Ok(Total(parts));
    }
    // The dissector's guest, and after it the benchmark's guest, keep one processor busy. They run
    // at the same time as the scenarios, whose guests are sometimes idle.
    let guests = || {
        let dissector = dissector::check(layout);
        [dissector, part("bench", bench::check(layout))]
    };
    let (guests, others) = step::both(guests, || {
        let misuses = misuses::check(layout);
        [
            misuses,
            part("scenarios", scenarios::run(layout, &[], None)),
        ]
    });
    parts.extend(guests.into_iter().chain(others));
    Ok(Total(parts))
}

/// Returns the part in `outcome`. If `outcome` is an error, returns a failed part named `name`.
fn part(name: &str, outcome: Result<Part>) -> Part {
    outcome.unwrap_or_else(|error| Part::single::<()>(name, Err(error)))
}

/// Runs `cargo test` and prints its output as it comes.
fn crates(layout: &Layout) -> Result<Part> {
    step::say("running the crates' tests");
    let mut child = Command::new("cargo")
        .args([
            "test",
            "--workspace",
            "--all-features",
            "--locked",
            "--no-fail-fast",
        ])
        .current_dir(&layout.project)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting cargo")?;
    let reader = BufReader::new(child.stdout.take().context("cargo without an output")?);
    let mut output = String::new();
    for line in reader.lines() {
        let line = line?;
        println!("{line}");
        output += &line;
        output.push('\n');
    }
    std::io::stdout().flush()?;
    let status = child.wait()?;
    let (passed, failed) = cargo_test(&output);
    let mut part = Part::new("crates");
    part.passed = passed;
    if !status.success() && failed.is_empty() {
        part.failed.push(format!("cargo test: {status}, see above"));
    }
    part.failed.extend(failed);
    Ok(part)
}

/// Runs the model checker. Prints its table only at the end, because other tests print while it
/// runs.
fn model(layout: &Layout) -> Part {
    step::say(
        "exploring what becomes of connections when packets are lost, beside the tests that follow",
    );
    let outcome = (|| {
        let output = Command::new("cargo")
            .args(["run", "--quiet", "--release", "--locked", "-p", "esp-model"])
            .args(["--", "--threads", "2"])
            .current_dir(&layout.project)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("starting cargo")?;
        std::io::stdout().lock().write_all(&output.stdout)?;
        ensure!(
            output.status.success(),
            "esp-model: {}, see above",
            output.status
        );
        Ok(())
    })();
    Part::single("model", outcome)
}

/// Runs format, clippy and rustdoc checks, with warnings as errors.
fn lints(layout: &Layout) -> Result<Part> {
    let mut part = Part::new("lints");
    let logs = layout.logs()?;
    let lints: [(&str, &[&str]); 3] = [
        ("fmt", &["fmt", "--all", "--check"]),
        (
            "clippy",
            &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--all-features",
                "--locked",
                "--",
                "-D",
                "warnings",
            ],
        ),
        (
            "rustdoc",
            &[
                "doc",
                "--workspace",
                "--all-features",
                "--no-deps",
                "--document-private-items",
                "--locked",
            ],
        ),
    ];
    for (name, arguments) in lints {
        let outcome = step::run(
            &format!("cargo {}", arguments[0]),
            &logs.join(format!("lint-{name}.log")),
            Command::new("cargo")
                .args(arguments)
                .env("RUSTDOCFLAGS", "-D warnings")
                .current_dir(&layout.project),
        );
        part.take(name, outcome);
    }
    Ok(part)
}

/// Checks the output of `modinfo` for the module.
fn modinfo(layout: &Layout, part: &mut Part) {
    let text = match step::output(Command::new("modinfo").arg(layout.module())) {
        Ok(text) => text,
        Err(error) => return part.take::<()>("modinfo", Err(error)),
    };
    for (what, outcome) in judge_modinfo(&text, &layout.release) {
        part.take(&format!("modinfo: {what}"), outcome);
    }
}

/// Returns the names of the facts that `modinfo` must show about a module for the kernel `release`,
/// each with an error if `text` lacks the fact.
fn judge_modinfo(text: &str, release: &str) -> Vec<(String, Result<()>)> {
    let values = |field: &str| -> Vec<&str> {
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .filter(|(name, _)| *name == field)
            .map(|(_, value)| value.trim())
            .collect()
    };
    let mut outcomes = Vec::new();
    let mut demand = |what: &str, fulfilled: bool, found: &[&str]| {
        let outcome = (|| {
            ensure!(fulfilled, "modinfo says {found:?} for {what}");
            Ok(())
        })();
        outcomes.push((what.to_owned(), outcome));
    };
    for field in ["filename", "author", "description"] {
        let found = values(field);
        demand(field, found.iter().any(|value| !value.is_empty()), &found);
    }
    let found = values("license");
    demand(
        "license GPL",
        matches!(found[..], ["GPL"] | ["GPL v2"]),
        &found,
    );
    let found = values("alias");
    demand("alias net-pf-28", found.contains(&"net-pf-28"), &found);
    let found = values("vermagic");
    let ours = |value: &&str| value.split(' ').next() == Some(release);
    demand("vermagic", found.iter().any(ours), &found);
    let found = values("version");
    demand("version", found == [env!("CARGO_PKG_VERSION")], &found);
    let found = values("parm");
    for parameter in ["family", "edp_type", "esp_type", "ssocks"] {
        // The format is "name:description (type)".
        let described = found.iter().any(|value| {
            value
                .split_once(':')
                .is_some_and(|(name, text)| name == parameter && !text.starts_with('('))
        });
        demand(&format!("parm {parameter}"), described, &found);
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPLETE: &str = concat!(
        "filename:       /x/enet.ko
version:        ",
        env!("CARGO_PKG_VERSION"),
        "
alias:          net-pf-28
license:        GPL
description:    Ethernet sockets
author:         Somebody
name:           enet
vermagic:       7.2.12+deb13-cloud-amd64 SMP preempt mod_unload
parm:           family:address family (int)
parm:           edp_type:EtherType of EDP (int)
parm:           esp_type:EtherType of ESP (int)
parm:           ssocks:family of mapped sockets (int)
"
    );

    fn failures(text: &str) -> Vec<String> {
        judge_modinfo(text, "7.2.12+deb13-cloud-amd64")
            .into_iter()
            .filter(|(_, outcome)| outcome.is_err())
            .map(|(what, _)| what)
            .collect()
    }

    #[test]
    fn complete_modinfo_passes() {
        assert_eq!(failures(COMPLETE), Vec::<String>::new());
    }

    #[test]
    fn each_missing_field_is_a_failure() {
        for (line, what) in [
            ("filename", "filename"),
            ("alias", "alias net-pf-28"),
            ("license", "license GPL"),
            ("description", "description"),
            ("author", "author"),
            ("version", "version"),
            ("vermagic", "vermagic"),
            ("parm:           esp_type", "parm esp_type"),
        ] {
            let rest: Vec<&str> = COMPLETE
                .lines()
                .filter(|text| !text.starts_with(line))
                .collect();
            assert_eq!(failures(&rest.join("\n")), [what]);
        }
    }

    #[test]
    fn another_kernels_module_is_refused() {
        assert_eq!(failures(&COMPLETE.replace("7.2.12", "7.3.4")), ["vermagic"]);
    }
}
