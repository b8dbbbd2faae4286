// SPDX-License-Identifier: GPL-2.0-only

//! Checks that the manual pages name exactly what the module has: sysctls, counters, columns,
//! parameters and trace events.

use std::collections::BTreeSet;

use guest::knobs::DIRECTORY;
use guest::netns::finish;
use guest::prelude::*;
use guest::tracer::TRACEFS;

scenarios! {
    direct manual_has_every_sysctl_with_its_default = sysctls;
    direct manual_has_every_counter_and_column = proc_files;
    guest manual_has_every_trace_event_and_reason = events;
}

const ENET: &str = include_str!("../../../docs/man/enet.7");
const EDP: &str = include_str!("../../../docs/man/edp.7");
const ESP: &str = include_str!("../../../docs/man/esp.7");

/// Returns the names in the list items of `page` with the macro `kind`: ".It Va one , two".
fn items<'a>(page: &'a str, kind: &str) -> Vec<&'a str> {
    let prefix = format!(".It {kind} ");
    page.lines()
        .filter_map(|line| line.strip_prefix(&prefix))
        .flat_map(|names| names.split(" , "))
        .map(str::trim)
        .collect()
}

/// Checks that the manual and the module have the same names.
fn same<'a>(
    what: &str,
    manual: impl IntoIterator<Item = &'a str>,
    module: impl IntoIterator<Item = &'a str>,
) -> Outcome {
    let manual: BTreeSet<_> = manual.into_iter().collect();
    let module: BTreeSet<_> = module.into_iter().collect();
    ensure!(!module.is_empty(), "the module has no {what}");
    let missing: Vec<_> = module.difference(&manual).collect();
    let surplus: Vec<_> = manual.difference(&module).collect();
    ensure!(
        missing.is_empty() && surplus.is_empty(),
        "{what}: the manual does not name {missing:?}, and there is no {surplus:?}"
    );
    Ok(())
}

/// Each file is described as "/proc/sys/esp/NAME Pq DEFAULT"; a default is a number or the name of
/// another sysctl.
fn sysctls(lab: &Lab) -> Outcome {
    let told: Vec<(&str, &str)> = items(ESP, "Pa")
        .into_iter()
        .filter_map(|item| {
            item.strip_prefix(DIRECTORY)?
                .strip_prefix('/')?
                .split_once(" Pq ")
        })
        .collect();
    let mut files = Vec::new();
    for entry in lab.a.namespace.within(|| fs::read_dir(DIRECTORY))?? {
        files.push(entry?.file_name().to_string_lossy().into_owned());
    }
    same(
        "files",
        told.iter().map(|(name, _)| *name),
        files.iter().map(String::as_str),
    )?;
    for (name, default) in told {
        let default = default.trim_matches('"');
        let wanted = match default.parse() {
            Ok(number) => number,
            Err(_) => number_in(&format!("/proc/sys/{}", default.replace('.', "/")))?,
        };
        let found = Knobs(&lab.a.namespace).get(name)?;
        guest::harness::same(found, wanted, name)?;
    }
    Ok(())
}

fn number_in(path: &str) -> Result<u32> {
    let text = fs::read_to_string(path).with_context(|| path.to_owned())?;
    text.trim().parse().with_context(|| path.to_owned())
}

/// Returns whether `name` is the name of a counter. Counters begin with a capital letter, and trace
/// events do not.
fn is_counter(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_uppercase())
}

fn proc_files(lab: &Lab) -> Outcome {
    let text = lab.a.namespace.proc_net("enet")?;
    let counters = text
        .lines()
        .filter_map(|line| Some(line.split_once(' ')?.0));
    let told = items(ENET, "Va");
    same(
        "counters",
        told.into_iter().filter(|name| is_counter(name)),
        counters,
    )?;
    for (file, page) in [("edp", EDP), ("esp", ESP)] {
        let text = lab.a.namespace.proc_net(file)?;
        let heading: Vec<_> = text
            .lines()
            .next()
            .context("no heading")?
            .split_whitespace()
            .collect();
        let told = items(page, "Va");
        guest::harness::same(told, heading, file)?;
    }
    Ok(())
}

/// Returns the words for the numbers of `field` in an event's description: `{ 1, "one" }, { 2,
/// "two" }`.
fn words<'a>(format: &'a str, field: &str) -> Result<Vec<&'a str>> {
    let (_, list) = format
        .split_once(&format!("__print_symbolic(REC->{field}, "))
        .with_context(|| format!("no {field} in {format:?}"))?;
    let (list, _) = list.split_once("})").context("a list without end")?;
    Ok(list.split('"').skip(1).step_by(2).collect())
}

fn events() -> Outcome {
    let directory = format!("{TRACEFS}/events/enet");
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| directory.clone())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    let told = items(ENET, "Va");
    same(
        "events",
        told.into_iter().filter(|name| !is_counter(name)),
        names.iter().map(String::as_str),
    )?;
    let format = |event: &str| fs::read_to_string(format!("{directory}/{event}/format"));
    let drop = format("esp_drop")?;
    let parameters = finish(
        std::process::Command::new("modinfo").args(["-p", "enet"]),
        "",
    )?;
    let parameters = parameters
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0));
    same(
        "parameters and reasons",
        items(ENET, "Cm"),
        parameters.chain(words(&drop, "reason")?),
    )?;
    let state = format("esp_set_state")?;
    let page: BTreeSet<_> = ESP.split_whitespace().collect();
    for word in words(&state, "newstate")? {
        ensure!(page.contains(word), "the manual does not know {word}");
    }
    Ok(())
}
