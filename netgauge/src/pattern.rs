// SPDX-License-Identifier: MIT OR Apache-2.0

//! A pattern's name and defaults, without the code that measures it.

use crate::sizes::SizeSpec;

/// The name of the pattern that measures remote calls while other hosts send streams.
pub const LOADED_LATENCY: &str = "loaded-latency";

/// The facts about a pattern that the command line and reports use.
#[derive(Debug)]
pub struct PatternInfo {
    /// The pattern's name in option `-x`, and in reports.
    pub name: &'static str,
    /// Further names of the pattern for option `-x`.
    pub aliases: &'static [&'static str],
    /// The default sizes, which are used without option `-s`. Each range is given by its smallest
    /// and its largest size.
    pub(crate) sizes: &'static [(u64, u64)],
    /// The default number of tests per size, which is used without option `-c`.
    pub tests: u32,
    /// The largest message size that the pattern takes, in bytes.
    pub most: u64,
}

impl PatternInfo {
    /// Returns the default sizes, which are used without option `-s`.
    pub fn sizes(&self) -> SizeSpec {
        SizeSpec::from(self.sizes)
    }

    /// Returns whether `name` is the pattern's name or an alias.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}
