// SPDX-License-Identifier: GPL-2.0-only

//! Runs netgauge in a guest while QEMU logs the executed instructions.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::process::Command;
use std::thread;

use anyhow::{ensure, Result};
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use super::symbols::Symbols;
use super::trace::{Counts, Trace};
use crate::commands::Commands;
use crate::qemu::Monitor;
use crate::step;

/// The line that the runner appends to QEMU's log, to mark its end.
const END: &[u8] = b"(end)\n";

/// The kernel function that handles softirqs: kernel/softirq.c.
const HANDLER: &str = "handle_softirqs";

/// The kernel frees some objects of an ended process only after some ticks. This command waits
/// until they are freed. Each run ends with this wait, so the release of these objects cancels out
/// in the difference, and does not fall into the next run.
const SETTLE: &str = "! usleep 300000";

/// Counts the instructions that a guest executes.
#[derive(Debug)]
pub struct Tracer {
    monitor: Monitor,
    log: File,
    trace: Trace,
    symbols: Symbols,
    /// The directory of the log, which is a pipe.
    _directory: TempDir,
}

impl Tracer {
    /// Sets up counting in a guest that runs the benchmark. The guest must already have loaded all
    /// modules that it will need, because their symbols are read now.
    ///
    /// # Errors
    /// If the guest or QEMU does not answer, or the guest's kernel lacks the softirq handler.
    pub fn new(guest: &mut Commands) -> Result<Self> {
        let directory = TempDir::with_prefix("profile-")?;
        let pipe = directory.path().join("log");
        let status = Command::new("mkfifo").arg(&pipe).status()?;
        ensure!(status.success(), "mkfifo: {status}");
        // The pipe is opened for reading and for writing, so it always has a reader and a writer.
        // QEMU therefore never waits for a reader, and the reader never reads an end of file.
        let log = OpenOptions::new().read(true).write(true).open(&pipe)?;
        let mut monitor = guest.monitor()?;
        monitor.command(&format!("logfile {}", pipe.display()))?;
        let symbols = Symbols::read(guest)?;
        Ok(Self {
            monitor,
            log,
            trace: Trace::new(symbols.range(HANDLER)?),
            symbols,
            _directory: directory,
        })
    }

    /// Runs netgauge with `arguments` in the guest. Returns two values: the counts of the
    /// instructions that the guest executes during this time, and netgauge's report.
    ///
    /// # Errors
    /// If the guest or QEMU does not answer, or the output of either cannot be parsed.
    pub fn count<T: DeserializeOwned>(
        &mut self,
        guest: &mut Commands,
        arguments: &str,
    ) -> Result<(Counts, T)> {
        let from = self.log.try_clone()?;
        thread::scope(|scope| {
            let reader = scope.spawn(|| self.trace.read(from, END));
            let ended = guest
                .ask(SETTLE)
                .and_then(|_| set_log(&mut self.monitor, "in_asm,exec,nochain"))
                .and_then(|()| guest.ask(arguments))
                .and_then(|ended| guest.ask(SETTLE).map(|_| ended));
            // When this command has ended, QEMU has written its whole log.
            set_log(&mut self.monitor, "none")?;
            self.log.write_all(END)?;
            let counts = reader.join().expect("the reader of QEMU's log")?;
            Ok((counts, ended?.report()?))
        })
    }

    /// Returns the functions of the guest's kernel.
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// Prints a message if QEMU executed a block that it had not listed.
    pub fn tell_unlisted(&self) {
        let unlisted = self.trace.unlisted();
        if unlisted > 0 {
            step::say(&format!(
                "{unlisted} times a block was entered that QEMU had not listed, and counted as one instruction"
            ));
        }
    }
}

/// Changes what QEMU logs, while the guest is stopped. A running guest could translate a block
/// before the change, and QEMU would execute that block later without having listed it.
fn set_log(monitor: &mut Monitor, what: &str) -> Result<()> {
    monitor.command("stop")?;
    let set = monitor.command(&format!("log {what}"));
    monitor.command("cont")?;
    set
}
