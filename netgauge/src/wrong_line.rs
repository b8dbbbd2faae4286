// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors of the command line that only its parts together show.

use thiserror::Error;

/// The command line is wrong, in a way that only its parts together show. Nothing was begun.
#[derive(Debug, Error)]
#[error("{0:#}")]
struct WrongLine(anyhow::Error);

/// Marks what was found wrong with the command line, for the exit status to tell.
pub fn wrong_line(error: anyhow::Error) -> anyhow::Error {
    anyhow::Error::new(WrongLine(error))
}

/// Is it the command line that is wrong?
pub fn is_wrong_line(error: &anyhow::Error) -> bool {
    error.is::<WrongLine>()
}
