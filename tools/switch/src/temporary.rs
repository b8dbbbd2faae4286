// SPDX-License-Identifier: MIT OR Apache-2.0

//! A switch that goes with the process that made it.

use std::fs::File;

use anyhow::Result;
use nix::fcntl::Flock;

use crate::plan::{self, Settings};
use crate::state::{self, Keeping};
use crate::{build, down, programs};

/// A switch and its hosts, removed when this is dropped. What a killed process has left behind is
/// removed by the next one that makes such a switch: this one's state is locked, which ends with
/// the process in any case.
#[derive(Debug)]
pub struct Temporary {
    _alive: Flock<File>,
}

impl Temporary {
    /// Makes one.
    ///
    /// # Errors
    /// As [`up`](crate::up).
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

    /// The namespaces of the hosts, by number.
    pub fn hosts(settings: &Settings) -> Vec<String> {
        (0..settings.hosts).map(plan::host).collect()
    }

    /// Removes it now, and says what went wrong.
    ///
    /// # Errors
    /// When a namespace cannot be removed.
    pub fn down(self) -> Result<()> {
        // What is left to drop finds no switch.
        down().map(drop)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = down() {
            eprintln!("the switch could not be removed: {error:#}");
        }
    }
}
