// SPDX-License-Identifier: GPL-2.0-only

//! Makes allocations fail on request, by the kernel's fault injection.
//!
//! Documentation/fault-injection/fault-injection.rst describes the files.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use nix::unistd::{pipe, write};

use super::symbols::Symbols;
use crate::prelude::*;

/// An allocator that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `kmalloc` and similar functions, up to two pages.
    Slab,
    /// The page allocator, which also serves larger requests.
    Pages,
}

/// Which allocations may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// All allocations that are made during one call.
    Call,
    /// Allocations with the module among their callers.
    Module,
    /// Allocations during the initialisation of a module.
    Start,
}

/// The fault injection files of the calling thread.
const MAKE_IT_FAIL: &str = "/proc/thread-self/make-it-fail";
const FAIL_NTH: &str = "/proc/thread-self/fail-nth";

impl Source {
    /// All allocators.
    pub const ALL: [Self; 2] = [Self::Slab, Self::Pages];

    fn path(self, file: &str) -> PathBuf {
        let directory = match self {
            Self::Slab => "failslab",
            Self::Pages => "fail_page_alloc",
        };
        PathBuf::from("/sys/kernel/debug")
            .join(directory)
            .join(file)
    }

    fn set(self, file: &str, value: &str) -> Result<()> {
        let path = self.path(file);
        fs::write(&path, value).with_context(|| path.display().to_string())
    }

    /// Returns the number of failures that are still to come; a negative number means no limit.
    fn times(self) -> Result<i32> {
        let path = self.path("times");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        text.trim().parse().context("times")
    }

    /// Restricts failures to allocations with a caller within `functions`, or lifts the restriction
    /// if `functions` is `None`.
    fn require(self, functions: Option<&Range<u64>>) -> Result<()> {
        let Range { start, end } = functions.cloned().unwrap_or(0..u64::MAX);
        self.set("require-start", &start.to_string())?;
        self.set("require-end", &end.to_string())
    }

    /// Returns the function in which a debugging facility of the kernel (kmemleak or the stack
    /// depot) allocates memory. Fault injection skips these allocations, since their failure would
    /// test nothing in the module.
    fn checker(self) -> &'static str {
        match self {
            Self::Slab => "__alloc_object",
            Self::Pages => "stack_depot_save_flags",
        }
    }

    /// Makes allocations in this thread until the requested failure has happened.
    fn use_up(self) -> Result<()> {
        // Opening the file allocates. So it is opened before this thread's allocations may fail.
        let switch = File::options().write(true).open(MAKE_IT_FAIL)?;
        while self.times()? != 0 {
            switch.write_all_at(b"1", 0).context(MAKE_IT_FAIL)?;
            // Only the allocations of this call matter, and not its result.
            match self {
                Self::Slab => drop(pipe()),
                Self::Pages => drop(pipe().and_then(|(_out, into)| write(&into, &[0; 4096]))),
            }
            switch.write_all_at(b"0", 0).context(MAKE_IT_FAIL)?;
        }
        Ok(())
    }
}

/// Access to fault injection; dropping it ends all failures.
#[derive(Debug)]
pub struct Injection {
    required: Option<Range<u64>>,
}

impl Injection {
    /// Prepares failures of the allocations that `within` selects.
    ///
    /// # Errors
    /// If this kernel has no fault injection.
    pub fn new(within: Within) -> Result<Self> {
        let symbols = Symbols::read()?;
        let required = match within {
            Within::Call => None,
            Within::Module => Some(symbols.of_module()?),
            Within::Start => Some(symbols.function("do_one_initcall")?),
        };
        let injection = Self { required };
        for source in Source::ALL {
            for (file, value) in [
                ("probability", "0"),
                ("times", "0"),
                ("space", "0"),
                ("verbose", "0"),
                ("task-filter", "N"),
                ("ignore-gfp-wait", "N"),
            ] {
                source.set(file, value)?;
            }
            let rejected = symbols.function(source.checker())?;
            source.set("reject-start", &rejected.start.to_string())?;
            source.set("reject-end", &rejected.end.to_string())?;
            source.require(injection.required.as_ref())?;
        }
        Source::Slab.set("cache-filter", "N")?;
        Source::Pages.set("min-order", "0")?;
        // Pages of the user's own memory are not allocations of the call, so they do not fail.
        let user_pages = if within == Within::Call { "Y" } else { "N" };
        Source::Pages.set("ignore-gfp-highmem", user_pages)?;
        // `fail-nth` also counts copies to and from user memory. A copy may fail only if one of its
        // callers is in the address range that is set here. No function is in this range, so the
        // copies always succeed.
        for (file, value) in [("require-start", "1"), ("require-end", "2")] {
            let path = PathBuf::from("/sys/kernel/debug/fail_usercopy").join(file);
            fs::write(&path, value).with_context(|| path.display().to_string())?;
        }
        Ok(injection)
    }

    /// Runs `call` with its `n`-th allocation failing, counted from 1. Returns the result of
    /// `call`, and whether `call` reached that allocation.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn in_call<T>(&self, n: u32, call: impl FnOnce() -> T) -> Result<(T, bool)> {
        let file = File::options().read(true).write(true).open(FAIL_NTH)?;
        let order = n.to_string();
        let mut left = [0; 16];
        file.write_all_at(order.as_bytes(), 0).context(FAIL_NTH)?;
        let result = call();
        let length = file.read_at(&mut left, 0);
        file.write_all_at(b"0", 0).context(FAIL_NTH)?;
        let left = std::str::from_utf8(&left[..length.context(FAIL_NTH)?])?;
        Ok((result, left.trim() == "0"))
    }

    /// Makes the `n`-th allocation from `source` fail, and no other allocation. The allocations of
    /// all tasks and contexts are counted from now on.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn order(&self, source: Source, n: u32) -> Result<Order> {
        let order = Order(source);
        // With the interval `n`, an allocation fails when the kernel's counter of allocations
        // reaches a multiple of `n`. The kernel does not reset this counter. So this thread first
        // allocates until the counter is a multiple of `n`.
        source.require(None)?;
        source.set("interval", &n.to_string())?;
        source.set("task-filter", "Y")?;
        source.set("times", "1")?;
        source.set("probability", "100")?;
        source.use_up()?;
        source.set("probability", "0")?;
        source.set("task-filter", "N")?;
        source.require(self.required.as_ref())?;
        source.set("times", "1")?;
        source.set("probability", "100")?;
        Ok(order)
    }

    /// Makes `percent` of the slab allocations fail at random from now on, at most `most` of them.
    ///
    /// # Errors
    /// If the kernel refuses the request.
    pub fn often(&self, percent: u32, most: u32) -> Result<Order> {
        let order = Order(Source::Slab);
        Source::Slab.set("interval", "1")?;
        Source::Slab.set("times", &most.to_string())?;
        Source::Slab.set("probability", &percent.to_string())?;
        Ok(order)
    }
}

impl Drop for Injection {
    fn drop(&mut self) {
        for source in Source::ALL {
            if let Err(error) = source.require(None) {
                note(&format!("fault injection cannot be ended: {error:#}"));
            }
        }
    }
}

/// Ends the failures that a killed scenario has left behind. Errors are ignored because a kernel
/// without fault injection lacks the files.
pub fn end_failures() {
    for source in Source::ALL {
        let _ = source.set("probability", "0");
    }
}

/// A requested failure; dropping it cancels the request.
#[derive(Debug)]
pub struct Order(Source);

impl Order {
    /// Returns how many of the requested failures have not happened yet.
    pub fn left(&self) -> Result<u32> {
        Ok(u32::try_from(self.0.times()?)?)
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        let source = self.0;
        let ended = source
            .set("probability", "0")
            .and_then(|()| source.set("task-filter", "N"));
        if let Err(error) = ended {
            note(&format!(
                "an ordered failure cannot be taken back: {error:#}"
            ));
        }
    }
}
