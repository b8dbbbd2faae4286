// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is remembered between calls: the settings, and the counters from which to count.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};

use anyhow::{bail, ensure, Context, Result};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::counters::Port;
use crate::plan::Settings;

/// Beside the namespaces that `ip` keeps, and gone with them when the machine is started anew.
const FILE: &str = "/run/enet-switch.json";

/// A switch that is up.
#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    /// What it was made with.
    pub settings: Settings,
    /// The counters when they were last reset; empty if never.
    pub baseline: Vec<Port>,
    /// How long it stays.
    #[serde(default)]
    keeping: Keeping,
}

/// How long a switch stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keeping {
    /// Until somebody takes it down.
    #[default]
    UntilDown,
    /// As long as the process that made it has the state locked.
    WhileLocked,
}

/// What to say to who asks for a second one.
const ONE_IS_UP: &str = "a switch is up already: remove it with 'enet-switch down'";

/// Demands that no switch is up.
///
/// # Errors
/// When one is.
pub fn ensure_none_is_up() -> Result<()> {
    ensure!(load_if_up()?.is_none(), ONE_IS_UP);
    Ok(())
}

/// Remembers a switch that is about to be made.
///
/// # Errors
/// When there is one already.
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

/// Locks the state as long as this process lives, or the lock.
///
/// # Errors
/// When somebody else has locked it.
pub fn lock(file: File) -> Result<Flock<File>> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, error)| error)
        .with_context(|| format!("locking {FILE}"))
}

/// Is there a switch whose process has ended without removing it?
///
/// # Errors
/// When the file that describes it cannot be read.
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

/// The switch that is up.
///
/// # Errors
/// When none is, or the file that describes it cannot be read.
pub fn load() -> Result<State> {
    load_if_up()?.context("no switch is up: make one with 'enet-switch up'")
}

/// The switch that is up, if any.
///
/// # Errors
/// When the file that describes it cannot be read.
pub fn load_if_up() -> Result<Option<State>> {
    match fs::read(FILE) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).with_context(|| {
            format!("{FILE} is damaged: remove it, and the namespaces with 'ip -all netns delete'")
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context(FILE),
    }
}

/// Remembers `state`.
///
/// # Errors
/// When the file cannot be written.
pub fn store(state: &State) -> Result<()> {
    fs::write(FILE, serde_json::to_vec(state)?).with_context(|| format!("writing {FILE}"))
}

/// Forgets a switch that has been removed.
///
/// # Errors
/// When the file cannot be removed.
pub fn forget() -> Result<()> {
    fs::remove_file(FILE).with_context(|| format!("removing {FILE}"))
}
