// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors in the command line that the parser, clap, does not find.

use thiserror::Error;

/// The command line is wrong, although each of its options is right. No process was started.
#[derive(Debug, Error)]
#[error("{0:#}")]
struct WrongLine(anyhow::Error);

/// Marks `error` as an error of the command line, which has an exit status of its own.
pub fn wrong_line(error: anyhow::Error) -> anyhow::Error {
    anyhow::Error::new(WrongLine(error))
}

/// Returns whether the error is about the command line.
pub fn is_wrong_line(error: &anyhow::Error) -> bool {
    error.is::<WrongLine>()
}
