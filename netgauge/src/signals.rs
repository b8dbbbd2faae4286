// SPDX-License-Identifier: MIT OR Apache-2.0

//! SIGINT and SIGTERM, made readable from a descriptor, so that a run can wait for them and end
//! cleanly.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

use anyhow::{bail, Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use thiserror::Error;

/// The user has interrupted the run with a signal.
#[derive(Debug, Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Returns whether the error says that the user interrupted the run.
pub fn is_interrupted(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Interrupted>().is_some()
}

/// Catches SIGINT and SIGTERM; a second signal ends the process at once.
#[derive(Debug)]
pub struct Signals {
    reader: UnixStream,
    came: bool,
}

impl Signals {
    /// Catches the signals from now on.
    ///
    /// # Errors
    ///
    /// Fails if a system call fails.
    pub fn catch() -> Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        let impatient = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&impatient))?;
            signal_hook::flag::register(signal, Arc::clone(&impatient))?;
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Self {
            reader,
            came: false,
        })
    }

    /// Fails if a signal has come since the last check. The next check succeeds again, so that the
    /// same signal does not also interrupt the cleanup.
    ///
    /// # Errors
    ///
    /// Fails with [`Interrupted`] if a signal has come since the last check.
    pub fn check(&mut self) -> Result<()> {
        let mut news = [0; 16];
        match self.reader.read(&mut news) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error).context("looking for signals"),
            Ok(_) => {
                self.came = true;
                bail!(Interrupted)
            }
        }
    }

    /// Returns whether [`check`](Self::check) has reported a signal.
    pub fn came(&self) -> bool {
        self.came
    }
}

as_fd!([] Signals, reader);
