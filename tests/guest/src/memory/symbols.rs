// SPDX-License-Identifier: GPL-2.0-only

//! Finds the addresses of functions in the kernel and in the module.

use std::ops::Range;

use crate::prelude::*;

/// The functions in `/proc/kallsyms`.
#[derive(Debug)]
pub struct Symbols {
    text: String,
}

/// A line of `/proc/kallsyms`.
struct Function<'a> {
    address: u64,
    name: &'a str,
    module: &'a str,
}

impl<'a> Function<'a> {
    /// Parses "ffffffff81222c30 T do_one_initcall"; a module's name may follow in brackets.
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        words.next().filter(|kind| matches!(*kind, "t" | "T"))?;
        Some(Self {
            address,
            name: words.next()?,
            module: words.next().unwrap_or_default(),
        })
    }
}

impl Symbols {
    /// Reads the symbols.
    ///
    /// # Errors
    /// If the kernel hides them.
    pub fn read() -> Result<Self> {
        let path = "/proc/kallsyms";
        let text = fs::read_to_string(path).context(path)?;
        Ok(Self { text })
    }

    fn functions(&self) -> impl Iterator<Item = Function<'_>> {
        self.text.lines().filter_map(Function::parse)
    }

    /// Returns the address range of the kernel's function `name`, up to the beginning of the next
    /// function.
    ///
    /// # Errors
    /// If there is none.
    pub fn function(&self, name: &str) -> Result<Range<u64>> {
        let start = self
            .functions()
            .find(|function| function.name == name && function.module.is_empty())
            .with_context(|| format!("the kernel has no function {name}"))?
            .address;
        let end = self
            .functions()
            .map(|function| function.address)
            .filter(|&address| address > start)
            .min()
            .context("a last function")?;
        Ok(start..end)
    }

    /// Returns the address range of the module's functions, assuming that the last one is at most
    /// `LONGEST` bytes long.
    ///
    /// # Errors
    /// If the module is not loaded.
    pub fn of_module(&self) -> Result<Range<u64>> {
        const LONGEST: u64 = 0x2000;
        let ours = format!("[{}]", module::NAME);
        let addresses = || {
            self.functions()
                .filter(|function| function.module == ours)
                .map(|function| function.address)
        };
        let start = addresses().min().context("no function of the module")?;
        let end = addresses().max().context("no function of the module")?;
        Ok(start..end + LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_name_and_module() {
        let symbols = Symbols {
            text: "0000000000001000 T first\n0000000000001080 d data\n0000000000001100 t second\n\
                0000000000009000 t one\t[enet]\n0000000000009800 t first\t[enet]\n0000000000007000 t other\t[veth]\n"
                .into(),
        };
        assert_eq!(symbols.function("first").unwrap(), 0x1000..0x1100);
        assert_eq!(symbols.of_module().unwrap(), 0x9000..0xb800);
        assert!(symbols.function("data").is_err());
    }
}
