// SPDX-License-Identifier: MIT OR Apache-2.0

//! A pattern's name and defaults, without its work.

use crate::sizes::SizeSpec;

/// The pattern that measures remote calls while other hosts send streams.
pub const LOADED_LATENCY: &str = "loaded-latency";

/// A pattern's facts that the command line and reports use.
#[derive(Debug)]
pub struct PatternInfo {
    /// The pattern's name in option `-x`, and in reports.
    pub name: &'static str,
    /// Further names of the pattern for option `-x`.
    pub aliases: &'static [&'static str],
    /// Sizes, as ranges from smallest to largest, if option `-s` names none.
    pub(crate) sizes: &'static [(u64, u64)],
    /// Tests per size, if option `-c` names no number.
    pub tests: u32,
    /// The largest size that the pattern takes, bytes.
    pub most: u64,
}

impl PatternInfo {
    /// The sizes, if option `-s` names none.
    pub fn sizes(&self) -> SizeSpec {
        SizeSpec::from(self.sizes)
    }

    /// Whether `name` is the pattern's name or an alias.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}
