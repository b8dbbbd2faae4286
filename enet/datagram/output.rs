// SPDX-License-Identifier: GPL-2.0

//! Sends EDP datagrams, and takes the local port that they are sent from.

use super::{control, sock::Edp};
use crate::net::errno::prelude::*;
use crate::{
    address::{Address, INTERFACE_ANY},
    device::{choose_interface, usable},
    edp::{self, peers::Known, wire::checksum_len},
    net::{device::Device, message::Message, namespace::PerNet, rcu, skb::Skb, sock::Sock, uapi},
    parameters,
    pernet::NetState,
    ports,
    statistics::Statistic,
};
use core::sync::atomic::Ordering::Relaxed;

/// Checks that `len` bytes of payload, and a checksum if `with_checksum`, fit into a frame of
/// `device`.
///
/// # Errors
///
/// `EMSGSIZE`.
#[inline]
pub(super) fn fits(device: &Device, len: usize, with_checksum: bool) -> Result {
    if len > edp::wire::mtu(device.mtu(), with_checksum) as usize {
        return Err(EMSGSIZE);
    }
    Ok(())
}

/// Checks that the peer accepts `len` bytes of payload, and a checksum if `with_checksum`. A length
/// that every host accepts needs no look-up. If the peer's limit is not known, the check succeeds,
/// and a query is sent whose answer later checks use.
///
/// # Errors
///
/// `EMSGSIZE`.
#[inline]
pub(super) fn fits_peer(device: &Device, to: &Address, len: usize, with_checksum: bool) -> Result {
    let len = len.saturating_add(checksum_len(with_checksum));
    if len <= edp::wire::COMMON_LARGEST {
        return Ok(());
    }
    fits_limit(device, to, len)
}

#[inline(never)]
fn fits_limit(device: &Device, to: &Address, len: usize) -> Result {
    // A datagram to this host needs no look-up, because only the device limits its length.
    if to.mac == device.address() {
        return Ok(());
    }
    let net_state = NetState::of(device.net());
    let known = net_state.edp_peers.look_up(to);
    if let Some(nonce) = known.query() {
        control::ask(device, nonce, to.mac, net_state);
    }
    match known {
        Known::Answer(told, _) if len > told.largest.into() => Err(EMSGSIZE),
        _ => Ok(()),
    }
}

/// Returns the length, in bytes, of the largest datagram that `device` carries and that the
/// socket's peer accepts. A peer whose limit is not known is taken to accept every datagram.
pub(super) fn largest(sock: &Sock<Edp>, device: &Device) -> u32 {
    let shared = sock.shared();
    let with_checksum = shared.sums.load(Relaxed);
    let own = edp::wire::mtu(device.mtu(), with_checksum);
    let told = (shared.peer.get())
        .filter(|peer| peer.mac != device.address())
        .and_then(|peer| NetState::of(device.net()).edp_peers.largest(&peer));
    told.map_or(own, |told| {
        own.min(u32::from(told).saturating_sub(checksum_len(with_checksum) as u32))
    })
}

/// Number of attempts to take a free port for a socket that sends. An attempt fails if another
/// thread releases the port before the datagram uses it.
const BINDINGS: usize = 16;

impl Edp {
    /// Returns the local port; a socket without a port takes a free one first. Never returns 0, the
    /// control port, even if another thread releases the port at the same time.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if no port is free, or if other threads release each port that the socket takes.
    #[inline]
    pub(super) fn own_port(sock: &Sock<Self>) -> Result<u16> {
        match sock.shared().binding.port() {
            0 => Self::bind_free_port(sock),
            port => Ok(port),
        }
    }

    #[cold]
    #[inline(never)]
    fn bind_free_port(sock: &Sock<Self>) -> Result<u16> {
        for _ in 0..BINDINGS {
            match Self::take_port(sock, 0, INTERFACE_ANY) {
                // Another thread has given the socket a port since `own_port` found none.
                Err(e) if e == EINVAL => {}
                Err(e) if e == EADDRINUSE => return Err(EAGAIN),
                result => result?,
            }
            let port = sock.shared().binding.port();
            if port != 0 {
                return Ok(port);
            }
        }
        Err(EAGAIN)
    }

    pub(super) fn take_port(sock: &Sock<Self>, port: u16, ifindex: u32) -> Result {
        let shared = sock.shared();
        ports::take(
            &NetState::of(sock.net()).edp_ports,
            sock,
            &shared.binding,
            |other| &other.shared().binding,
            port,
            ifindex,
        )
    }

    /// Releases the port; the socket has none afterwards.
    pub(super) fn give_port_back(sock: &Sock<Self>) {
        ports::forget(
            &NetState::of(sock.net()).edp_ports,
            sock,
            &sock.shared().binding,
            |other| &other.shared().binding,
        );
    }

    /// Returns the destination of a datagram: the address that the call passed, or else the peer.
    pub(super) fn destination(sock: &Sock<Self>, msg: &Message<'_>) -> Result<Address> {
        match msg.name() {
            Some(name) => Address::parse(name),
            None => sock.shared().peer.get().ok_or(EDESTADDRREQ),
        }
    }

    /// Returns the device that leads to `to`, and sets the interface of `to`. The device is valid
    /// only during the read section. A call that sleeps must end the section first, so that the
    /// device can be removed, and must look the device up again afterwards. On return, the socket
    /// has a port.
    pub(super) fn way<'a>(
        sock: &Sock<Self>,
        to: &mut Address,
        section: &'a rcu::Read,
    ) -> Result<&'a Device> {
        let binding = &sock.shared().binding;
        to.ifindex = choose_interface(sock, binding.ifindex(), to.ifindex)?;
        let device = Device::find(sock.net(), to.ifindex, section).ok_or(ENODEV)?;
        usable(device)?;
        if to.mac.is_group() {
            return Err(EACCES);
        }
        Self::own_port(sock)?;
        Ok(device)
    }

    /// Returns the header of a datagram with `len` bytes of payload, and a checksum after them if
    /// `with_checksum`.
    ///
    /// # Errors
    ///
    /// Those of [`own_port`](Self::own_port).
    pub(super) fn header(
        sock: &Sock<Self>,
        to: &Address,
        len: usize,
        with_checksum: bool,
    ) -> Result<edp::wire::Header> {
        Ok(edp::wire::Header {
            src: Self::own_port(sock)?,
            dst: to.port,
            len: len as u16,
            has_checksum: with_checksum,
        })
    }

    /// Returns the destination of a datagram of `len` bytes, whether it has a checksum, and the
    /// headroom that the device needs in bytes.
    #[inline]
    pub(super) fn prepare(
        sock: &Sock<Self>,
        msg: &Message<'_>,
        len: usize,
    ) -> Result<(Address, bool, usize)> {
        let mut to = Self::destination(sock, msg)?;
        let with_checksum = sock.shared().sums.load(Relaxed);
        let section = rcu::Read::enter();
        let device = Self::way(sock, &mut to, &section)?;
        fits(device, len, with_checksum)?;
        fits_peer(device, &to, len, with_checksum)?;
        Ok((to, with_checksum, device.headroom()))
    }

    pub(super) fn send_now(sock: &Sock<Self>, msg: &mut Message<'_>, len: usize) -> Result {
        let (mut to, with_checksum, headroom) = Self::prepare(sock, msg, len)?;
        let cookie = msg.cookie(sock)?;
        let nonblocking = msg.flags() & uapi::MSG_DONTWAIT != 0;
        // The calls below may sleep to wait for buffer space, or while they copy from user memory.
        let room = edp::wire::HEADER_LEN + len + checksum_len(with_checksum);
        let mut skb = sock.alloc_send(headroom, room, nonblocking)?;
        if !skb.put(&Self::header(sock, &to, len, with_checksum)?.emit()) {
            return Err(ENOBUFS);
        }
        skb.put_from(msg, len)?;
        if with_checksum && !skb.append_sum(0) {
            return Err(ENOBUFS);
        }
        skb.set_cookie(sock, &cookie);
        let section = rcu::Read::enter();
        let device = Self::way(sock, &mut to, &section)?;
        fits(device, len, with_checksum)?;
        Self::transmit(sock, device, skb, &to)
    }

    /// Sends a complete packet, and counts it.
    pub(super) fn transmit(sock: &Sock<Self>, device: &Device, skb: Skb, to: &Address) -> Result {
        let stats = &sock.shared().stats;
        let statistics = &NetState::of(sock.net()).statistics;
        let sent = device.send(skb, parameters::edp_type(), to.mac);
        let (of_socket, of_namespace) = match sent {
            Ok(()) => (&stats.pkt_tx, Statistic::EdpOutDatagrams),
            Err(_) => (&stats.tx_err, Statistic::EdpOutErrors),
        };
        of_socket.count();
        statistics.count(of_namespace);
        sent
    }
}
