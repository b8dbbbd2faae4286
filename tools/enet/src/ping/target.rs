// SPDX-License-Identifier: MIT OR Apache-2.0

//! From what the user writes to an Ethernet address and an interface.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use nix::sys::socket::{setsockopt, sockopt};
use sockaddr_en::MacAddr;

use super::neighbours::{self, Neighbour};
use crate::interfaces::{Fault, Interface};

/// The port that discards what it gets (RFC 863); hosts without that service say that it is closed.
pub const DISCARD: u16 = 9;

/// How long the kernel takes at most to find out that nobody answers: it asks three times, once a second.
const PATIENCE: Duration = Duration::from_millis(3500);

/// Within this time after a packet the kernel has an entry, unless it sends the packet to a router.
const ENTRY: Duration = Duration::from_millis(300);

/// A host to ask.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// The interface that leads there; it can send.
    pub interface: Interface,
    /// Its IP address, where one is known.
    pub ip: Option<IpAddr>,
}

/// What becomes of a host's name.
#[derive(Debug)]
pub enum Resolved {
    /// An Ethernet address.
    Found(Target),
    /// Nothing: nobody says that the IP address is his.
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

/// How the kernel asks for the owner of `ip`.
pub fn question(ip: IpAddr) -> &'static str {
    match ip {
        IpAddr::V4(_) => "ARP",
        IpAddr::V6(_) => "neighbour discovery",
    }
}

/// What the user wrote, in parts.
#[derive(Debug, PartialEq, Eq)]
struct Named<'a> {
    host: &'a str,
    interface: Option<&'a str>,
}

impl<'a> Named<'a> {
    fn parse(text: &'a str, option: Option<&'a str>) -> Result<Self> {
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
        Ok(Self {
            host,
            interface: interface.or(option),
        })
    }
}

/// Finds the host that `text` names, through the interface `option` if it is given.
///
/// # Errors
/// When the text names no host, or an interface cannot be used.
pub fn resolve(text: &str, option: Option<&str>) -> Result<Resolved> {
    let named = Named::parse(text, option)?;
    let interface = named.interface.map(interface).transpose()?;
    if let Ok(mac) = named.host.parse::<MacAddr>() {
        let interface = interface.with_context(|| {
            format!(
                "{mac} needs an interface to leave by: write {mac}%eth0, or add --interface eth0"
            )
        })?;
        return of_mac(mac, interface);
    }
    let addresses = (named.host, DISCARD)
        .to_socket_addrs()
        .with_context(|| format!("no address is known for {}", named.host))?;
    let mut silent = None;
    for address in addresses {
        match of_ip(address, interface.as_ref())? {
            Resolved::Silent(reason) => silent = silent.or(Some(reason)),
            found => return Ok(found),
        }
    }
    let reason = silent.with_context(|| format!("no address is known for {}", named.host))?;
    Ok(Resolved::Silent(reason))
}

/// The interface called `name`, which can send.
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

fn of_mac(mac: MacAddr, interface: Interface) -> Result<Resolved> {
    ensure!(
        !mac.is_multicast() && !mac.is_unspecified(),
        "{mac} is not the address of one host; EDP does not send to groups"
    );
    let known = neighbours::list().unwrap_or_default();
    let ip = known
        .iter()
        .find(|entry| entry.ifindex == interface.index && entry.usable() == Some(mac))
        .map(|entry| entry.ip);
    Ok(Resolved::Found(Target { mac, interface, ip }))
}

fn of_ip(address: SocketAddr, interface: Option<&Interface>) -> Result<Resolved> {
    let ip = address.ip();
    if let Some(own) = Interface::with_address(ip)? {
        let interface = usable(own)?;
        let mac = interface
            .mac
            .with_context(|| Fault::NotEthernet(interface.name.clone()))?;
        return Ok(Resolved::Found(Target {
            mac,
            interface,
            ip: Some(ip),
        }));
    }
    let index = interface.map(|interface| interface.index);
    let known = neighbours::find(ip, index)?.filter(|entry| entry.usable().is_some());
    let entry = match known {
        Some(entry) => Some(entry),
        None => provoked(address, interface)?,
    };
    let Some(entry) = entry else {
        bail!(
            "{ip} has no entry in the neighbour table (`ip neighbour`), although a packet was sent to it: it is behind \
             a router, and EDP frames stay in their Ethernet segment"
        );
    };
    // A device without a carrier is why nobody answers.
    let interface = match Interface::numbered(entry.ifindex)? {
        Some(interface) => usable(interface)?,
        None => bail!("interface {} of {ip} has gone", entry.ifindex),
    };
    Ok(match entry.usable() {
        Some(mac) => Resolved::Found(Target {
            mac,
            interface,
            ip: Some(ip),
        }),
        None => Resolved::Silent(format!(
            "nobody answers {} for {ip} on {}: the host is off, has another address, or is on another segment or VLAN",
            question(ip),
            interface.name
        )),
    })
}

/// The entry that the kernel makes when it has to send a packet to `address`.
fn provoked(address: SocketAddr, interface: Option<&Interface>) -> Result<Option<Neighbour>> {
    let index = interface.map(|interface| interface.index);
    let _socket = match poke(address, interface) {
        Ok(socket) => socket,
        Err(error) => {
            if let Some(beside) = Interface::beside(address.ip())? {
                usable(beside)?;
            }
            let ip = address.ip();
            bail!("no packet can be sent to {ip}: {error}; compare `ip route get {ip}`");
        }
    };
    let start = Instant::now();
    loop {
        let entry = neighbours::find(address.ip(), index)?;
        let decided = match &entry {
            Some(entry) => entry.usable().is_some() || entry.failed(),
            None => start.elapsed() > ENTRY,
        };
        if decided || start.elapsed() > PATIENCE {
            return Ok(entry);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends an empty datagram to the discard port; the socket hears whether the host says that it is closed.
///
/// # Errors
/// When there is no way to the host.
pub fn poke(address: SocketAddr, interface: Option<&Interface>) -> io::Result<UdpSocket> {
    let (any, to) = match address {
        SocketAddr::V4(_) => (IpAddr::from([0; 4]), address),
        SocketAddr::V6(v6) => (Ipv6Addr::UNSPECIFIED.into(), scoped(v6, interface).into()),
    };
    let socket = UdpSocket::bind((any, 0))?;
    if let Some(interface) = interface {
        // An old kernel demands a privilege. Without it the packet takes the way of the routes, which is mostly the same.
        let _ = setsockopt(&socket, sockopt::BindToDevice, &(&interface.name).into());
    }
    socket.connect(to)?;
    socket.send(&[])?;
    Ok(socket)
}

/// A link-local address means something on an interface only.
fn scoped(mut address: SocketAddrV6, interface: Option<&Interface>) -> SocketAddrV6 {
    let link_local = address.ip().segments()[0] & 0xffc0 == 0xfe80;
    if let Some(interface) = interface.filter(|_| link_local) {
        address.set_scope_id(interface.index);
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'a>(host: &'a str, interface: Option<&'a str>) -> Named<'a> {
        Named { host, interface }
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
        for (text, option) in [("a%eth0", Some("eth1")), ("", None), ("a%", None)] {
            assert!(Named::parse(text, option).is_err(), "{text}");
        }
    }

    fn refusal(text: &str, option: Option<&str>) -> String {
        resolve(text, option).unwrap_err().to_string()
    }

    #[test]
    fn errors_say_what_to_do() {
        let mac = "02:00:00:00:00:01";
        for (text, option, words) in [
            (mac, None, "02:00:00:00:00:01%eth0"),
            (mac, Some("absent0"), "ip link"),
            (mac, Some("lo"), "not an Ethernet device"),
            ("127.0.0.1", None, "lo is not an Ethernet device"),
        ] {
            let refusal = refusal(text, option);
            assert!(refusal.contains(words), "{text}: {refusal}");
        }
    }
}
