// SPDX-License-Identifier: MIT OR Apache-2.0

//! Looks up this host's network interfaces, and waits for descriptors to become readable.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use anyhow::{anyhow, ensure, Context as _, Result};
use nix::errno::Errno;
use nix::ifaddrs::{getifaddrs, InterfaceAddress};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use sockaddr_en::{interface_index, interface_mac, interface_mtu, MacAddr};

/// An Ethernet interface of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The interface's index.
    pub index: u32,
    /// Ethernet address.
    pub mac: MacAddr,
    /// Payload of the largest frame, bytes.
    pub mtu: usize,
}

impl Interface {
    /// Looks up the interface called `name`.
    ///
    /// # Errors
    ///
    /// Fails if the interface does not exist, or is not Ethernet.
    pub fn by_name(name: &str) -> Result<Self> {
        let index = interface_index(name)
            .with_context(|| format!("no interface `{name}`: `ip link` lists those there are"))?;
        let mac = interface_mac(name)?;
        let mtu = interface_mtu(name)? as usize;
        Ok(Self {
            name: name.to_owned(),
            index,
            mac,
            mtu,
        })
    }

    /// Looks up the interface that has address `ip`.
    ///
    /// # Errors
    ///
    /// Fails if the interface does not exist, or is not Ethernet.
    pub fn by_ip(ip: IpAddr) -> Result<Self> {
        let ip = ip.to_canonical();
        let name = interface_with(ip)?;
        Self::by_name(&name)
            .with_context(|| format!("address {ip}: name an Ethernet interface with --interface"))
    }
}

/// Returns the IP address of `entry`, or `None` if the entry has no IP address.
fn ip_of(entry: &InterfaceAddress) -> Option<IpAddr> {
    let address = entry.address.as_ref()?;
    let v4 = address.as_sockaddr_in().map(|a| IpAddr::from(a.ip()));
    v4.or(address.as_sockaddr_in6().map(|a| IpAddr::from(a.ip())))
}

/// Returns the name of the interface that has address `ip`.
fn interface_with(ip: IpAddr) -> Result<String> {
    let owner = getifaddrs()
        .context("listing the interfaces")?
        .find(|entry| ip_of(entry) == Some(ip));
    owner
        .map(|owner| owner.interface_name)
        .ok_or_else(|| anyhow!("no interface has address {ip}: name one with --interface"))
}

/// Returns the name of the interface in use: `named`, or else the interface with address `local`.
/// The interface need not be Ethernet.
pub fn interface_in_use(named: Option<&str>, local: Option<IpAddr>) -> Option<String> {
    match named {
        Some(name) => Some(name.to_owned()),
        None => interface_with(local?.to_canonical()).ok(),
    }
}

/// Returns whether `ip` is an address of this host.
pub fn is_of_this_host(ip: IpAddr) -> bool {
    ip.is_loopback() || interface_with(ip).is_ok()
}

/// Checks that there is an interface called `name`.
///
/// # Errors
///
/// Fails if the interface does not exist.
pub fn ensure_interface(name: &str) -> Result<()> {
    interface_index(name)
        .map(drop)
        .with_context(|| format!("no interface `{name}`: `ip link` lists those there are"))
}

/// If `error` is about a lack of descriptors, returns advice for the user.
pub fn descriptors_hint(error: &anyhow::Error) -> Option<&'static str> {
    let number = |cause: &(dyn std::error::Error + 'static)| {
        let errno = cause.downcast_ref::<Errno>().map(|errno| *errno as i32);
        let of_io = || cause.downcast_ref::<io::Error>()?.raw_os_error();
        errno.or_else(of_io)
    };
    let lacks = |cause| number(cause) == Some(libc::EMFILE);
    error
        .chain()
        .any(lacks)
        .then_some("too few descriptors: raise the limit by `ulimit -n`")
}

/// If `error` is about a lack of descriptors, adds advice for the user.
pub fn explain_descriptors(error: anyhow::Error) -> anyhow::Error {
    match descriptors_hint(&error) {
        Some(hint) => error.context(hint),
        None => error,
    }
}

/// Returns the IP addresses of the interface called `name`, at least one: first the IPv4 addresses,
/// then the IPv6 addresses that are not link-local.
///
/// # Errors
///
/// Fails if the interface does not exist, or has no such address.
pub fn interface_ips(name: &str) -> Result<Vec<IpAddr>> {
    ensure_interface(name)?;
    let mut addresses: Vec<_> = getifaddrs()
        .context("listing the interfaces")?
        .filter(|entry| entry.interface_name == name)
        .filter_map(|entry| ip_of(&entry))
        .filter(|ip| !matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()))
        .collect();
    ensure!(
        !addresses.is_empty(),
        "interface {name} has no IP address: `ip address add` gives it one"
    );
    // IPv4 addresses sort before IPv6 addresses. The sort is stable, so the order within a family
    // is kept.
    addresses.sort_by_key(IpAddr::is_ipv6);
    Ok(addresses)
}

/// Waits until one of the descriptors can be read, has ended or has failed. Returns one flag for
/// each descriptor: whether one of these three is the case. If `timeout` passes first, all flags
/// are false. If `timeout` is `None`, waits without limit.
///
/// # Errors
///
/// Fails with the error of `poll(2)`.
pub fn wait_readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> io::Result<[bool; N]> {
    let timeout = match timeout {
        None => PollTimeout::NONE,
        Some(timeout) => PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX),
    };
    let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    loop {
        match poll(&mut fds, timeout) {
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(fds.map(|fd| fd.any().unwrap_or(true))),
        }
    }
}

/// Returns whether a receiving or sending call timed out.
pub fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::Ipv4Addr;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn loopback_is_found_by_its_address_and_is_no_ethernet() {
        let error = Interface::by_ip(Ipv4Addr::LOCALHOST.into()).unwrap_err();
        assert!(
            format!("{error:#}").contains("lo is not an Ethernet interface"),
            "{error:#}"
        );
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        let error = Interface::by_ip(mapped.into()).unwrap_err();
        assert!(format!("{error:#}").contains("lo is not"), "{error:#}");
    }

    #[test]
    fn the_interface_in_use_is_the_one_named_or_that_of_the_address() {
        let loopback = Some(Ipv4Addr::LOCALHOST.into());
        assert_eq!(interface_in_use(None, loopback).as_deref(), Some("lo"));
        let named = interface_in_use(Some("eth9"), loopback);
        assert_eq!(named.as_deref(), Some("eth9"));
        let nobody = Some(Ipv4Addr::new(192, 0, 2, 1).into());
        assert_eq!(interface_in_use(None, nobody), None);
        assert_eq!(interface_in_use(None, None), None);
    }

    #[test]
    fn loopback_has_its_address() {
        assert_eq!(interface_ips("lo").unwrap()[0], Ipv4Addr::LOCALHOST);
        let error = interface_ips("absent0").unwrap_err();
        assert!(error.to_string().contains("ip link"), "{error}");
    }

    #[test]
    fn absent_interfaces_say_what_to_do() {
        let error = Interface::by_name("absent0").unwrap_err();
        assert!(error.to_string().contains("ip link"), "{error}");
        let error = Interface::by_ip(Ipv4Addr::new(192, 0, 2, 1).into()).unwrap_err();
        assert!(error.to_string().contains("--interface"), "{error}");
    }

    #[test]
    fn a_lack_of_descriptors_is_explained() {
        let io = anyhow::Error::from(io::Error::from_raw_os_error(libc::EMFILE)).context("socket");
        let error = explain_descriptors(io);
        assert!(format!("{error:#}").contains("ulimit -n"), "{error:#}");
        assert!(descriptors_hint(&Errno::EMFILE.into()).is_some());
        assert!(descriptors_hint(&Errno::ENOENT.into()).is_none());
    }

    #[test]
    fn waiting_tells_which_descriptor_is_ready() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let (two, _quiet) = UnixStream::pair().unwrap();
        let ready = |timeout| wait_readable([one.as_fd(), two.as_fd()], timeout).unwrap();
        assert_eq!(ready(Some(Duration::ZERO)), [false, false]);
        other.write_all(b"x").unwrap();
        assert_eq!(ready(None), [true, false]);
    }

    #[test]
    fn a_closed_peer_counts_as_readable() {
        let (one, other) = UnixStream::pair().unwrap();
        drop(other);
        assert_eq!(wait_readable([one.as_fd()], None).unwrap(), [true]);
    }
}
