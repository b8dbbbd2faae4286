// SPDX-License-Identifier: MIT OR Apache-2.0

//! Watches a run between two hosts. A signal may end the run at any time; the results so far are
//! then printed.

use std::io;
use std::os::fd::AsFd as _;
use std::process::{self, ExitCode};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context as _, Result};
use nix::sys::signal::{SigSet, Signal};

use crate::host::wait_readable;
use crate::messages::tell;
use crate::progress::{Bar, Progress};
use crate::report::format::Format;
use crate::report::Report;
use crate::signals::Signals;

/// Exit status when a signal ended the run. It is the status that a shell reports for SIGINT.
pub const INTERRUPTED: u8 = 130;

/// Runs `measure`, which measures `sizes` sizes, and prints the report in `format`. Returns the
/// exit status of the process, which is 1 if a transport has failed.
///
/// # Errors
///
/// Fails if a system call or `measure` fails, or if the report cannot be written.
pub fn watched(
    sizes: usize,
    format: Format,
    measure: impl FnOnce(&dyn Progress) -> Result<Report>,
) -> Result<ExitCode> {
    let watch = Watch::begin(sizes as u64, format)?;
    let report = measure(&*watch);
    watch.end();
    let report = report?;
    let written = report.write(format, &mut io::stdout().lock());
    written.context("writing the report")?;
    format.tell(&report.left_out, &report.errors());
    Ok(ExitCode::from(u8::from(!report.is_complete())))
}

/// A run's progress bar and its results so far.
#[derive(Debug)]
struct Watch {
    bar: Bar,
    state: Mutex<State>,
}

/// The state of a run.
#[derive(Debug)]
enum State {
    /// The run goes on. A signal prints the report so far, if there is one.
    Running(Option<Report>),
    /// The run is complete. The main thread prints its report, or has printed it.
    Over,
}

impl Watch {
    /// Watches a run of this many sizes. From now on SIGINT and SIGTERM end the process, with a
    /// report of the results so far in `format`.
    ///
    /// # Errors
    ///
    /// Fails if a system call fails.
    fn begin(sizes: u64, format: Format) -> Result<Arc<Self>> {
        let watch = Arc::new(Self {
            bar: Bar::new(sizes),
            state: Mutex::new(State::Running(None)),
        });
        let signals = Signals::catch()?;
        let both = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        // The signals are blocked in the measuring thread, because they would interrupt its calls,
        // and the calls would appear to fail.
        both.thread_block().context("blocking signals")?;
        let watched = Arc::clone(&watch);
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                let caught = both.thread_unblock().map_err(io::Error::from);
                match caught.and_then(|()| wait_readable([signals.as_fd()], None)) {
                    Ok(_) => {
                        if let Some(state) = watched.interrupt() {
                            watched.exit(&state, format);
                        }
                    }
                    Err(error) => tell(format_args!("waiting for signals: {error}")),
                }
            })
            .context("starting a thread")?;
        Ok(watch)
    }

    /// Ends the watch: from now on a first signal does nothing, and a second one ends the process.
    /// Does not return if a signal has already ended the run.
    fn end(&self) {
        *self.state() = State::Over;
        self.bar.finish();
    }

    /// Returns the locked state, or `None` if the run is over.
    fn interrupt(&self) -> Option<MutexGuard<'_, State>> {
        let state = self.state();
        matches!(*state, State::Running(_)).then_some(state)
    }

    /// Prints the results so far, and ends the process. The caller holds the lock of `state`, so no
    /// other thread prints.
    fn exit(&self, state: &State, format: Format) -> ! {
        self.bar.finish();
        if let State::Running(Some(report)) = state {
            if let Err(error) = report.write(format, &mut io::stdout().lock()) {
                tell(format_args!("writing the report: {error}"));
            }
        }
        tell(format_args!("interrupted"));
        process::exit(INTERRUPTED.into())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for Watch {
    fn begin(&self, transport: &str, pattern: &str) {
        self.bar.begin(transport, pattern);
    }

    fn advance(&self, sizes: u64) {
        self.bar.advance(sizes);
    }

    fn measured(&self, so_far: Report) {
        if let State::Running(report) = &mut *self.state() {
            *report = Some(so_far);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;

    #[test]
    fn a_signal_ends_a_run_once_and_not_one_that_is_over() {
        let watch = Watch {
            bar: Bar::new(1),
            state: Mutex::new(State::Running(None)),
        };
        watch.measured(samples::report());
        let held = watch.interrupt().unwrap();
        assert!(matches!(&*held, State::Running(Some(report)) if *report == samples::report()));
        drop(held);
        watch.end();
        assert!(watch.interrupt().is_none());
        // A result that comes after the end does not restart the run.
        watch.measured(samples::report());
        assert!(watch.interrupt().is_none());
    }
}
