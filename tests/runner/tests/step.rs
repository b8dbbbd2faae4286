// SPDX-License-Identifier: GPL-2.0-only

//! Tests `step` of mk/lib.sh: what the build scripts show while a command runs.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Returns a script that runs a step. The step's command prints two lines and waits for `flag`.
fn script(directory: &Path, flag: &Path) -> String {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../mk/lib.sh");
    format!(
        "set -euo pipefail; . {}; logs={}; \
         slow() {{ echo '   Compiling one'; echo '   Compiling two'; until [ -e {} ]; do sleep 0.1; done; }}; \
         step slow 'building it' slow",
        library.display(),
        directory.display(),
        flag.display()
    )
}

#[test]
fn a_terminal_shows_the_last_line_of_a_running_step() {
    let directory = TempDir::new().unwrap();
    let flag = directory.path().join("flag");
    let file = directory.path().join("script");
    fs::write(&file, script(directory.path(), &flag)).unwrap();
    let mut shell = Command::new("script")
        .args(["--quiet", "--flush", "--return", "--command"])
        .arg(format!("bash {}", file.display()))
        .arg("/dev/null")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = shell.stdout.take().unwrap();
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    while let Ok(length @ 1..) = output.read(&mut buffer) {
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        if text.contains(" s  Compiling two") {
            fs::write(&flag, "").unwrap();
        }
    }
    assert!(shell.wait().unwrap().success(), "{text}");
    assert!(text.contains("building it"), "{text}");
    assert!(!text.contains("Compiling one"), "{text}");
    // The result is printed only after the line of the running step has been erased.
    let (before, last) = text.trim_end().rsplit_once('\r').unwrap();
    assert!(last.contains("done in"), "{before} {last}");
    assert!(last.starts_with("\u{1b}[K"), "{before} {last}");
}

#[test]
fn without_a_terminal_a_step_prints_two_lines() {
    let directory = TempDir::new().unwrap();
    let flag = directory.path().join("flag");
    fs::write(&flag, "").unwrap();
    let shell = Command::new("bash")
        .arg("-c")
        .arg(script(directory.path(), &flag))
        .output()
        .unwrap();
    let text = String::from_utf8(shell.stderr).unwrap();
    assert!(shell.status.success(), "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(!text.contains('\r'), "{text}");
}
