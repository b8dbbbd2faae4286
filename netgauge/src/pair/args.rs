// SPDX-License-Identifier: MIT OR Apache-2.0

//! Options of patterns between two hosts.

use anyhow::{bail, ensure, Result};
use clap::Args;

use crate::measuring::MEASURE;
use crate::sizes::parse_size;
use crate::transport::kind::Kind;
use crate::transport::kinds;

/// The longest write to a stream, in bytes. Both sides hold that many bytes in memory.
pub(super) const MOST_BLOCK: usize = 64 << 20;

/// Options that only some patterns between two hosts have.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatternArgs {
    /// flood: end a record with each message (MSG_EOR), so that no two messages share a packet
    #[arg(help_heading = MEASURE, long)]
    pub eor: bool,

    /// bulk: bytes of one write to a stream, and of the buffer that is read into, at most 64M
    /// [default: 64K]
    #[arg(help_heading = MEASURE, long, value_name = "SIZE", value_parser = parse_block)]
    pub block: Option<u32>,
}

fn parse_block(text: &str) -> Result<u32, String> {
    let size = parse_size(text)?;
    let block = u32::try_from(size).ok();
    block
        .filter(|block| *block as usize <= MOST_BLOCK)
        .ok_or_else(|| format!("`{text}` is too large: both sides hold a block in memory"))
}

impl PatternArgs {
    /// Checks that each option applies to one of the chosen patterns.
    ///
    /// # Errors
    ///
    /// Fails if an option applies to none of the patterns. The error text names that option.
    pub fn check(&self, patterns: &[&str]) -> Result<()> {
        let chosen = |name| patterns.contains(&name);
        if self.eor && !chosen("flood") {
            bail!("--eor is an option of pattern flood: add -x flood, or leave it out");
        }
        if self.block.is_some() && !chosen("bulk") {
            bail!("--block is an option of pattern bulk: add -x bulk, or leave it out");
        }
        Ok(())
    }

    /// Refuses the options, for a command line with a pattern between more than two hosts.
    ///
    /// # Errors
    ///
    /// Fails if one of the options is given. The error text names the option's pattern.
    pub fn refuse(&self) -> Result<()> {
        for (given, option, pattern) in [
            (self.eor, "--eor", "flood"),
            (self.block.is_some(), "--block", "bulk"),
        ] {
            ensure!(
                !given,
                "{option} is an option of pattern {pattern}: leave it out"
            );
        }
        Ok(())
    }

    /// Checks that `pattern`, with these options, can measure transports of `kind`.
    ///
    /// # Errors
    ///
    /// Fails if the pattern cannot measure this kind. The error text then lists the transports that
    /// the pattern can measure.
    pub fn suits(&self, pattern: &str, kind: &Kind) -> Result<()> {
        ensure!(
            !self.eor || pattern != "flood" || kind.records,
            "{} keeps no records apart: leave --eor out, or choose from {}",
            kind.name,
            kinds::names(|kind| kind.records)
        );
        Ok(())
    }
}
