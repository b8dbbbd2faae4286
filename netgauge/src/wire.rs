// SPDX-License-Identifier: MIT OR Apache-2.0

//! The addresses of transports' sockets. The two ends send them to each other on the control
//! connection.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// The address of a transport's socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Port; 0 if the transport has none, or the side only connects.
    pub port: u16,
    /// Ethernet address, if the transport uses one.
    pub mac: Option<String>,
    /// IP address, if it differs from the address of the control connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpAddr>,
    /// The host and the network namespace of the process. Only transports within a host need them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Path of a local socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Identity of a TIPC socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tipc: Option<SocketId>,
    /// Rank in an MPI job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpi: Option<RankOf>,
}

/// A TIPC socket's identity in its cluster: `struct tipc_socket_addr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketId {
    /// The socket's number at its node.
    pub port: u32,
    /// The node's address. It is 0 if the namespace has no bearer, which is an interface that TIPC
    /// uses.
    pub node: u32,
}

/// One of the two processes of an MPI job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankOf {
    /// mpirun's name of the job.
    pub(crate) job: String,
    /// The rank, 0 or 1.
    pub(crate) rank: i32,
}

/// A network namespace of a running kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The kernel's boot identifier.
    boot: String,
    /// The namespace's inode number.
    namespace: u64,
}

impl Place {
    /// Returns the namespace of this thread.
    ///
    /// # Errors
    ///
    /// Fails if a file of `/proc` cannot be read.
    pub fn here() -> Result<Self> {
        // The files of this thread are read, because other threads of the process may be in other
        // namespaces.
        let (boot, namespace) = (
            "/proc/sys/kernel/random/boot_id",
            "/proc/thread-self/ns/net",
        );
        Ok(Self {
            boot: fs::read_to_string(boot).context(boot)?.trim().to_owned(),
            namespace: fs::metadata(namespace).context(namespace)?.ino(),
        })
    }

    /// Returns whether both namespaces are on the same host.
    pub fn is_same_host(&self, other: &Self) -> bool {
        self.boot == other.boot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_their_namespaces_are_distinguished() {
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
