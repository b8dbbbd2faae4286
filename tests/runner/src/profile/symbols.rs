// SPDX-License-Identifier: GPL-2.0-only

//! Maps addresses to functions of the guest's kernel and its modules.

use std::fmt::Write as _;
use std::ops::Range;

use anyhow::{ensure, Context, Result};

use super::trace::{hexadecimal, is_kernel};
use crate::commands::Commands;

/// The name for code outside the kernel.
const PROGRAMS: &str = "(programs)";

/// The kernel's functions, sorted by address.
#[derive(Debug)]
pub struct Symbols(Vec<(u64, String)>);

impl Symbols {
    /// Reads the symbols of a guest that was booted to run the benchmark.
    ///
    /// # Errors
    /// If the guest ends, or reports no symbols.
    pub fn read(guest: &mut Commands) -> Result<Self> {
        let mut symbols = Vec::new();
        guest.run("symbols", |line| symbols.extend(symbol(line)))?;
        ensure!(!symbols.is_empty(), "the guest has no symbols");
        symbols.sort();
        Ok(Self(symbols))
    }

    /// Returns the function that contains `address`.
    pub fn name(&self, address: u64) -> &str {
        if !is_kernel(address) {
            return PROGRAMS;
        }
        let behind = self.0.partition_point(|(start, _)| *start <= address);
        match behind.checked_sub(1).and_then(|at| self.0.get(at)) {
            Some((_, name)) => name,
            None => "(unknown)",
        }
    }

    /// Returns the addresses of the function `name`.
    ///
    /// # Errors
    /// If the function does not exist, or no symbol follows it.
    pub fn range(&self, name: &str) -> Result<Range<u64>> {
        let position = self.0.iter().position(|(_, symbol)| symbol == name);
        let start = position.map(|at| self.0[at].0);
        let end = start.and_then(|start| self.0.iter().map(|(at, _)| *at).find(|at| *at > start));
        start
            .zip(end)
            .map(|(start, end)| start..end)
            .with_context(|| format!("the guest's kernel has no function {name}"))
    }
}

/// Parses a line `ffffffff81000000 T name [module]`.
fn symbol(line: &str) -> Option<(u64, String)> {
    let mut words = line.split_whitespace();
    let address = hexadecimal(words.next()?)?;
    let _kind = words.next()?;
    let name = words.next()?;
    // Rust's names are demangled, and the hash at their end is cut off.
    let mut name = format!("{:#}", rustc_demangle::demangle(name));
    if let Some(module) = words.next() {
        let _ = write!(name, " {module}");
    }
    Some((address, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_symbol_below_it() {
        let lines = [
            "ffffffff81000000 T start",
            "ffffffff81000100 t alias",
            "ffffffff81000100 t same",
            "ffffffffc0000010 t _RNvNtNtCs1234_4enet6stream6output8transmit\t[enet]",
        ];
        let symbols = Symbols(lines.iter().filter_map(|line| symbol(line)).collect());
        assert_eq!(symbols.name(0xffff_ffff_8100_0010), "start");
        assert_eq!(
            symbols.name(0xffff_ffff_c000_0010),
            "enet::stream::output::transmit [enet]"
        );
        assert_eq!(symbols.name(0x40_0000), PROGRAMS);
        assert_eq!(symbols.name(0xffff_8000_0000_0000), "(unknown)");
        assert_eq!(
            symbols.range("start").unwrap(),
            0xffff_ffff_8100_0000..0xffff_ffff_8100_0100
        );
        assert_eq!(
            symbols.range("alias").unwrap(),
            0xffff_ffff_8100_0100..0xffff_ffff_c000_0010
        );
        let error = symbols.range("none").unwrap_err();
        assert!(error.to_string().contains("no function none"), "{error}");
    }
}
