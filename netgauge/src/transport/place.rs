// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where a process is: transports within one host have to know whether the peer is there too.

use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// A running kernel, and one of its network namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The kernel's boot identifier.
    boot: String,
    /// The namespace's inode number.
    namespace: u64,
}

impl Place {
    /// This thread's.
    ///
    /// # Errors
    ///
    /// `/proc` does not tell.
    pub fn here() -> Result<Self> {
        // Other threads of the process may be in other namespaces.
        let (boot, namespace) = (
            "/proc/sys/kernel/random/boot_id",
            "/proc/thread-self/ns/net",
        );
        Ok(Self {
            boot: fs::read_to_string(boot).context(boot)?.trim().to_owned(),
            namespace: fs::metadata(namespace).context(namespace)?.ino(),
        })
    }

    /// Is the other one on the same host?
    pub fn is_same_host(&self, other: &Self) -> bool {
        self.boot == other.boot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_apart_and_so_are_namespaces_of_one() {
        let here = Place::here().unwrap();
        assert_eq!(here, Place::here().unwrap());
        let beside = Place {
            namespace: here.namespace + 1,
            ..here.clone()
        };
        assert!(here.is_same_host(&beside) && here != beside);
        let elsewhere = Place {
            boot: "another".to_owned(),
            ..here.clone()
        };
        assert!(!here.is_same_host(&elsewhere));
    }
}
