// SPDX-License-Identifier: MIT OR Apache-2.0

//! A run of two that its user may end at any time: what was measured by then is printed.

use std::io;
use std::os::fd::AsFd as _;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context as _, Result};
use nix::sys::signal::{SigSet, Signal};

use crate::host::wait_readable;
use crate::progress::{Bar, Progress};
use crate::report::format::Format;
use crate::report::Report;
use crate::signals::Signals;

/// Exit status when a signal ended the run: what a shell gives for SIGINT.
pub const INTERRUPTED: u8 = 130;

/// A run: how far it is, for a person who watches, and what it has measured.
#[derive(Debug)]
pub struct Watch {
    bar: Bar,
    state: Mutex<State>,
}

/// How far it is with what it has measured.
#[derive(Debug)]
enum State {
    /// It goes on; a signal would print this.
    Running(Option<Report>),
    /// It has its report, and prints it or has printed it.
    Over,
}

impl Watch {
    /// Watches a run of so many sizes. From now on SIGINT and SIGTERM end the process, with a
    /// report in `format` of what was measured.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn begin(sizes: u64, format: Format) -> Result<Arc<Self>> {
        let watch = Arc::new(Self {
            bar: Bar::new(sizes),
            state: Mutex::new(State::Running(None)),
        });
        let signals = Signals::catch()?;
        let both = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        // They would end calls of the one who measures, which then would look failed.
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
                    Err(error) => eprintln!("netgauge: waiting for signals: {error}"),
                }
            })
            .context("starting a thread")?;
        Ok(watch)
    }

    /// The run is over: from now on a signal does not print its report a second time. A further one
    /// still ends the process. If a signal was the first to end the run, this does not return.
    pub fn end(&self) {
        *self.state() = State::Over;
        self.bar.finish();
    }

    /// Holds the run where it is, unless it is over.
    fn interrupt(&self) -> Option<MutexGuard<'_, State>> {
        let state = self.state();
        matches!(*state, State::Running(_)).then_some(state)
    }

    /// Prints what was measured, and ends the process. The run is held, so that nobody else prints.
    fn exit(&self, state: &State, format: Format) -> ! {
        self.bar.finish();
        if let State::Running(Some(report)) = state {
            if let Err(error) = report.write(format, &mut io::stdout().lock()) {
                eprintln!("netgauge: writing the report: {error}");
            }
        }
        eprintln!("netgauge: interrupted");
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
        // Nor does what is told too late bring it back.
        watch.measured(samples::report());
        assert!(watch.interrupt().is_none());
    }
}
