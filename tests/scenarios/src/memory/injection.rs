// SPDX-License-Identifier: GPL-2.0-only

//! The kernel's fault injection: allocations that fail when they are told to.
//!
//! Documentation/fault-injection/fault-injection.rst has the files.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use nix::unistd::{pipe, write};

use super::symbols::Symbols;
use crate::prelude::*;

/// Where memory comes from that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `kmalloc` and its like, up to two pages.
    Slab,
    /// Whole pages, and what is larger.
    Pages,
}

/// Which allocations count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// Those of a call, whoever makes them for it.
    Call,
    /// Those that the module makes, or others for it: it is among the callers.
    Module,
    /// Those of a module that is being started.
    Start,
}

/// The calling thread's files of fault injection.
const MAKE_IT_FAIL: &str = "/proc/thread-self/make-it-fail";
const FAIL_NTH: &str = "/proc/thread-self/fail-nth";

impl Source {
    /// All there are.
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

    /// How many failures are left to be made, below zero for any number.
    fn times(self) -> Result<i32> {
        let path = self.path("times");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        text.trim().parse().context("times")
    }

    /// Lets those allocations fail that have a caller within `functions`; any, without them.
    fn require(self, functions: Option<&Range<u64>>) -> Result<()> {
        let Range { start, end } = functions.cloned().unwrap_or(0..u64::MAX);
        self.set("require-start", &start.to_string())?;
        self.set("require-end", &end.to_string())
    }

    /// The function of the kernel's own checkers that allocates beside other allocations. They get
    /// along without, so that nothing would be learned from its failures.
    fn checker(self) -> &'static str {
        match self {
            Self::Slab => "__alloc_object",
            Self::Pages => "stack_depot_save_flags",
        }
    }

    /// Makes allocations of this thread until one has failed that was told to.
    fn use_up(self) -> Result<()> {
        // Opened before, since that allocates too.
        let switch = File::options().write(true).open(MAKE_IT_FAIL)?;
        while self.times()? != 0 {
            switch.write_all_at(b"1", 0).context(MAKE_IT_FAIL)?;
            // Whether a call fails is not what is asked here.
            match self {
                Self::Slab => drop(pipe()),
                Self::Pages => drop(pipe().and_then(|(_out, into)| write(&into, &[0; 4096]))),
            }
            switch.write_all_at(b"0", 0).context(MAKE_IT_FAIL)?;
        }
        Ok(())
    }
}

/// Failures that can be ordered; there are none any more when it is dropped.
#[derive(Debug)]
pub struct Injection {
    required: Option<Range<u64>>,
}

impl Injection {
    /// Gets ready to have allocations fail `within` something.
    ///
    /// # Errors
    /// When this kernel has no fault injection.
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
        // The user's own pages are not what a call allocates.
        let user_pages = if within == Within::Call { "Y" } else { "N" };
        Source::Pages.set("ignore-gfp-highmem", user_pages)?;
        // Copies to and from users can fail by the same count. Nothing calls from this range.
        for (file, value) in [("require-start", "1"), ("require-end", "2")] {
            let path = PathBuf::from("/sys/kernel/debug/fail_usercopy").join(file);
            fs::write(&path, value).with_context(|| path.display().to_string())?;
        }
        Ok(injection)
    }

    /// Runs `call` with its `n`-th allocation failing, counted from 1: what it returns, and whether
    /// it came so far.
    ///
    /// # Errors
    /// When the kernel does not take the order.
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

    /// From now on the `n`-th allocation from `source` fails, and no other, whoever makes it and in
    /// whatever context.
    ///
    /// # Errors
    /// When the kernel does not take the order.
    pub fn order(&self, source: Source, n: u32) -> Result<Order> {
        let order = Order(source);
        // The kernel's own count goes on from where it is: up to a multiple of `n`, by allocations
        // of this thread.
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

    /// From now on `percent` of the allocations from slabs fail, `most` of them at most, by chance.
    ///
    /// # Errors
    /// When the kernel does not take the order.
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

/// Ends all failures that a scenario has left behind, which was killed. Kernels without fault
/// injection have none.
pub fn end_failures() {
    for source in Source::ALL {
        let _ = source.set("probability", "0");
    }
}

/// A failure that has been ordered, until it is dropped.
#[derive(Debug)]
pub struct Order(Source);

impl Order {
    /// How many failures are still to come.
    ///
    /// # Errors
    /// When the kernel does not tell.
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
