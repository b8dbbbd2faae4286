// SPDX-License-Identifier: MIT OR Apache-2.0

//! A switch that is removed when the process that made it ends.

use std::fs::File;
use std::io::{self, Write as _};

use anyhow::Result;
use nix::fcntl::Flock;

use crate::plan::{self, Settings};
use crate::state::{self, Keeping};
use crate::{build, down, programs};

/// A switch and its hosts, removed on drop. If the process is killed, the next process that makes a
/// temporary switch removes this switch. That process recognizes the abandoned switch because the
/// lock on the state file has ended with the process that held it.
#[derive(Debug)]
pub struct Temporary {
    _alive: Flock<File>,
}

impl Temporary {
    /// Creates a switch.
    ///
    /// # Errors
    /// The errors of [`up`](crate::up).
    pub fn up(settings: &Settings) -> Result<Self> {
        if state::is_abandoned()? {
            down()?;
        }
        state::ensure_none_is_up()?;
        programs::ensure_free(&plan::namespaces(settings.hosts))?;
        let alive = state::lock(state::create(settings, Keeping::WhileLocked)?)?;
        build(settings)?;
        Ok(Self { _alive: alive })
    }

    /// Returns the namespaces of the hosts, by number.
    pub fn hosts(settings: &Settings) -> Vec<String> {
        (0..settings.hosts).map(plan::host).collect()
    }

    /// Removes the switch now and reports errors.
    ///
    /// # Errors
    /// If a namespace cannot be removed.
    pub fn down(self) -> Result<()> {
        // When `self` is dropped afterwards, no switch is left to remove.
        down().map(drop)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = down() {
            // If the message cannot be written, it is lost: a destructor cannot return an error.
            let _ = writeln!(io::stderr(), "the switch could not be removed: {error:#}");
        }
    }
}
