// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors of the command line that the parser does not find.

use thiserror::Error;

/// The command line is wrong, which only its parts together show. Nothing was started.
#[derive(Debug, Error)]
#[error("{0:#}")]
struct WrongLine(anyhow::Error);

/// Marks an error as one of the command line, for the exit status.
pub fn wrong_line(error: anyhow::Error) -> anyhow::Error {
    anyhow::Error::new(WrongLine(error))
}

/// Is the error one of the command line?
pub fn is_wrong_line(error: &anyhow::Error) -> bool {
    error.is::<WrongLine>()
}
