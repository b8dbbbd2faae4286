// SPDX-License-Identifier: GPL-2.0-only

//! Reads and writes the files of `/proc/sys/esp/` in a namespace.

use std::fs::{read_to_string, OpenOptions};
use std::io::{self, Write};

use anyhow::{ensure, Context, Result};

use crate::harness::refused;
use crate::netns::Netns;

/// The directory of the module's sysctl files.
pub const DIRECTORY: &str = "/proc/sys/esp";

/// The files of `/proc/sys/esp/` in one namespace.
#[derive(Clone, Copy, Debug)]
pub struct Knobs<'a>(pub &'a Netns);

impl Knobs<'_> {
    /// Returns the number in file `name`.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a number on one line.
    pub fn get(&self, name: &str) -> Result<u32> {
        let text = self.0.within(|| read_to_string(path(name)))?;
        let text = text.with_context(|| path(name))?;
        let number = text
            .strip_suffix('\n')
            .with_context(|| format!("{name} reads {text:?}, without a line's end"))?;
        number
            .parse()
            .with_context(|| format!("{name} reads {text:?}"))
    }

    /// Writes `text` to file `name`, in one call.
    ///
    /// # Errors
    /// If the namespace cannot be entered; the inner error is the errno of `open` or `write`.
    pub fn write(&self, name: &str, text: &[u8]) -> Result<io::Result<()>> {
        self.0.within(|| write(name, text))
    }

    /// Sets file `name` to `number`, and reads it back.
    ///
    /// # Errors
    /// If the file refuses `number`, or a different number is read back.
    pub fn set(&self, name: &str, number: u32) -> Result<()> {
        self.accepts(name, &number.to_string(), number)
    }

    /// Checks that file `name` accepts `text` and then reads `number`.
    ///
    /// # Errors
    /// If it does not.
    pub fn accepts(&self, name: &str, text: &str, number: u32) -> Result<()> {
        self.write(name, text.as_bytes())?
            .with_context(|| format!("writing {text:?} to {name}"))?;
        let found = self.get(name)?;
        crate::harness::same(found, number, &format!("{name} after {text:?}"))
    }

    /// Checks that file `name` refuses `text` with `EINVAL` and keeps its value.
    ///
    /// # Errors
    /// If it does not.
    pub fn rejects(&self, name: &str, text: &[u8]) -> Result<()> {
        let before = self.get(name)?;
        let what = format!("writing {:?} to {name}", String::from_utf8_lossy(text));
        refused(self.write(name, text)?, libc::EINVAL, &what)?;
        let after = self.get(name)?;
        ensure!(after == before, "{what} changed {before} to {after}");
        Ok(())
    }
}

/// Writes `text` to file `name` of the calling thread's namespace, in one call.
///
/// # Errors
/// The errno of `open` or `write`.
pub fn write(name: &str, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path(name))?;
    let written = file.write(text)?;
    if written != text.len() {
        return Err(io::Error::other(format!("{written} bytes were taken")));
    }
    Ok(())
}

/// Returns the path of file `name`.
pub fn path(name: &str) -> String {
    format!("{DIRECTORY}/{name}")
}
