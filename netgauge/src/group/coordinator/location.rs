// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where a participant runs, and how the coordinator reaches it.

use std::fmt;

/// The location of a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A server (`netgauge --server`), which is reached by its host and port.
    Server {
        /// The host's name or address.
        host: String,
        /// The server's port.
        port: u16,
    },
    /// A process in the network namespace of this name or path.
    Namespace(String),
    /// A process on this host, in the coordinator's own network namespace.
    Here,
    /// A process on the host that ssh knows by this name.
    Ssh(String),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Server { host, port } => write!(f, "{host}:{port}"),
            Self::Namespace(name) | Self::Ssh(name) => f.write_str(name),
            Self::Here => f.write_str("this host"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn participants_are_named_as_they_were_given() {
        let server = |host: &str| Location::Server {
            host: host.to_owned(),
            port: 2805,
        };
        assert_eq!(server("10.0.0.2").to_string(), "10.0.0.2:2805");
        assert_eq!(server("fd00::1").to_string(), "[fd00::1]:2805");
        assert_eq!(Location::Namespace("h7".to_owned()).to_string(), "h7");
    }
}
