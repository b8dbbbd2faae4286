// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where a participant runs, and how the coordinator reaches it.

use std::fmt;

use anyhow::{ensure, Result};

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

impl Location {
    /// Parses the location of a server by [`server_address`].
    ///
    /// # Errors
    ///
    /// The errors of [`server_address`].
    pub fn server(text: &str, default: u16) -> Result<Self> {
        let (host, port) = server_address(text, default)?;
        Ok(Self::Server {
            host: host.to_owned(),
            port,
        })
    }
}

/// Parses HOST, HOST:PORT, `[IPv6]:PORT`, or an IPv6 address. Returns the host and the port, which
/// is `default` if the text names none.
///
/// # Errors
///
/// Fails if the text has no host, or a port that is not a number from 1 to 65535.
pub fn server_address(text: &str, default: u16) -> Result<(&str, u16)> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, port.strip_prefix(':').or(Some(""))),
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    let number = |port: &str| {
        // The digits are checked because `u16::from_str` would accept `+1`.
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        port.parse().ok().filter(|_| digits).unwrap_or(0)
    };
    let port = port.map_or(default, number);
    ensure!(
        !host.is_empty() && port != 0,
        "`{text}` is no server: write HOST, HOST:PORT or [IPv6]:PORT"
    );
    Ok((host, port))
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
    fn servers_are_hosts_with_or_without_ports() {
        let server = |text: &str| Location::server(text, 2805).map(|place| place.to_string());
        assert_eq!(server("node7").unwrap(), "node7:2805");
        assert_eq!(server("10.0.0.1:99").unwrap(), "10.0.0.1:99");
        assert_eq!(server("fd00::1").unwrap(), "[fd00::1]:2805");
        assert_eq!(server("[fd00::1]").unwrap(), "[fd00::1]:2805");
        assert_eq!(server("[fd00::1]:99").unwrap(), "[fd00::1]:99");
        for text in ["", ":99", "a:", "a:0", "a:x", "a:+1", "[fd00::1]x", "[]:1"] {
            assert!(server(text).is_err(), "{text}");
        }
    }

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
