// SPDX-License-Identifier: GPL-2.0-only

//! What the kernel says while a scenario runs.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use crate::prelude::*;

/// The kernel's log from a moment on.
#[derive(Debug)]
pub struct KernelLog(File);

impl KernelLog {
    /// Starts at the end of what has been said.
    ///
    /// # Errors
    /// When `/dev/kmsg` cannot be read.
    pub fn from_now() -> Result<Self> {
        let mut log = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .context("/dev/kmsg")?;
        log.seek(SeekFrom::End(0)).context("/dev/kmsg")?;
        Ok(Self(log))
    }

    /// Everything said since the last call, a record per element, without its prefix.
    ///
    /// # Errors
    /// When the log cannot be read.
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
                // Records were overwritten before they were read; the next read goes on with the
                // oldest one left.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {
                    records.push("(records lost)".to_owned());
                }
                Err(error) => return Err(error).context("/dev/kmsg"),
            }
        }
    }
}

/// The records that tell of trouble.
pub fn alarms(records: &[String]) -> Vec<&String> {
    let mut ear = alarms::Ear::default();
    let alarming = |record: &&String| ear.alarm(record).is_some();
    records.iter().filter(alarming).collect()
}
