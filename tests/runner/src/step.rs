//! Long work as announced steps whose output goes to a log.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{bail, Context, Result};

static START: OnceLock<Instant> = OnceLock::new();

/// Tells people what is going on; standard output is for results.
pub fn say(text: &str) {
    let start = START.get_or_init(Instant::now);
    eprintln!("[{:4}s] {text}", start.elapsed().as_secs());
}

/// The last lines of a file, for a failure's message.
pub fn tail(path: &Path, lines: usize) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Runs `command` with its output in `log`.
///
/// # Errors
/// When it cannot be started or fails; then the end of the log is in the message.
pub fn run(what: &str, log: &Path, command: &mut Command) -> Result<()> {
    say(what);
    let started = Instant::now();
    let output = File::create(log).with_context(|| log.display().to_string())?;
    let status = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()
        .with_context(|| format!("starting {:?}", command.get_program()))?;
    if !status.success() {
        bail!(
            "{what}: {status}\n---- end of {log} ----\n{}\n----\nthe whole log is {log}",
            tail(log, 40),
            log = log.display(),
        );
    }
    // What took no time needs no second line.
    if started.elapsed().as_secs() >= 2 {
        say(&format!("  done in {} s", started.elapsed().as_secs()));
    }
    Ok(())
}

/// Runs `command` and returns what it printed.
///
/// # Errors
/// When it cannot be started or fails; then what it said is in the message.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!(
            "{:?}: {}: {}",
            command,
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).context("output that is not UTF-8")
}
