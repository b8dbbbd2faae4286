// SPDX-License-Identifier: GPL-2.0-only

//! Repeats an operation, and makes a different one of its allocations fail each time.

mod injection;
mod symbols;

use std::io;

pub use injection::{end_failures, Injection, Source, Within};

use crate::harness::remark;
use crate::prelude::*;

/// An upper bound on the number of allocations of any operation.
const MANY: u32 = 2000;

/// Errnos that report a lack of memory. `ENFILE` reports it for the inode of a new socket.
const CLEAN: [i32; 3] = [libc::ENOMEM, libc::ENOBUFS, libc::ENFILE];

/// Returns whether an error reports a lack of memory, and nothing else.
pub fn is_clean(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .is_some_and(|errno| CLEAN.contains(&errno))
}

/// The results of repeating a call, while a different one of its allocations fails each time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Number of the call's allocations.
    pub allocations: u32,
    /// Number of these allocations whose failure made the call fail.
    pub refused: u32,
}

impl Tally {
    /// Prints the results.
    fn report(&self, what: &str) {
        remark(&format!(
            "{what}: {} allocations failed in turn, {} of them made the call fail",
            self.allocations, self.refused
        ));
    }
}

/// A call that is repeated, while a different one of its allocations fails each time.
pub struct Trial<'a, T> {
    /// The name of the call in the output.
    pub what: &'a str,
    /// Makes the object on which the call acts, anew for each try.
    pub prepare: &'a dyn Fn() -> Result<T>,
    /// The call. If it fails for lack of memory, it is repeated at once, and must then succeed.
    pub call: &'a dyn Fn(&mut T) -> io::Result<()>,
    /// Checks that the object is as if nothing had failed.
    pub judge: &'a dyn Fn(T) -> Result<()>,
}

impl<T> Trial<'_, T> {
    /// Tries the call repeatedly. In the `n`-th try, the call's `n`-th allocation fails. The last
    /// try has fewer than `n` allocations, so none fails.
    ///
    /// # Errors
    /// If the call fails for a reason other than a lack of memory, if it fails again when it is
    /// repeated, or if `judge` fails.
    pub fn run(&self, injection: &Injection) -> Result<Tally> {
        let mut tally = Tally::default();
        for n in 1..MANY {
            let place = || format!("{}, allocation {n}", self.what);
            let mut subject = (self.prepare)().with_context(place)?;
            let (result, failed) = injection.in_call(n, || (self.call)(&mut subject))?;
            if let Err(error) = result {
                ensure!(failed && is_clean(&error), "{}: {error}", place());
                tally.refused += 1;
                (self.call)(&mut subject)
                    .with_context(|| format!("{}: the next attempt", place()))?;
            }
            (self.judge)(subject).with_context(place)?;
            if !failed {
                tally.report(self.what);
                return Ok(tally);
            }
            tally.allocations += 1;
        }
        bail!("{}: still no end after {MANY} allocations", self.what)
    }

    /// Works like [`Self::run`], and also checks that the call allocates.
    ///
    /// # Errors
    /// As [`Self::run`], or if the call allocates nothing.
    pub fn allocates(&self, injection: &Injection) -> Result<Tally> {
        let tally = self.run(injection)?;
        ensure!(tally.allocations > 0, "{}: {tally:?}", self.what);
        Ok(tally)
    }

    /// Works like [`Self::run`], and also checks that some failures make the call fail.
    ///
    /// # Errors
    /// As [`Self::run`], or if the call never fails.
    pub fn refuses(&self, injection: &Injection) -> Result<Tally> {
        let tally = self.run(injection)?;
        ensure!(tally.refused > 0, "{}: {tally:?}", self.what);
        Ok(tally)
    }
}

/// Runs `story` repeatedly, for each allocator. In the `n`-th run, the `n`-th allocation fails; the
/// last run has fewer allocations, so none fails. Each run gets a new result of `prepare`, and
/// returns how many of its calls failed for lack of memory.
///
/// # Errors
/// If the story fails.
pub fn in_turn<T>(
    injection: &Injection,
    what: &str,
    prepare: impl Fn() -> Result<T>,
    mut story: impl FnMut(T) -> Result<u32>,
) -> Result<()> {
    for source in Source::ALL {
        let mut tally = Tally::default();
        for n in 1.. {
            ensure!(n < MANY, "{what}: still no end after {MANY} allocations");
            let place = || format!("{what}, allocation {n} of {source:?}");
            let subject = prepare().with_context(place)?;
            let order = injection.order(source, n)?;
            tally.refused += story(subject).with_context(place)?;
            if order.left()? > 0 {
                break;
            }
            tally.allocations += 1;
        }
        tally.report(&format!("{what} ({source:?})"));
    }
    Ok(())
}

/// Repeats a call until it does not fail for lack of memory; adds the number of these failures to
/// `refused`.
///
/// # Errors
/// If the call fails for another reason, or too often.
pub fn insist<T>(refused: &mut u32, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..MANY {
        match call() {
            Err(error) if is_clean(&error) => *refused += 1,
            other => return other,
        }
    }
    call()
}
