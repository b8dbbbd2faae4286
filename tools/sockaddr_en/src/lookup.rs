// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finds the Ethernet address for a host's name or IP address. `enet ping` uses this module.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::neighbours::{neighbours, role_here, Neighbour, Role};
use crate::{interface_index, interface_mac, interface_name, Address, MacAddr};

/// The discard port (RFC 863). A host without this service reports the port as closed.
const DISCARD: u16 = 9;

/// Upper bound for the time of the kernel's address resolution. The kernel asks three times, once a
/// second.
const PATIENCE: Duration = Duration::from_millis(3500);

/// After a packet is sent, the kernel has a neighbour entry for the packet's destination within
/// this time. It makes no such entry if it sends the packet to a router.
const ENTRY: Duration = Duration::from_millis(300);

/// Interval at which the neighbour table is polled.
const PAUSE: Duration = Duration::from_millis(20);

/// The reason why the lookup found no Ethernet address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// The text is no valid host.
    #[error("`{0}` is no host: write a name, an IP address, or an Ethernet address as in 02:00:00:00:00:01%eth0")]
    Text(String),
    /// The resolver has no IP address for the name.
    #[error("no IP address is known for {host}: {error}")]
    Name {
        /// The name.
        host: String,
        /// The resolver's error.
        error: io::Error,
    },
    /// The text is an Ethernet address in the notation of another system.
    #[error("`{text}` is an Ethernet address, which has colons here: write {mac}%{}", .interface.as_deref().unwrap_or("eth0"))]
    Notation {
        /// The text, without the interface.
        text: String,
        /// The address.
        mac: MacAddr,
        /// The interface in the text.
        interface: Option<String>,
    },
    /// The IP address is a multicast, unspecified or broadcast address.
    #[error("{0} is not the IP address of one host")]
    NotOneHost(IpAddr),
    /// The address is link-local, so each interface may lead to a host that has it.
    #[error("{0} is link-local: write the interface that leads there, as in {0}%eth0")]
    NoInterfaceGiven(IpAddr),
    /// No interface has the name.
    #[error("there is no interface `{0}` here: `ip link` lists those there are")]
    NoInterface(String),
    /// The host is reached through a device that has no Ethernet header.
    #[error("{interface}, which leads to {ip}, is not an Ethernet device")]
    NotEthernet {
        /// The IP address.
        ip: IpAddr,
        /// The device.
        interface: String,
    },
    /// No packet can be sent to the IP address.
    #[error("no packet can be sent to {ip}: {error}; compare `ip route get {ip}`")]
    Unreachable {
        /// The IP address.
        ip: IpAddr,
        /// The kernel's error.
        error: io::Error,
    },
    /// The host is on another Ethernet segment, behind a router.
    #[error("{0} is behind a router, and frames without IP stay on their Ethernet: `ip neighbour` has no entry of it, although a packet was sent there")]
    Routed(IpAddr),
    /// No host answered for the IP address.
    #[error("nobody answers {} for {ip} on {}: the host is off, has another address, or is on another segment or VLAN", question(ip), name_of(*interface))]
    Silent {
        /// The IP address.
        ip: IpAddr,
        /// The number of the interface.
        interface: u32,
    },
    /// The kernel's tables cannot be read.
    #[error("the kernel's tables of addresses: {0}")]
    Tables(io::Error),
}

impl LookupError {
    /// Returns the error number that `en_lookup` of the C header and `lookup` of Python give for
    /// this error; `None` if they give none, because the text is no host or the resolver has no
    /// address for it.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::Text(_) | Self::Name { .. } | Self::Notation { .. } => None,
            Self::NotOneHost(_) | Self::NoInterfaceGiven(_) => Some(libc::EINVAL),
            Self::NoInterface(_) | Self::NotEthernet { .. } => Some(libc::ENODEV),
            Self::Routed(_) => Some(libc::ENETUNREACH),
            Self::Silent { .. } => Some(libc::EHOSTUNREACH),
            Self::Unreachable { error, .. } | Self::Tables(error) => error.raw_os_error(),
        }
    }
}

impl From<io::Error> for LookupError {
    fn from(error: io::Error) -> Self {
        Self::Tables(error)
    }
}

/// Returns the name of the protocol that resolves `ip` to an Ethernet address.
fn question(ip: &IpAddr) -> &'static str {
    match ip {
        IpAddr::V4(_) => "ARP",
        IpAddr::V6(_) => "neighbour discovery",
    }
}

fn name_of(interface: u32) -> String {
    interface_name(interface).unwrap_or_else(|_| interface.to_string())
}

/// The error of the standard library contains the [`LookupError`], whose
/// [`raw_os_error`](LookupError::raw_os_error) has the error number.
impl From<LookupError> for io::Error {
    fn from(error: LookupError) -> Self {
        let kind = match &error {
            LookupError::Text(_)
            | LookupError::Notation { .. }
            | LookupError::NotOneHost(_)
            | LookupError::NoInterfaceGiven(_) => io::ErrorKind::InvalidInput,
            LookupError::Name { .. } | LookupError::NoInterface(_) => io::ErrorKind::NotFound,
            LookupError::NotEthernet { .. } => io::ErrorKind::Unsupported,
            LookupError::Routed(_) => io::ErrorKind::NetworkUnreachable,
            LookupError::Silent { .. } => io::ErrorKind::HostUnreachable,
            LookupError::Unreachable { error, .. } | LookupError::Tables(error) => error.kind(),
        };
        Self::new(kind, error)
    }
}

/// Returns the address of port `port` of `host`: a name, an IP address, or an Ethernet address with
/// its interface. The interface to send through may follow after a `%`, as in `10.0.0.2%eth0`.
///
/// The kernel's neighbour table has an entry for each host with which the kernel has exchanged
/// packets lately. For any other host the kernel sends ARP requests or neighbour solicitations. The
/// call then blocks for up to three seconds if no host answers. Asynchronous programs call this
/// function where blocking is allowed.
///
/// ```no_run
/// use sockaddr_en::{lookup, EspStream};
///
/// let stream = EspStream::connect(lookup("10.0.0.2", 2805)?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`LookupError`], which says why the host was not found.
pub fn lookup(host: &str, port: u16) -> Result<Address, LookupError> {
    let text = || LookupError::Text(host.to_owned());
    let (name, interface) = match host.rsplit_once('%') {
        Some((_, "")) => return Err(text()),
        Some((name, interface)) => (name, Some(index_of(interface)?)),
        None => (host, None),
    };
    match name.parse::<MacAddr>().map_err(|error| error.meant()) {
        Ok(mac) => return Ok(Address::new(mac, interface.ok_or_else(text)?, port)),
        Err(Some(mac)) => {
            return Err(LookupError::Notation {
                text: name.to_owned(),
                mac,
                interface: interface.map(name_of),
            })
        }
        Err(None) => {}
    }
    // No host name contains a colon, so the resolver need not be asked.
    if name.is_empty() || (name.contains(':') && name.parse::<Ipv6Addr>().is_err()) {
        return Err(text());
    }
    let addresses = (name, port).to_socket_addrs();
    let addresses = addresses.map_err(|error| LookupError::Name {
        host: name.to_owned(),
        error,
    })?;
    // 0 is the number of no interface.
    let interface = interface.filter(|index| *index != 0);
    let mut first = None;
    for address in addresses {
        match lookup_ip(address.ip(), interface.or_else(|| scope_of(&address))) {
            Ok((mac, interface)) => return Ok(Address::new(mac, interface, port)),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(text))
}

/// Returns the Ethernet address of `ip` and the number of the interface that leads there. If
/// `interface` is given, only entries of that interface are searched.
///
/// # Errors
///
/// The errors of [`lookup`].
pub fn lookup_ip(ip: IpAddr, interface: Option<u32>) -> Result<(MacAddr, u32), LookupError> {
    // The kernel sends to an IPv4-mapped IPv6 address by IPv4, so the neighbour entry is one of
    // IPv4.
    let ip = ip.to_canonical();
    if ip.is_multicast() || ip.is_unspecified() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Err(LookupError::NotOneHost(ip));
    }
    match role_here(ip)? {
        Some(Role::Own(own)) => {
            let interface = name_of(own);
            return match interface_mac(&interface) {
                Ok(mac) => Ok((mac, own)),
                Err(_) => Err(LookupError::NotEthernet { ip, interface }),
            };
        }
        Some(Role::Broadcast) => return Err(LookupError::NotOneHost(ip)),
        None => {}
    }
    if ip.is_loopback() {
        let interface = "lo".to_owned();
        return Err(LookupError::NotEthernet { ip, interface });
    }
    let is_link_local = match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if is_link_local && interface.is_none() {
        return Err(LookupError::NoInterfaceGiven(ip));
    }
    // The interface must exist. Otherwise `poke` could not bind to it, the packet would leave by
    // another interface, and `find` would find no entry of this one.
    if let Some(index) = interface {
        interface_name(index).map_err(|_| LookupError::NoInterface(index.to_string()))?;
    }
    let known = find(ip, interface)?.filter(|entry| entry.usable().is_some());
    let entry = match known {
        Some(entry) => entry,
        None => provoked(ip, interface)?.ok_or(LookupError::Routed(ip))?,
    };
    let interface = entry.interface;
    match entry.usable() {
        Some(mac) => Ok((mac, interface)),
        None => Err(LookupError::Silent { ip, interface }),
    }
}

fn index_of(name: &str) -> Result<u32, LookupError> {
    let absent = || LookupError::NoInterface(name.to_owned());
    // The digits are checked because `u32::from_str` would accept `+1`.
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return name.parse().map_err(|_| LookupError::Text(name.to_owned()));
    }
    interface_index(name).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => absent(),
        _ => error.into(),
    })
}

/// Returns the interface that the resolver found for a link-local address.
fn scope_of(address: &SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V4(_) => None,
        SocketAddr::V6(v6) => Some(v6.scope_id()).filter(|scope| *scope != 0),
    }
}

fn find(ip: IpAddr, interface: Option<u32>) -> io::Result<Option<Neighbour>> {
    let fits = |entry: &Neighbour| {
        entry.ip == ip && interface.is_none_or(|wanted| wanted == entry.interface)
    };
    Ok(neighbours()?.into_iter().find(fits))
}

/// Sends a packet to `ip` and returns the neighbour entry that the kernel makes for `ip`.
fn provoked(ip: IpAddr, interface: Option<u32>) -> Result<Option<Neighbour>, LookupError> {
    let poked = poke(ip, interface);
    let _socket = poked.map_err(|error| LookupError::Unreachable { ip, error })?;
    let start = Instant::now();
    loop {
        let entry = find(ip, interface)?;
        let decided = match &entry {
            Some(entry) => entry.usable().is_some() || entry.has_failed(),
            None => start.elapsed() > ENTRY,
        };
        if decided || start.elapsed() > PATIENCE {
            return Ok(entry);
        }
        thread::sleep(PAUSE);
    }
}

/// Sends an empty datagram to the discard port of `ip`, through the interface with the number
/// `interface` if one is given. The returned socket fails with `ECONNREFUSED` once the host reports
/// the port as closed.
///
/// # Errors
///
/// The errors of `connect(2)` and `send(2)`, for instance if no route leads to the host.
pub fn poke(ip: IpAddr, interface: Option<u32>) -> io::Result<std::net::UdpSocket> {
    let mut to = SocketAddr::new(ip, DISCARD);
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, None)?;
    if let Some(interface) = interface {
        // Failures are ignored: old kernels require a privilege for this call. Without it, the
        // packet follows the routes, which mostly lead through the same interface.
        let _ = socket.bind_device(Some(name_of(interface).as_bytes()));
        if let SocketAddr::V6(v6) = &mut to {
            // A link-local address is ambiguous without an interface.
            if v6.ip().is_unicast_link_local() {
                v6.set_scope_id(interface);
            }
        }
    }
    socket.connect(&to.into())?;
    socket.send(&[])?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_name_no_host_are_refused_without_asking() {
        for text in [
            "",
            "%lo",
            "a%",
            "02:00:00:00:00:01",
            "02:00:00:00:00:02:veth0",
            "10.0.0.2:2805",
            "10.0.0.2%4294967296",
        ] {
            let error = lookup(text, 1).unwrap_err();
            assert!(matches!(error, LookupError::Text(_)), "{text}: {error}");
            assert!(error.to_string().contains("02:00:00:00:00:01%eth0"));
        }
        let error = lookup("a%nowhere0", 1).unwrap_err();
        assert!(matches!(error, LookupError::NoInterface(_)), "{error}");
    }

    #[test]
    fn ethernet_addresses_need_no_table() {
        let lo = interface_index("lo").unwrap();
        let found = lookup("02:00:00:00:00:01%lo", 2805).unwrap();
        assert_eq!(found, Address::new(MacAddr([2, 0, 0, 0, 0, 1]), lo, 2805));
        assert_eq!(
            lookup(&format!("02:00:00:00:00:01%{lo}"), 2805).unwrap(),
            found
        );
    }

    #[test]
    fn an_absent_interface_keeps_its_number() {
        for text in ["10.0.0.2%nowhere0", "10.0.0.2%4711"] {
            let error = lookup(text, 1).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{text}: {error}");
            let error = io::Error::from(error);
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
            assert_eq!(
                inner.and_then(LookupError::raw_os_error),
                Some(libc::ENODEV)
            );
        }
        assert!(lookup("02:00:00:00:00:01%+1", 1).is_err());
    }

    #[test]
    fn other_notations_are_not_resolved() {
        for (text, meant) in [
            ("02-00-00-00-00-02%lo", "write 02:00:00:00:00:02%lo"),
            ("0200.0000.0002", "write 02:00:00:00:00:02%eth0"),
        ] {
            let error = lookup(text, 1).unwrap_err();
            assert!(matches!(error, LookupError::Notation { .. }), "{error}");
            assert!(error.to_string().ends_with(meant), "{error}");
        }
    }

    #[test]
    fn addresses_of_no_host_are_refused_at_once() {
        for text in [
            "0.0.0.0",
            "::",
            "::ffff:0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "ff02::1%lo",
            "127.255.255.255",
        ] {
            let error = lookup(text, 1).unwrap_err();
            assert!(
                matches!(error, LookupError::NotOneHost(_)),
                "{text}: {error}"
            );
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        }
        let error = lookup("fe80::ffff:ffff:ffff:1", 1).unwrap_err();
        assert!(error.to_string().contains("%eth0"), "{error}");
    }

    #[test]
    fn an_error_names_its_cause_once() {
        let cause = || io::Error::from_raw_os_error(libc::EACCES);
        let ip = IpAddr::from([10, 0, 0, 2]);
        for error in [
            LookupError::Tables(cause()),
            LookupError::Unreachable { ip, error: cause() },
        ] {
            assert!(error.to_string().contains("Permission denied"));
            assert!(std::error::Error::source(&error).is_none());
            assert_eq!(error.raw_os_error(), Some(libc::EACCES));
        }
    }

    #[test]
    fn a_device_without_ethernet_is_told() {
        for text in [
            "127.0.0.2",
            "::ffff:127.0.0.1",
            "127.0.0.1",
            "localhost",
            "127.0.0.1%lo",
        ] {
            let error = lookup(text, 1).unwrap_err();
            assert!(error.to_string().contains("lo, which leads to"), "{error}");
            let error = io::Error::from(error);
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        }
    }
}
