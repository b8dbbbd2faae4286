// SPDX-License-Identifier: GPL-2.0-only

//! Reads the kernel's log while a scenario runs.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::prelude::*;

/// The kernel's log, beginning at the time at which this value was made.
#[derive(Debug)]
pub struct KernelLog(File);

impl KernelLog {
    /// Returns the kernel's log from now on.
    pub fn from_now() -> Result<Self> {
        let mut log = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .context("/dev/kmsg")?;
        log.seek(SeekFrom::End(0)).context("/dev/kmsg")?;
        Ok(Self(log))
    }

    /// Returns the records since the last call, without their prefixes.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn records(&mut self) -> Result<Vec<String>> {
        let mut records = Vec::new();
        let mut record = [0u8; 8192];
        loop {
            match self.0.read(&mut record) {
                Ok(0) => return Ok(records),
                Ok(length) => {
                    let text = String::from_utf8_lossy(&record[..length]);
                    let message = text.split_once(';').map_or(&*text, |(_, rest)| rest);
                    records.push(message.lines().next().unwrap_or_default().to_owned());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(records),
                // Records were overwritten before they were read; the next read returns the oldest
                // one left.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {
                    records.push("(records lost)".to_owned());
                }
                Err(error) => return Err(error).context("/dev/kmsg"),
            }
        }
    }
}

/// Returns the records that report a problem.
pub fn alarms(records: &[String]) -> Vec<&String> {
    let mut ear = alarms::Ear::default();
    let alarming = |record: &&String| ear.alarm(record).is_some();
    records.iter().filter(alarming).collect()
}

/// Returns whether the kernel reports memory that nothing refers to (kmemleak).
pub fn finds_leaks() -> bool {
    Path::new("/sys/kernel/debug/kmemleak").exists()
}
