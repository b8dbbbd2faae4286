// SPDX-License-Identifier: GPL-2.0-only

//! Runs long operations as steps. Each step is announced, and its output goes to a log.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{bail, Context, Result};

/// Prints progress with the time since `make` was started. Prints to standard error, because
/// standard output is for results.
pub fn say(text: &str) {
    eprintln!("[{:4}s] {text}", since_make());
}

/// Returns the seconds since `make` was started, by the clock that the scripts in `mk/` use.
fn since_make() -> u64 {
    static START: OnceLock<u64> = OnceLock::new();
    let now = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_secs())
    };
    let start = START.get_or_init(|| {
        env::var("ENET_STARTED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(now)
    });
    now().saturating_sub(*start)
}

/// Returns the last lines of a file, for error messages.
pub fn tail(path: &Path, lines: usize) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Runs `command` with its output in `log`.
///
/// # Errors
/// If the command cannot be started or fails; the message has the end of the log.
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
    // A step that took less than two seconds needs no second line.
    if started.elapsed().as_secs() >= 2 {
        say(&format!("  done in {} s", started.elapsed().as_secs()));
    }
    Ok(())
}

/// Runs `command` and returns its output.
///
/// # Errors
/// If the command cannot be started or fails; the message has its output.
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

/// Returns the files of a directory whose names end in `.extension`, sorted by name.
///
/// # Errors
/// If the directory cannot be read.
pub fn files_of(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Runs two functions in parallel; returns their results.
pub fn both<A: Send, B>(one: impl FnOnce() -> A + Send, other: impl FnOnce() -> B) -> (A, B) {
    thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        match one.join() {
            Ok(one) => (one, other),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
