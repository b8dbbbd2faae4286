// SPDX-License-Identifier: MIT OR Apache-2.0

//! Options of patterns of two.

use anyhow::{bail, Result};
use clap::Args;

use super::Pattern;
use crate::measuring::MEASURE;

/// Options that only some patterns of two have.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatternArgs {
    /// flood: end a record with each message (MSG_EOR), so that no two share a packet of a stream
    #[arg(help_heading = MEASURE, long)]
    pub eor: bool,
}

impl PatternArgs {
    /// Checks that each option means something to one of the patterns that were chosen.
    ///
    /// # Errors
    ///
    /// It says which does not.
    pub fn check(&self, patterns: &[&dyn Pattern]) -> Result<()> {
        let chosen = |name| patterns.iter().any(|pattern| pattern.name() == name);
        if self.eor && !chosen("flood") {
            bail!("--eor is an option of pattern flood: add -x flood, or leave it out");
        }
        Ok(())
    }
}
