// SPDX-License-Identifier: MIT OR Apache-2.0

//! The address that a server listens on, as a user writes it.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::str::FromStr;

use anyhow::{bail, Context, Result};
use rustix::io::Errno;
use rustix::net::{self, sockopt, AddressFamily, SocketFlags, SocketType};

use crate::endpoint;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// `ADDRESS:PORT`, `[ADDRESS]:PORT`, `NAME:PORT`, or `:PORT` for all addresses of both families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Empty for all addresses.
    host: String,
    port: u16,
}

impl FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "expected ADDRESS:PORT, [ADDRESS]:PORT, NAME:PORT or :PORT";
        let (host, port) = text.rsplit_once(':').ok_or(FORM)?;
        let port = endpoint::port(port).map_err(|_| FORM)?;
        let bracketed = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let is_v6 = bracketed.is_some_and(|inner| inner.contains(':'));
        let host = bracketed.unwrap_or(host);
        if !is_v6 && (bracketed.is_some() || host.contains([':', '[', ']'])) {
            return Err(FORM);
        }
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl Display for Listen {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Listen {
    /// Listens on the address, or on each address of the name. If a name has several addresses,
    /// those that this host does not have are left out, such as `::1` without IPv6.
    ///
    /// # Errors
    /// If the name has no address, or an address cannot be listened on.
    pub fn bind(&self) -> Result<Vec<TcpListener>> {
        if self.host.is_empty() {
            let listener = bind_all(self.port).with_context(|| format!("listening on {self}"))?;
            return Ok(vec![listener]);
        }
        let resolved = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .with_context(|| format!("resolving {}", self.host))?;
        let mut addresses: Vec<_> = resolved.collect();
        addresses.sort_unstable();
        addresses.dedup();
        let mut listeners = Vec::new();
        let mut unavailable = None;
        for address in addresses {
            match bind(address) {
                Ok(listener) => listeners.push(listener),
                Err(error @ (Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT)) => {
                    unavailable = Some((address, error));
                }
                Err(error) => return Err(error).context(format!("listening on {address}")),
            }
        }
        match unavailable {
            Some((address, error)) if listeners.is_empty() => {
                Err(error).context(format!("listening on {address}"))
            }
            None if listeners.is_empty() => bail!("{} has no address", self.host),
            _ => Ok(listeners),
        }
    }
}

/// Listens on all addresses: of both families, or of IPv4 if the kernel has no IPv6.
fn bind_all(port: u16) -> io::Result<TcpListener> {
    match bind((Ipv6Addr::UNSPECIFIED, port).into()) {
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => {
            Ok(bind((Ipv4Addr::UNSPECIFIED, port).into())?)
        }
        outcome => Ok(outcome?),
    }
}

/// Like [`TcpListener::bind`], but `[::]` takes clients of IPv4, too, whatever
/// `net.ipv6.bindv6only` says.
fn bind(address: SocketAddr) -> rustix::io::Result<TcpListener> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Without this option, a restarted server could not bind to its port while connections of its
    // predecessor still exist, for instance in TIME_WAIT.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn addresses_are_parsed_and_printed() {
        for text in [
            "127.0.0.1:9817",
            "[::]:9817",
            "[fe80::1%eth0]:1",
            "localhost:9817",
            "metrics.example.org:0",
            ":9817",
        ] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        for text in [
            "",
            ":",
            "9817",
            "localhost",
            "a:b",
            "::1:65536",
            ":+9817",
            "::1:80",
            "[a]:1",
            "[::1]",
            "[]:1",
        ] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }

    fn bound(text: &str) -> Vec<TcpListener> {
        text.parse::<Listen>().unwrap().bind().unwrap()
    }

    /// Where the kernel has no IPv6, the addresses of IPv4 still work.
    #[test]
    fn a_port_alone_is_all_addresses_of_both_families() {
        let all = bound(":0");
        let port = all[0].local_addr().unwrap().port();
        TcpStream::connect(("127.0.0.1", port)).unwrap();
        if has_v6() {
            assert!(all[0].local_addr().unwrap().is_ipv6());
            TcpStream::connect(("::1", port)).unwrap();
        }
    }

    fn has_v6() -> bool {
        TcpListener::bind("[::1]:0").is_ok()
    }

    #[test]
    fn a_name_is_each_of_its_addresses() {
        for listener in bound("localhost:0") {
            let address = listener.local_addr().unwrap();
            assert!(address.ip().is_loopback(), "{address}");
            TcpStream::connect(address).unwrap();
        }
    }

    #[test]
    fn errors_name_the_address() {
        // No host has this address, which is for documentation.
        let refused = "192.0.2.1:0".parse::<Listen>().unwrap().bind().unwrap_err();
        let text = format!("{refused:#}");
        assert!(
            text.contains("192.0.2.1:0") && text.contains("assign"),
            "{text}"
        );
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let refused = address.parse::<Listen>().unwrap().bind().unwrap_err();
        assert!(format!("{refused:#}").contains("in use"), "{refused:#}");
    }
}
