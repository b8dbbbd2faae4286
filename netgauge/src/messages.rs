// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages to the user, on standard error.

use std::fmt;
use std::io::{self, Write as _};

/// Prints a message. Errors are ignored: a run does not fail because its terminal or pipe is gone.
pub fn tell(text: fmt::Arguments<'_>) {
    // One call writes the whole line, so lines of other processes do not come between its parts.
    let _ = io::stderr().write_all(format!("netgauge: {text}\n").as_bytes());
}
