// SPDX-License-Identifier: GPL-2.0-only

//! Changes settings of the kernel, and restores them when the scenario no longer needs the change.

use std::fmt::Display;

use crate::harness::remark;
use crate::prelude::*;

/// A file below `/proc/sys` or `/sys` that the scenario has changed. Dropping the value restores
/// the file.
pub struct Setting {
    path: String,
    before: String,
}

impl Setting {
    /// Writes `value` to the file `path`, as the calling thread's namespace shows this file.
    ///
    /// # Errors
    /// If there is no such setting, or if it does not take the value.
    pub fn set(path: impl Into<String>, value: impl Display) -> Result<Self> {
        let path = path.into();
        let before = fs::read_to_string(&path).with_context(|| path.clone())?;
        fs::write(&path, value.to_string()).with_context(|| path.clone())?;
        Ok(Self { path, before })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.before) {
            remark(&format!("{} cannot be restored: {error}", self.path));
        }
    }
}
