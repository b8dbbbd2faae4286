// SPDX-License-Identifier: MIT OR Apache-2.0

//! Resolves the host on the command line to an Ethernet address and an interface.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use anyhow::{bail, ensure, Context, Result};
use sockaddr_en::{LookupError, MacAddr, ParseMacError};

use crate::interfaces::{Fault, Interface};

/// The port that the resolver gets, because it requires one. The port has no effect on the result.
const ANY_PORT: u16 = 0;

/// A host to ping.
#[derive(Clone, Debug)]
pub struct Target {
    /// The target's Ethernet address.
    pub mac: MacAddr,
    /// The interface that leads to the host. It is able to send.
    pub interface: Interface,
    /// The target's IP address, if one is known.
    pub ip: Option<IpAddr>,
}

/// The result of resolving a host.
#[derive(Debug)]
pub enum Resolved {
    /// An Ethernet address.
    Found(Target),
    /// No host answers for the IP address.
    Silent(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ip) = self.ip {
            write!(f, "{ip} ({}%{})", self.mac, self.interface.name)
        } else {
            write!(f, "{}%{}", self.mac, self.interface.name)
        }
    }
}

/// Returns the name of the protocol that resolves `ip` to an Ethernet address.
pub fn question(ip: IpAddr) -> &'static str {
    match ip {
        IpAddr::V4(_) => "ARP",
        IpAddr::V6(_) => "neighbour discovery",
    }
}

/// The parts of the host argument.
#[derive(Debug, PartialEq, Eq)]
pub struct Named<'a> {
    host: &'a str,
    /// The Ethernet address, if `host` is one.
    mac: Option<MacAddr>,
    interface: Option<&'a str>,
}

impl<'a> Named<'a> {
    /// Splits `text` and combines it with the interface of `option`, without resolving anything.
    ///
    /// # Errors
    /// If the text is no valid host.
    pub fn parse(text: &'a str, option: Option<&'a str>) -> Result<Self> {
        let (host, interface) = match text.rsplit_once('%') {
            Some((host, interface)) => (host, Some(interface)),
            None => (text, None),
        };
        ensure!(
            !host.is_empty() && interface != Some(""),
            "`{text}` is no host: write an IP address, a name, or an Ethernet address as in 02:00:00:00:00:01%eth0"
        );
        if let (Some(one), Some(other)) = (interface, option) {
            ensure!(
                one == other,
                "`{text}` names interface {one}, and --interface names {other}: leave one out"
            );
        }
        let interface = interface.or(option);
        let parsed = host.parse::<MacAddr>();
        if let Some(meant) = parsed.as_ref().err().and_then(ParseMacError::meant) {
            let interface = interface.unwrap_or("eth0");
            bail!("`{text}` is no host: an Ethernet address has colons here, write {meant}%{interface}");
        }
        let mac = parsed.ok();
        if let Some(mac) = mac {
            ensure!(
                interface.is_some(),
                "{mac} needs an interface to leave by: write {mac}%eth0, or add --interface eth0"
            );
            ensure!(
                !mac.is_multicast() && !mac.is_unspecified(),
                "{mac} is not the address of one host; EDP does not send to groups"
            );
        } else if host.contains(':') && host.parse::<Ipv6Addr>().is_err() {
            bail!("{}", not_a_host(host));
        }
        Ok(Self {
            host,
            mac,
            interface,
        })
    }
}

/// Explains why a text with colons is no address. No host name has a colon, so the resolver need
/// not be asked.
fn not_a_host(text: &str) -> String {
    const MAC: usize = "02:00:00:00:00:01".len();
    let parts = text
        .split_at_checked(MAC)
        .and_then(|(mac, rest)| Some((mac.parse::<MacAddr>().ok()?, rest.strip_prefix(':')?)));
    match parts {
        Some((mac, interface)) => format!(
            "`{text}` is no host: `%` stands before an interface, as in {mac}%{interface}"
        ),
        None => format!(
            "`{text}` is neither an Ethernet address nor one of IPv6, nor a name: write one as in 02:00:00:00:00:01%eth0"
        ),
    }
}

/// Resolves the host.
///
/// # Errors
/// If the name does not exist, or an interface cannot be used.
pub fn resolve(named: &Named<'_>) -> Result<Resolved> {
    let interface = named.interface.map(interface).transpose()?;
    if let Some((mac, interface)) = named.mac.zip(interface.clone()) {
        return Ok(of_mac(mac, interface));
    }
    let addresses = (named.host, ANY_PORT)
        .to_socket_addrs()
        .with_context(|| format!("no address is known for {}", named.host))?;
    let mut silent = None;
    let interface = interface.map(|interface| interface.index);
    for address in addresses {
        match of_ip(address.ip(), interface.or_else(|| scope_of(&address)))? {
            Resolved::Silent(reason) => silent = silent.or(Some(reason)),
            found => return Ok(found),
        }
    }
    let reason = silent.with_context(|| format!("no address is known for {}", named.host))?;
    Ok(Resolved::Silent(reason))
}

/// Returns the interface called `name`. Fails if the interface cannot send.
fn interface(name: &str) -> Result<Interface> {
    let found = Interface::named(name)?;
    let interface = found.with_context(|| Fault::Absent(name.to_owned()))?;
    usable(interface)
}

fn usable(interface: Interface) -> Result<Interface> {
    match interface.fault() {
        Some(fault) => bail!("{fault}"),
        None => Ok(interface),
    }
}

fn of_mac(mac: MacAddr, interface: Interface) -> Resolved {
    let known = sockaddr_en::neighbours().unwrap_or_default();
    let ip = known
        .iter()
        .find(|entry| entry.interface == interface.index && entry.usable() == Some(mac))
        .map(|entry| entry.ip);
    Resolved::Found(Target { mac, interface, ip })
}

/// Returns the interface that the resolver found for a link-local address.
fn scope_of(address: &SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V4(_) => None,
        SocketAddr::V6(v6) => Some(v6.scope_id()).filter(|scope| *scope != 0),
    }
}

fn of_ip(ip: IpAddr, interface: Option<u32>) -> Result<Resolved> {
    let ip = ip.to_canonical();
    let numbered = |index| -> Result<Interface> {
        let found = Interface::numbered(index)?;
        // Fails if the device has no carrier. This error explains more than the message that no
        // host answers.
        usable(found.with_context(|| format!("interface {index} of {ip} has gone"))?)
    };
    match sockaddr_en::lookup_ip(ip, interface) {
        Ok((mac, index)) => Ok(Resolved::Found(Target {
            mac,
            interface: numbered(index)?,
            ip: Some(ip),
        })),
        Err(LookupError::Silent { ip, interface }) => {
            numbered(interface)?;
            let reason = LookupError::Silent { ip, interface };
            Ok(Resolved::Silent(reason.to_string()))
        }
        Err(error @ LookupError::NotOneHost(_)) => Err(error.into()),
        Err(error) => {
            if let Some(beside) = Interface::beside(ip)? {
                usable(beside)?;
            }
            Err(error.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'a>(host: &'a str, interface: Option<&'a str>) -> Named<'a> {
        let mac = host.parse().ok();
        Named {
            host,
            mac,
            interface,
        }
    }

    #[test]
    fn hosts_are_taken_apart() {
        let parse = |text, option| Named::parse(text, option).unwrap();
        assert_eq!(parse("10.0.0.2", None), named("10.0.0.2", None));
        assert_eq!(parse("a", Some("eth0")), named("a", Some("eth0")));
        let mac = "02:00:00:00:00:01";
        assert_eq!(
            parse("02:00:00:00:00:01%eth0", None),
            named(mac, Some("eth0"))
        );
        assert_eq!(parse("a%eth0", Some("eth0")), named("a", Some("eth0")));
        assert_eq!(parse("fe80::1%eth0", None), named("fe80::1", Some("eth0")));
        for (text, option) in [("a%eth0", Some("eth1")), ("", None), ("a%", None)] {
            assert!(Named::parse(text, option).is_err(), "{text}");
        }
    }

    #[test]
    fn nobody_is_asked_for_what_cannot_be_a_name() {
        for (text, words) in [
            ("02:00:00:00:00:02:veth0", "02:00:00:00:00:02%veth0"),
            ("02:00:00:00:00%eth0", "neither an Ethernet address"),
            ("02:00:00:00:00:0g%eth0", "neither an Ethernet address"),
            ("10.0.0.2:2805", "neither an Ethernet address"),
            ("02:00:00:00:00:01", "02:00:00:00:00:01%eth0"),
            ("ff:ff:ff:ff:ff:ff%eth0", "one host"),
            ("02-00-00-00-00-02%eth1", "write 02:00:00:00:00:02%eth1"),
            ("0200.0000.0002", "write 02:00:00:00:00:02%eth0"),
        ] {
            let refusal = Named::parse(text, None).unwrap_err().to_string();
            assert!(refusal.contains(words), "{text}: {refusal}");
        }
    }

    fn refusal(text: &str, option: Option<&str>) -> String {
        let resolved = Named::parse(text, option).and_then(|named| resolve(&named));
        format!("{:#}", resolved.unwrap_err())
    }

    #[test]
    fn errors_say_what_to_do() {
        let mac = "02:00:00:00:00:01";
        for (text, option, words) in [
            (mac, None, "02:00:00:00:00:01%eth0"),
            (mac, Some("absent0"), "ip link"),
            (mac, Some("lo"), "not an Ethernet device"),
            ("127.0.0.1", None, "lo is not an Ethernet device"),
            ("fe80::1:2:3:4", None, "as in fe80::1:2:3:4%eth0"),
            ("::", None, "not the IP address of one host"),
            ("127.255.255.255", None, "not the IP address of one host"),
        ] {
            let refusal = refusal(text, option);
            assert_eq!(refusal.matches(words).count(), 1, "{text}: {refusal}");
        }
    }
}
