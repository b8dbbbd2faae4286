// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs the programs of iproute2.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;

use crate::plan::{self, Program, Step};

/// Maximum time to wait until devices have a carrier. The kernel checks for carriers at most once a
/// second.
const PATIENCE: Duration = Duration::from_secs(20);

impl Program {
    /// Returns the name of the program in the PATH.
    fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Bridge => "bridge",
            Self::Tc => "tc",
        }
    }
}

/// Returns the start of a command line of `program` in `namespace`.
fn command(program: Program, namespace: Option<&str>) -> Command {
    let mut command = Command::new(program.name());
    if let Some(namespace) = namespace {
        command.args(["-netns", namespace]);
    }
    command
}

/// Runs the commands of `step`.
///
/// # Errors
/// If the program fails. The error has the program's message, and the line on which it failed.
pub fn run(step: &Step) -> Result<()> {
    let mut command = command(step.program, step.namespace.as_deref());
    command.args(["-batch", "-"]);
    finish(&mut command, step.program, &step.lines).map(drop)
}

/// Runs `program` and parses the JSON that it prints.
///
/// # Errors
/// If the program fails, or its output cannot be parsed. The error has the program's message.
pub fn ask<T: for<'de> Deserialize<'de>>(
    program: Program,
    namespace: &str,
    arguments: &[&str],
) -> Result<T> {
    let mut command = command(program, Some(namespace));
    command.args(arguments);
    let text = finish(&mut command, program, &[])?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} printed what is no JSON: {text:?}", program.name()))
}

fn finish(command: &mut Command, program: Program, lines: &[String]) -> Result<String> {
    let name = program.name();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {name}: is the package iproute2 installed?"))?;
    let mut input = lines.join("\n");
    input.push('\n');
    if let Some(mut stdin) = child.stdin.take() {
        // Writing fails if the program ends early. The error is ignored, because the program's exit
        // status is checked below.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(explain(
            name,
            lines,
            &String::from_utf8_lossy(&output.stderr)
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Composes an error message from the program's message, the line that it refers to, and a remedy.
fn explain(name: &str, lines: &[String], words: &str) -> String {
    let words = words.trim();
    // iproute2's message ends with "Command failed -:LINE".
    let number = words
        .rsplit("-:")
        .next()
        .and_then(|rest| rest.trim().parse::<usize>().ok());
    let line = number.and_then(|number| lines.get(number.checked_sub(1)?));
    let mut text = words.lines().next().unwrap_or("no reason given").to_owned();
    if let Some(line) = line {
        text = format!("{name} {line}: {text}");
    } else {
        text = format!("{name}: {text}");
    }
    let hint = if words.contains("not permitted") || words.contains("denied") {
        "run it as root"
    } else if words.contains("Specified qdisc kind is unknown")
        || words.contains("Unknown device type")
    {
        "the kernel needs the modules bridge, veth, sch_tbf, sch_netem, and sch_red for --ecn"
    } else {
        return text;
    };
    format!("{text}; {hint}")
}

#[derive(Debug, Deserialize)]
struct Link {
    operstate: String,
}

/// Waits until every host can send. Even if a device is up, it cannot send before the kernel has
/// noticed its carrier.
///
/// # Errors
/// If a device has no carrier after 20 seconds.
pub fn await_carrier(hosts: u32) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    let ends = (0..hosts).flat_map(|number| {
        [
            (plan::SWITCH.to_owned(), plan::port(number)),
            (plan::host(number), plan::DEVICE.to_owned()),
        ]
    });
    for (namespace, device) in ends {
        loop {
            let arguments = ["-json", "link", "show", "dev", &device];
            let links: Vec<Link> = ask(Program::Ip, &namespace, &arguments)?;
            if links.iter().all(|link| link.operstate == "UP") {
                break;
            }
            ensure!(
                Instant::now() < end,
                "{device} of {namespace} has no carrier after {PATIENCE:?}"
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

/// Fails if one of `namespaces` exists. A namespace that another program made must not be changed
/// now or removed later.
///
/// # Errors
/// If a namespace exists. The error names the first one.
pub fn ensure_free(namespaces: &[String]) -> Result<()> {
    for name in namespaces {
        ensure!(
            !exists(name),
            "a namespace {name} exists already: remove it with 'ip netns delete {name}'"
        );
    }
    Ok(())
}

fn exists(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists()
}

/// Removes the existing namespaces among `namespaces`, with their devices.
///
/// # Errors
/// If a namespace cannot be removed.
pub fn remove(namespaces: &[String]) -> Result<()> {
    let existing: Vec<_> = namespaces
        .iter()
        .filter(|name| exists(name))
        .map(|name| format!("netns delete {name}"))
        .collect();
    let mut command = command(Program::Ip, None);
    command.args(["-batch", "-"]);
    finish(&mut command, Program::Ip, &existing).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_the_line_and_what_to_do() {
        let lines = ["netns add h0".to_owned(), "netns add h1".to_owned()];
        let words =
            "mount --make-shared /run/netns failed: Operation not permitted\nCommand failed -:2";
        assert_eq!(
            explain("ip", &lines, words),
            "ip netns add h1: mount --make-shared /run/netns failed: Operation not permitted; run it as root"
        );
        let lines = ["qdisc add dev p0 root tbf".to_owned()];
        let words = "Error: Specified qdisc kind is unknown.\nCommand failed -:1";
        assert!(explain("tc", &lines, words).ends_with("and sch_red for --ecn"));
        assert_eq!(explain("tc", &[], ""), "tc: no reason given");
    }
}
