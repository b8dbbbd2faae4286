// SPDX-License-Identifier: MIT OR Apache-2.0

//! The addresses of transports over IP. They are the addresses of the control connection, unless an
//! interface is named. In that case, they are the interface's, and the leader sends only through
//! the interface.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use anyhow::{ensure, Context as _, Result};
use nix::sys::socket::setsockopt;
use socket2::SockRef;

use super::Context;
use crate::host::{interface_ips, is_of_this_host};
use crate::wire::Endpoint;

// The option is described in `ip(7)`.
socket_option!(set BindAddressNoPort, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT);

/// Returns this side's address, without a port. If no interface is named, returns the address on
/// the control connection. Otherwise, returns an address of the interface, if possible of the same
/// family as the control connection.
pub(super) fn own_address(context: &Context) -> Result<SocketAddr> {
    let Some(name) = &context.interface else {
        let local = context
            .local
            .context("no address to go by: name an interface with --interface");
        return local.map(|mut address| {
            address.set_port(0);
            address
        });
    };
    let ips = interface_ips(name)?;
    let is_like = |ip: &&IpAddr| {
        context
            .peer
            .is_some_and(|peer| peer.is_ipv6() == ip.is_ipv6())
    };
    let ip = ips.iter().find(is_like).unwrap_or(&ips[0]);
    Ok(SocketAddr::new(*ip, 0))
}

/// Returns the endpoint of this side's socket at `address`. The IP address is included only if the
/// peer may not know it: if an interface is named, or if the context is not for a single peer.
pub(super) fn endpoint(context: &Context, address: SocketAddr) -> Endpoint {
    let differs = context.interface.is_some() || context.peer.is_none();
    Endpoint {
        port: address.port(),
        ip: differs.then_some(address.ip()),
        ..Endpoint::default()
    }
}

/// Returns the peer's address. Fails if the context is for a single peer, and the peer's address is
/// of another family than this side's.
pub(super) fn peers_address(context: &Context, peer: &Endpoint) -> Result<SocketAddr> {
    let told = peer.ip.map(|ip| SocketAddr::new(ip, 0));
    let mut address = told
        .or(context.peer)
        .context("the peer gave no IP address")?;
    address.set_port(peer.port);
    if context.peer.is_some() {
        let own = own_address(context)?.ip();
        ensure!(
            address.is_ipv6() == own.is_ipv6(),
            "no way leads from {own} to {}, the peer's address: name interfaces with --interface that \
             both have IPv4 or both IPv6",
            address.ip()
        );
    }
    Ok(address)
}

/// The local address and the interface for a socket that will be connected through a named
/// interface.
#[derive(Clone, Debug)]
pub(super) struct Departure {
    from: IpAddr,
    /// The interface's name; `None` if the peer is on this host, because loopback reaches all
    /// addresses of this host.
    device: Option<String>,
}

impl Departure {
    /// Returns interface `name`, and its address of the same family as `to`, for a socket that will
    /// be connected to `to`.
    pub(super) fn towards(name: &str, to: IpAddr) -> Result<Self> {
        let ips = interface_ips(name)?;
        let from = ips.into_iter().find(|ip| ip.is_ipv6() == to.is_ipv6());
        let from = from.with_context(|| {
            let kind = if to.is_ipv6() { "IPv6" } else { "IPv4" };
            format!("interface {name} has no {kind} address from which to reach {to}")
        })?;
        Ok(Self {
            from,
            device: (!is_of_this_host(to)).then(|| name.to_owned()),
        })
    }

    /// Binds `socket` to the interface.
    pub(super) fn bind_device(&self, socket: &impl AsFd) -> Result<()> {
        let Some(name) = &self.device else {
            return Ok(());
        };
        SockRef::from(socket)
            .bind_device(Some(name.as_bytes()))
            .with_context(|| {
                format!("going by interface {name} alone: before Linux 5.7 that is root's to do")
            })
    }

    /// Binds `socket`, which will be connected, to the address and the interface.
    pub(super) fn bind(&self, socket: &impl AsFd) -> Result<()> {
        self.bind_device(socket)?;
        // With this option, the kernel chooses the port only when the socket connects, so that
        // connections to different peers may share a port. Without the option, each connection
        // would take a port of its own.
        setsockopt(socket, BindAddressNoPort, &1).context("IP_BIND_ADDRESS_NO_PORT")?;
        SockRef::from(socket)
            .bind(&SocketAddr::new(self.from, 0).into())
            .with_context(|| format!("sending from {}", self.from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::kinds::find;
    use crate::transport::{tests, Prepared, Role};
    use nix::sys::socket::{getpeername, SockaddrStorage};
    use std::net::Ipv4Addr;
    use std::os::fd::AsRawFd;

    const LO: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// Returns the context of an end whose control connection has loopback addresses other than
    /// 127.0.0.1.
    fn context(role: Role, interface: Option<&str>) -> Context {
        Context {
            interface: interface.map(str::to_owned),
            ..tests::context(role, 2, 3)
        }
    }

    fn end(transport: &str, role: Role) -> Prepared {
        (find(transport).unwrap().prepare)(&context(role, Some("lo"))).unwrap()
    }

    #[test]
    fn both_ends_use_the_address_of_the_interface_that_was_named() {
        for transport in ["tcp", "tcp-zerocopy", "udp"] {
            let (leader, follower) = (end(transport, Role::Leader), end(transport, Role::Follower));
            let (here, there) = (leader.endpoint.clone(), follower.endpoint.clone());
            assert_eq!(there.ip, Some(LO), "{transport}");
            let mut leader = leader.open(&there, None).unwrap();
            let mut follower = follower.open(&here, None).unwrap();
            leader.send(b"hello").unwrap();
            let mut message = [0; 5];
            follower.recv(&mut message).unwrap();
            assert_eq!(&message, b"hello");
            for end in [&leader, &follower] {
                let peer: SockaddrStorage = getpeername(end.as_fd().as_raw_fd()).unwrap();
                let peer = peer.as_sockaddr_in().unwrap();
                assert_eq!(IpAddr::from(peer.ip()), LO, "{transport}");
            }
        }
    }

    #[test]
    fn without_a_name_the_addresses_are_the_control_connections() {
        let context = context(Role::Leader, None);
        let own = own_address(&context).unwrap();
        assert_eq!(own, SocketAddr::from(([127, 0, 0, 2], 0)));
        assert_eq!(endpoint(&context, own).ip, None);
        let mut peer = Endpoint {
            port: 7,
            ..Endpoint::default()
        };
        let address = peers_address(&context, &peer).unwrap();
        assert_eq!(address, SocketAddr::from(([127, 0, 0, 3], 7)));
        peer.ip = Some("2001:db8::1".parse().unwrap());
        let error = peers_address(&context, &peer).unwrap_err();
        assert!(error.to_string().contains("--interface"), "{error}");
    }

    #[test]
    fn a_socket_is_bound_to_the_device_unless_its_peer_is_on_this_host() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let device = || SockRef::from(&socket).device().unwrap();
        Departure::towards("lo", LO)
            .unwrap()
            .bind_device(&socket)
            .unwrap();
        assert_eq!(device(), None);
        let elsewhere = Departure::towards("lo", Ipv4Addr::new(192, 0, 2, 1).into()).unwrap();
        assert_eq!(elsewhere.from, LO);
        elsewhere.bind_device(&socket).unwrap();
        assert_eq!(device().as_deref(), Some(&b"lo"[..]));
    }
}
