// SPDX-License-Identifier: GPL-2.0-only

//! Loads and unloads the kernel module, and reads its reference count.

use std::fs;
use std::io;
use std::process::Command;

use anyhow::{ensure, Context, Result};

use crate::harness::note;
use crate::lab::eventually;
use crate::socket::check;

/// The module's name.
pub const NAME: &str = "enet";

/// Returns whether the module is loaded.
pub fn loaded() -> bool {
    fs::metadata(format!("/sys/module/{NAME}/refcnt")).is_ok()
}

/// Returns the number of references to the module; every socket holds at least one.
///
/// # Errors
/// If the module is not loaded.
pub fn references() -> Result<u32> {
    let path = format!("/sys/module/{NAME}/refcnt");
    let text = fs::read_to_string(&path).context(path)?;
    text.trim().parse().context("refcnt")
}

/// Loads the module with `parameters`, each `name=value`.
///
/// # Errors
/// If modprobe fails, with its message.
pub fn load(parameters: &[&str]) -> Result<()> {
    let output = Command::new("modprobe")
        .arg(NAME)
        .args(parameters)
        .output()
        .context("starting modprobe")?;
    ensure!(
        output.status.success() && loaded(),
        "modprobe {NAME} {parameters:?} failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Calls `delete_module(2)`, without waiting.
///
/// # Errors
/// The call's errno: `EWOULDBLOCK` while a socket is open.
pub fn try_unload() -> io::Result<()> {
    let name = std::ffi::CString::new(NAME)?;
    // SAFETY: `name` is a terminated string that lives across the call; the flags are an integer.
    let result = unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) };
    check(result).map(drop)
}

/// Unloads the module once its last socket is gone.
///
/// # Errors
/// If a socket remains.
pub fn unload() -> Result<()> {
    await_unused()?;
    try_unload().context("delete_module")
}

/// Waits until no socket refers to the module.
///
/// # Errors
/// If one still does after some seconds.
pub fn await_unused() -> Result<()> {
    eventually("the module's reference count falling to 0", || {
        Ok(references()? == 0)
    })
}

/// Loads the module unless it is loaded already.
///
/// # Errors
/// If modprobe fails, with its message.
pub fn ensure_loaded() -> Result<()> {
    if loaded() {
        return Ok(());
    }
    load(&[])
}

/// Reloads the module with its default parameters.
///
/// # Errors
/// If it cannot be unloaded or loaded.
pub fn reload() -> Result<()> {
    if loaded() {
        unload()?;
    }
    load(&[])
}

/// Reloads the module with its default parameters when dropped, however the scenario ends.
#[derive(Debug)]
pub struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        if let Err(error) = reload() {
            note(&format!("the module cannot be restored: {error:#}"));
        }
    }
}
