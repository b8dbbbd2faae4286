// SPDX-License-Identifier: MIT OR Apache-2.0

//! Parses and formats the two ends of a socket, local and remote, as the module lists them.

use std::collections::HashMap;

use anyhow::{ensure, Context, Result};
use serde::Serialize;
use sockaddr_en::{Interface, MacAddr, NamedAddress};

/// One end of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// Ethernet address; `None` for an end on all interfaces.
    pub mac: Option<String>,
    /// Name of the interface, or its number as text if no interface of this namespace has that
    /// number.
    pub interface: Option<String>,
    /// Number of the interface.
    pub ifindex: Option<u32>,
    /// Port.
    pub port: u16,
}

/// The names of interfaces, by number.
#[derive(Debug, Default)]
pub struct Names(HashMap<u32, Option<String>>);

impl Names {
    /// Returns the name of interface `index`. The name is looked up once, so that all lines of a
    /// list use the same name.
    pub fn of(&mut self, index: u32) -> Option<String> {
        self.0
            .entry(index)
            .or_insert_with(|| sockaddr_en::interface_name(index).ok())
            .clone()
    }

    /// Returns fixed names, for tests.
    pub fn fixed(names: &[(u32, &str)]) -> Self {
        Self(
            names
                .iter()
                .map(|(index, name)| (*index, Some((*name).to_owned())))
                .collect(),
        )
    }
}

impl Endpoint {
    /// Parses an end of a socket in `/proc/net/esp` or `/proc/net/edp`. Returns `None` for `*`,
    /// which means that the socket has no peer.
    ///
    /// # Errors
    /// If the text is not an address in the format of these files.
    pub fn parse(text: &str, names: &mut Names) -> Result<Option<Self>> {
        if text == "*" {
            return Ok(None);
        }
        let address: NamedAddress = text.parse()?;
        let ifindex = match address.interface {
            Interface::Any => None,
            Interface::Index(index) => Some(index),
            Interface::Name(name) => anyhow::bail!("{text} names interface {name} by name"),
        };
        let name = |index: u32| names.of(index).unwrap_or_else(|| index.to_string());
        Ok(Some(Self {
            mac: address.mac.map(|mac: MacAddr| mac.to_string()),
            interface: ifindex.map(name),
            ifindex,
            port: address.port,
        }))
    }

    /// Formats an end of a socket in the style of `ss`.
    pub fn print(end: Option<&Self>) -> String {
        let Some(end) = end else {
            return "*:*".to_owned();
        };
        let mac = end.mac.as_deref().unwrap_or("*");
        match &end.interface {
            Some(interface) => format!("{mac}%{interface}:{}", end.port),
            None => format!("{mac}:{}", end.port),
        }
    }
}

/// Parses a port on the command line.
///
/// # Errors
/// If the text is no number from 0 to 65535.
pub fn port(text: &str) -> Result<u16> {
    ensure!(
        text.bytes().all(|byte| byte.is_ascii_digit()),
        "`{text}` is not a port: write a number from 0 to 65535"
    );
    text.parse()
        .with_context(|| format!("`{text}` is not a port: write a number from 0 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_the_files_prints_with_names() {
        let mut names = Names::fixed(&[(2, "eth0")]);
        for (text, printed) in [
            ("*", "*:*"),
            ("*:2805", "*:2805"),
            ("*%2:2805", "*%eth0:2805"),
            ("02:00:00:00:00:01%2:2805", "02:00:00:00:00:01%eth0:2805"),
            (
                "02:00:00:00:00:01%4294967295:1",
                "02:00:00:00:00:01%4294967295:1",
            ),
        ] {
            let end = Endpoint::parse(text, &mut names).unwrap();
            assert_eq!(Endpoint::print(end.as_ref()), printed);
        }
        assert!(Endpoint::parse("nonsense", &mut names).is_err());
    }

    #[test]
    fn ports_are_plain_numbers() {
        assert_eq!(port("2805").unwrap(), 2805);
        for text in ["", "+1", "-1", "65536", "ssh"] {
            assert!(port(text).is_err(), "{text}");
        }
    }
}
