// SPDX-License-Identifier: GPL-2.0-only

//! The Python package `sockaddr_en`: its tests, and the files that guests need to run it. These are
//! the interpreter and the parts of Python's library that the tests import.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context, Result};

use crate::judge::Part;
use crate::layout::Layout;
use crate::step;

/// The directory in which Debian's Python finds the package.
const PACKAGES: &str = "usr/lib/python3/dist-packages/sockaddr_en";

/// The directory of the package's examples, of the tests that need a guest, and of the peers
/// written in Python.
const SCRIPTS: &str = "usr/share/python";

/// A program that prints the paths of the interpreter and of all files that its imports load. It
/// leaves out ssl, because ssl would bring OpenSSL, and asyncio does not need it.
const LOADED: &str = "
import sys
sys.modules['ssl'] = None
import asyncio, ctypes, dataclasses, encodings.idna, fcntl, ipaddress, os, pathlib, re, select, socket, struct
import threading, time
import unittest, unittest.async_case, unittest.main, unittest.runner
print(os.path.realpath(sys.executable))
for module in list(sys.modules.values()):
    if getattr(module, '__file__', None):
        print(module.__file__)
";

/// Runs the package's tests that need no module.
pub fn check(layout: &Layout) -> Part {
    step::say("running the Python package's tests");
    Part::single("python", run_tests(layout))
}

fn run_tests(layout: &Layout) -> Result<()> {
    let place = layout.project.join("tools/python");
    let output = Command::new("python3")
        .args(["-B", "-m", "unittest", "discover", "--start-directory"])
        .arg(place.join("tests"))
        .env("PYTHONPATH", &place)
        .output()
        .context("python3")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", told.trim());
    Ok(())
}

/// Returns the files that Python needs in a guest, each with its path in the guest relative to the
/// root.
///
/// # Errors
/// If the toolbox has no Python, or a directory of the package cannot be read.
pub fn files(layout: &Layout) -> Result<Vec<(PathBuf, PathBuf)>> {
    let architecture = layout.architecture;
    let python = architecture.in_toolbox("usr/bin/python3");
    let loaded = step::output(architecture.run(python).args(["-I", "-c", LOADED]))?;
    let mut files = Vec::new();
    for (number, path) in loaded.lines().map(Path::new).enumerate() {
        let place = match number {
            0 => PathBuf::from("usr/bin/python3"),
            _ => path.strip_prefix(architecture.root())?.to_owned(),
        };
        files.push((path.to_owned(), place));
    }
    for (directory, place) in [
        ("tools/python/sockaddr_en", PACKAGES),
        ("tools/python/examples", SCRIPTS),
        ("tools/python/tests", SCRIPTS),
        ("tests/peers", SCRIPTS),
    ] {
        for source in step::files_of(&layout.project.join(directory), "py")? {
            let name = source.file_name().context("a script without a name")?;
            let place = Path::new(place).join(name);
            files.push((source, place));
        }
    }
    Ok(files)
}
