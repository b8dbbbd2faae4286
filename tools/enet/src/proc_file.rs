// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads the module's files under `/proc/net`.

use std::fs;
use std::io::{self, ErrorKind};

use anyhow::{anyhow, Result};

use crate::module;

/// The file of the module's counters.
pub const ENET: &str = "enet";

/// Returns the text of `/proc/net/NAME` in the network namespace of this process.
///
/// # Errors
/// If the file cannot be read. If the file does not exist, the error says that the module is not
/// loaded.
pub fn read(name: &str) -> Result<String> {
    let path = format!("/proc/net/{name}");
    fs::read_to_string(&path).map_err(|error| explain(&path, error))
}

/// Returns whether the module is loaded.
pub fn module_is_loaded() -> bool {
    fs::metadata(format!("/proc/net/{ENET}")).is_ok()
}

/// Returns whether this process sees files of a network namespace.
fn is_mounted() -> bool {
    fs::metadata("/proc/net").is_ok()
}

/// Returns the version of the loaded module, or `unknown` for older modules, which do not report
/// one.
pub fn module_version() -> String {
    let version = fs::read_to_string("/sys/module/enet/version");
    version.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn explain(path: &str, error: io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::NotFound if !is_mounted() => {
            anyhow!("there is no {path}: /proc is not mounted, so this program cannot look")
        }
        ErrorKind::NotFound => {
            anyhow!("there is no {path}: {}", module::missing())
        }
        _ => anyhow!(error).context(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_explained() {
        let missing = explain("/proc/net/enet", ErrorKind::NotFound.into());
        assert!(missing.to_string().contains("is not loaded"), "{missing}");
        let denied = explain("/proc/net/enet", ErrorKind::PermissionDenied.into());
        assert!(!denied.to_string().contains("loaded"), "{denied}");
    }
}
