// SPDX-License-Identifier: GPL-2.0-only

//! Operations of which every allocation fails in its turn.

mod injection;
mod symbols;

use std::io;

pub use injection::{end_failures, Injection, Source, Within};

use crate::harness::tell;
use crate::prelude::*;

/// More allocations than any operation has.
const MANY: u32 = 2000;

/// What a call may say when it got no memory: `ENFILE` of a new socket's inode.
const CLEAN: [i32; 3] = [libc::ENOMEM, libc::ENOBUFS, libc::ENFILE];

/// Whether an error says that there was no memory, and nothing else.
pub fn is_clean(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .is_some_and(|errno| CLEAN.contains(&errno))
}

/// What became of an operation's allocations that failed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// How many there are.
    pub allocations: u32,
    /// How many of the failures the caller was told of.
    pub refused: u32,
}

impl Tally {
    /// Prints it.
    fn tell(&self, what: &str) {
        tell(&format!(
            "{what}: {} allocations failed in turn, {} of them made the call fail",
            self.allocations, self.refused
        ));
    }
}

/// A call whose allocations fail in turn.
pub struct Trial<'a, T> {
    /// What it is called in what is printed.
    pub what: &'a str,
    /// Makes what it works on, anew for each failure.
    pub prepare: &'a dyn Fn() -> Result<T>,
    /// The call. It is made again when it fails, and must succeed then.
    pub call: &'a dyn Fn(&mut T) -> io::Result<()>,
    /// Demands that all is as if nothing had failed.
    pub judge: &'a dyn Fn(T) -> Result<()>,
}

impl<T> Trial<'_, T> {
    /// Makes the call with its first allocation failing, then with its second, and so on until all
    /// succeed.
    ///
    /// # Errors
    /// When the call fails in another way than for want of memory, does not succeed the next time,
    /// or is judged.
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
                tally.tell(self.what);
                return Ok(tally);
            }
            tally.allocations += 1;
        }
        bail!("{}: still no end after {MANY} allocations", self.what)
    }

    /// As [`Self::run`], and demands that the call allocates.
    ///
    /// # Errors
    /// As [`Self::run`], and when the call allocates nothing.
    pub fn allocates(&self, injection: &Injection) -> Result<Tally> {
        let tally = self.run(injection)?;
        ensure!(tally.allocations > 0, "{}: {tally:?}", self.what);
        Ok(tally)
    }

    /// As [`Self::run`], and demands that the caller is told of some failures.
    ///
    /// # Errors
    /// As [`Self::run`], and when the call is never refused.
    pub fn refuses(&self, injection: &Injection) -> Result<Tally> {
        let tally = self.run(injection)?;
        ensure!(tally.refused > 0, "{}: {tally:?}", self.what);
        Ok(tally)
    }
}

/// Lets `story` take place with what `prepare` made, the first allocation failing, then the second,
/// and so on until none does; once for each source of memory. The story tells how many of its calls
/// were refused memory.
///
/// # Errors
/// When the story does not come to its end.
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
        tally.tell(&format!("{what} ({source:?})"));
    }
    Ok(())
}

/// Makes a call until it is not refused for want of memory; `refused` counts how often it was.
///
/// # Errors
/// When it fails otherwise, or again and again.
pub fn insist<T>(refused: &mut u32, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..MANY {
        match call() {
            Err(error) if is_clean(&error) => *refused += 1,
            other => return other,
        }
    }
    call()
}
