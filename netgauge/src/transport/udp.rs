// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport over UDP.

use std::io;
use std::net::UdpSocket;

use anyhow::{Context as _, Result};
use nix::sys::socket::getsockopt;

use super::datagram::{DatagramSocket, Datagrams};
use super::ip::{self, Departure};
use super::kind::Kind;
use super::{Context, Prepared, Role};

pub(super) const KIND: Kind = Kind {
    polled: true,
    ..Kind::new("udp", "UDP over IP", prepare)
};

/// The largest payload of a UDP datagram over IPv4, bytes. The limit over IPv6 is higher, because
/// the IPv6 header does not count towards it.
const MAX_PAYLOAD: usize = 65_507;
const UDP_HEADER: usize = 8;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;

socket_option!(get IpMtu, libc::IPPROTO_IP, libc::IP_MTU);
socket_option!(get Ipv6Mtu, libc::IPPROTO_IPV6, libc::IPV6_MTU);

fn prepare(context: &Context) -> Result<Prepared> {
    let socket = UdpSocket::bind(ip::own_address(context)?).context("binding a UDP port")?;
    let (own, context) = (socket.local_addr()?, context.clone());
    Ok(Prepared::new(ip::endpoint(&context, own), move |peer| {
        let address = ip::peers_address(&context, peer)?;
        if let (Role::Leader, Some(name)) = (context.role, &context.interface) {
            Departure::towards(name, address.ip())?.bind_device(&socket)?;
        }
        socket
            .connect(address)
            .with_context(|| format!("connecting to {address} by UDP"))?;
        let most = max_payload(&socket, address.is_ipv6())?;
        Datagrams::boxed(socket, most, &context)
    }))
}

impl DatagramSocket for UdpSocket {}

/// Returns the payload size of the largest datagram that IP sends to the peer without fragmenting
/// it. The size results from the kernel's path MTU (`IP_MTU`, `ip(7)`).
fn max_payload(socket: &UdpSocket, is_ipv6: bool) -> io::Result<usize> {
    let (mtu, ip_header) = match is_ipv6 {
        true => (getsockopt(socket, Ipv6Mtu)?, IPV6_HEADER),
        false => (getsockopt(socket, IpMtu)?, IPV4_HEADER),
    };
    let mtu = usize::try_from(mtu).unwrap_or(0);
    Ok(mtu.saturating_sub(ip_header + UDP_HEADER).min(MAX_PAYLOAD))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_payload_is_one_the_socket_takes_and_one_more_is_not() {
        let one = UdpSocket::bind("127.0.0.1:0").unwrap();
        one.connect(one.local_addr().unwrap()).unwrap();
        let most = max_payload(&one, false).unwrap();
        assert_eq!(one.send(&vec![0; most]).unwrap(), most);
        // Loopback has the largest MTU, so IP's own limit applies here.
        assert_eq!(most, MAX_PAYLOAD);
        assert!(one.send(&vec![0; most + 1]).is_err());
    }
}
