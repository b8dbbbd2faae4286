// SPDX-License-Identifier: MIT OR Apache-2.0

//! Options of patterns of two.

use anyhow::{bail, ensure, Result};
use clap::Args;

use super::Pattern;
use crate::measuring::MEASURE;
use crate::transport::{Kind, KINDS};

/// Options that only some patterns of two have.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatternArgs {
    /// flood: end a record with each message (MSG_EOR), so that no two share a packet
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

    /// Can `pattern` do by this kind of transport what the options ask of it?
    ///
    /// # Errors
    ///
    /// It says why not, and by which it can.
    pub fn suits(&self, pattern: &dyn Pattern, kind: &Kind) -> Result<()> {
        let keepers = KINDS.iter().filter(|kind| kind.records);
        let names: Vec<_> = keepers.map(|kind| kind.name).collect();
        ensure!(
            !self.eor || pattern.name() != "flood" || kind.records,
            "{} keeps no records apart: leave --eor out, or choose from {}",
            kind.name,
            names.join(", ")
        );
        Ok(())
    }
}
