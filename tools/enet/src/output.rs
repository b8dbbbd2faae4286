// SPDX-License-Identifier: MIT OR Apache-2.0

//! Prints to standard output, and messages to standard error.

use std::fmt;
use std::io::{self, ErrorKind, Write};

use anyhow::{Context, Result};

/// Prints `text`. It is no error if the output is a pipe whose reader, for example `head`, has
/// closed it.
///
/// # Errors
/// If the output cannot be written.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    unless_closed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Turns the error of a closed pipe into success, because the reader has seen enough.
///
/// # Errors
/// If the output could not be written for another reason.
pub fn unless_closed(written: io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.context("writing the output"),
    }
}

/// Prints a message to standard error. If it cannot be written, for example because the terminal is
/// gone, it is lost: messages do not decide the outcome of a command.
pub fn message(text: fmt::Arguments<'_>) {
    // One call writes the whole line, so lines of other processes do not come between its parts.
    let _ = io::stderr().write_all(format!("enet: {text}\n").as_bytes());
}
