// SPDX-License-Identifier: MIT OR Apache-2.0

//! Prints to standard output.

use std::io::{self, ErrorKind, Write};

use anyhow::{Context, Result};

/// Prints `text`. It is no error if the output is a pipe whose reader, for example `head`, has
/// closed it.
///
/// # Errors
/// If the output cannot be written.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.context("writing the output"),
    }
}
