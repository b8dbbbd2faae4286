// SPDX-License-Identifier: MIT OR Apache-2.0

//! UDP.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context as _, Result};

use super::datagram::{DatagramSocket, Datagrams};
use super::ip::{self, Departure};
use super::{Context, Kind, Prepared, Role, Takes, Transport};
use crate::control::Endpoint;

pub(super) const KIND: Kind = Kind {
    name: "udp",
    about: "UDP over IP",
    prepare,
    takes: Takes {
        nodelay: None,
        busy_poll: true,
        send_buffer: true,
        receive_buffer: true,
    },
    interface: true,
    records: true,
    streams: None,
};

/// Largest payload of a UDP datagram over IPv4, bytes; one less header is counted over IPv6.
const MAX_PAYLOAD: usize = 65_507;
const UDP_HEADER: usize = 8;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;

struct Udp {
    socket: UdpSocket,
    own: SocketAddr,
    context: Context,
}

fn prepare(context: &Context) -> Result<Box<dyn Prepared>> {
    let socket = UdpSocket::bind(ip::own_address(context)?).context("binding a UDP port")?;
    Ok(Box::new(Udp {
        own: socket.local_addr()?,
        socket,
        context: context.clone(),
    }))
}

impl Prepared for Udp {
    fn endpoint(&self) -> Result<Endpoint> {
        Ok(ip::endpoint(&self.context, self.own))
    }

    fn open(self: Box<Self>, peer: &Endpoint) -> Result<Box<dyn Transport>> {
        let address = ip::peers_address(&self.context, self.own.ip(), peer)?;
        if let (Role::Leader, Some(name)) = (self.context.role, &self.context.interface) {
            Departure::new(name, self.own.ip(), address.ip()).bind_device(&self.socket)?;
        }
        self.socket
            .connect(address)
            .with_context(|| format!("connecting to {address} by UDP"))?;
        let max_datagram = max_payload(&self.socket, address.is_ipv6())?;
        let datagrams = Datagrams::new(self.socket, max_datagram, self.context.loss_timeout)?;
        Ok(Box::new(datagrams.with_options(&self.context.options)?))
    }
}

impl DatagramSocket for UdpSocket {
    fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.send(datagram)
    }

    fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv(buffer)
    }
}

/// Bytes of the largest datagram that IP need not fragment on the way to the peer, as far as the
/// kernel knows it (`IP_MTU`, `ip(7)`).
fn max_payload(socket: &UdpSocket, is_ipv6: bool) -> io::Result<usize> {
    let (level, name, ip_header) = if is_ipv6 {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU, IPV6_HEADER)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU, IPV4_HEADER)
    };
    let mut mtu: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most `length` bytes, the size of
    // `mtu`, an integer.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_mut(&mut mtu).cast(),
            &mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
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
        // Loopback's MTU is the largest there is, so here IP's own limit bounds the payload.
        assert_eq!(most, MAX_PAYLOAD);
        assert!(one.send(&vec![0; most + 1]).is_err());
    }
}
