// SPDX-License-Identifier: MIT OR Apache-2.0

//! A run of two that its user may end at any time: what was measured by then is printed.

use std::io;
use std::os::fd::AsFd as _;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context as _, Result};
use nix::sys::signal::{SigSet, Signal};

use crate::group::signals::Signals;
use crate::host::wait_readable;
use crate::progress::{Bar, Progress};
use crate::report::{Format, Report};

/// Exit status when a signal ended the run: what a shell gives for SIGINT.
pub const INTERRUPTED: u8 = 130;

/// A run: how far it is, for a person who watches, and what it has measured.
#[derive(Debug)]
pub struct Watch {
    bar: Bar,
    so_far: Mutex<Option<Report>>,
}

impl Watch {
    /// Watches a run of so many sizes. From now on SIGINT and SIGTERM end the process, with a report in `format` of
    /// what was measured.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn begin(sizes: u64, format: Format) -> Result<Arc<Self>> {
        let watch = Arc::new(Self {
            bar: Bar::new(sizes),
            so_far: Mutex::new(None),
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
                    Ok(_) => watched.interrupted(format),
                    Err(error) => eprintln!("netgauge: waiting for signals: {error}"),
                }
            })
            .context("starting a thread")?;
        Ok(watch)
    }

    /// The run is over: a signal does not print its report a second time, as long as this is held.
    pub fn end(&self) -> impl Drop + '_ {
        let held = self.so_far();
        self.bar.finish();
        held
    }

    fn interrupted(&self, format: Format) -> ! {
        let so_far = self.so_far();
        self.bar.finish();
        if let Some(report) = &*so_far {
            if let Err(error) = report.write(format, &mut io::stdout().lock()) {
                eprintln!("netgauge: writing the report: {error}");
            }
        }
        eprintln!("netgauge: interrupted");
        process::exit(INTERRUPTED.into())
    }

    fn so_far(&self) -> MutexGuard<'_, Option<Report>> {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
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
        *self.so_far() = Some(so_far);
    }
}
