// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state of a switch, which a file keeps from one call to the next: the settings, and the
//! baseline of the counters.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};

use anyhow::{bail, ensure, Context, Result};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::counters::Port;
use crate::plan::Settings;

/// The state file. It is in `/run`, like the namespaces that `ip` makes, so a reboot removes both.
const FILE: &str = "/run/enet-switch.json";

/// A switch that is up.
#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    /// The settings that the switch was created with.
    pub settings: Settings,
    /// The values of the counters at the most recent reset; empty if they were never reset.
    pub baseline: Vec<Port>,
    /// The lifetime of the switch.
    #[serde(default)]
    keeping: Keeping,
}

/// The lifetime of a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keeping {
    /// The switch lasts until `down` removes it.
    #[default]
    UntilDown,
    /// The switch lasts while the process that made it holds the lock on the state file.
    WhileLocked,
}

/// The error message for a request to make a second switch.
const ONE_IS_UP: &str = "a switch is up already: remove it with 'enet-switch down'";

/// Fails if a switch is up.
///
/// # Errors
/// If a switch is up.
pub fn ensure_none_is_up() -> Result<()> {
    ensure!(load_if_up()?.is_none(), ONE_IS_UP);
    Ok(())
}

/// Stores the state of a switch that is about to be built.
///
/// # Errors
/// If a switch exists already.
pub fn create(settings: &Settings, keeping: Keeping) -> Result<File> {
    let state = State {
        settings: settings.clone(),
        baseline: Vec::new(),
        keeping,
    };
    let opened = OpenOptions::new().write(true).create_new(true).open(FILE);
    match opened {
        Ok(mut file) => {
            file.write_all(&serde_json::to_vec(&state)?)
                .with_context(|| format!("writing {FILE}"))?;
            Ok(file)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!(ONE_IS_UP),
        Err(error) => Err(error).with_context(|| format!("writing {FILE}: are you root?")),
    }
}

/// Locks the state until the lock is dropped or this process ends.
///
/// # Errors
/// If another process has locked the state.
pub fn lock(file: File) -> Result<Flock<File>> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, error)| error)
        .with_context(|| format!("locking {FILE}"))
}

/// Returns whether a process has ended without removing the temporary switch that it made.
///
/// # Errors
/// If the state file cannot be read.
pub fn is_abandoned() -> Result<bool> {
    if load_if_up()?.is_none_or(|state| state.keeping == Keeping::UntilDown) {
        return Ok(false);
    }
    let file = File::open(FILE).context(FILE)?;
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Ok(_) => Ok(true),
        Err((_, Errno::EWOULDBLOCK)) => Ok(false),
        Err((_, error)) => Err(error).with_context(|| format!("locking {FILE}")),
    }
}

/// Returns the state of the switch that is up.
///
/// # Errors
/// If no switch is up, or the state file cannot be read.
pub fn load() -> Result<State> {
    load_if_up()?.context("no switch is up: make one with 'enet-switch up'")
}

/// Returns the state of the switch that is up, if any.
///
/// # Errors
/// If the state file cannot be read.
pub fn load_if_up() -> Result<Option<State>> {
    match fs::read(FILE) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).with_context(|| {
            format!("{FILE} is damaged: remove it, and the namespaces with 'ip -all netns delete'")
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context(FILE),
    }
}

/// Stores `state`.
///
/// # Errors
/// If the file cannot be written.
pub fn store(state: &State) -> Result<()> {
    fs::write(FILE, serde_json::to_vec(state)?).with_context(|| format!("writing {FILE}"))
}

/// Removes the state of a switch that has been removed.
///
/// # Errors
/// If the file cannot be removed.
pub fn forget() -> Result<()> {
    fs::remove_file(FILE).with_context(|| format!("removing {FILE}"))
}
