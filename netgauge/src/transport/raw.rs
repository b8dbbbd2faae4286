// SPDX-License-Identifier: MIT OR Apache-2.0

//! Raw Ethernet frames through a packet socket (`packet(7)`, `SOCK_DGRAM`: the kernel writes the
//! Ethernet header).

use std::io;
use std::mem::MaybeUninit;

use anyhow::{Context as _, Result};
use nix::sys::socket::MsgFlags;
use sockaddr_en::MacAddr;
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

use super::datagram::{DatagramSocket, Datagrams};
use super::{at_interface, peer_mac, remedied, Context, Kind, Prepared, Takes};

pub(super) const KIND: Kind = Kind {
    takes: Takes {
        busy_poll: false,
        ..Takes::DEVICE
    },
    ..Kind::new("raw", "Ethernet frames, AF_PACKET SOCK_DGRAM", prepare)
};

fn prepare(context: &Context) -> Result<Prepared> {
    let interface = context.ethernet()?;
    // Protocol 0 receives nothing until bind names the type, so no frame of another
    // interface gets in between.
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0)))
        .map_err(explain_permission)?;
    let any = link_address(context.ethertype, interface.index, MacAddr::UNSPECIFIED);
    socket
        .bind(&any)
        .with_context(|| format!("binding a packet socket to {}", interface.name))?;
    let context = context.clone();
    Ok(Prepared::new(at_interface(&interface, 0), move |peer| {
        let mac = peer_mac(peer)?;
        let address = link_address(context.ethertype, interface.index, mac);
        let socket = PacketSocket {
            socket,
            mac,
            address,
        };
        Datagrams::boxed(socket, interface.mtu, &context)
    }))
}

/// A packet socket and its peer: the kernel connects none of these.
struct PacketSocket {
    socket: Socket,
    mac: MacAddr,
    address: SockAddr,
}

impl DatagramSocket for PacketSocket {
    fn send(&self, datagram: &[u8], flags: MsgFlags) -> io::Result<usize> {
        self.socket
            .send_to_with_flags(datagram, &self.address, flags.bits())
    }

    /// Frames of other hosts are passed over.
    fn recv(&self, buffer: &mut [u8], flags: MsgFlags) -> io::Result<usize> {
        // SAFETY: the layouts are the same, and socket2 promises to write no uninitialised bytes
        // in receive calls, so the buffer stays initialised.
        let buffer = unsafe { &mut *(std::ptr::from_mut(buffer) as *mut [MaybeUninit<u8>]) };
        loop {
            let (length, sender) = self.socket.recv_from_with_flags(buffer, flags.bits())?;
            if sender_mac(&sender) == Some(self.mac) {
                return Ok(length);
            }
        }
    }
}

as_fd!([] PacketSocket, socket);

/// The address of a packet socket: Ethernet type (host order), interface, Ethernet address.
fn link_address(ethertype: u16, interface: u32, mac: MacAddr) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: `sockaddr_ll` is plain C data, smaller than the storage and no stricter aligned,
    // and all zero bytes are a value of it.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = interface as libc::c_int;
    address.sll_halen = mac.0.len() as u8;
    address.sll_addr[..mac.0.len()].copy_from_slice(&mac.0);
    // SAFETY: the storage holds a complete `sockaddr_ll`, and the length is that of one.
    unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t) }
}

/// The Ethernet address in a packet socket's address.
fn sender_mac(address: &SockAddr) -> Option<MacAddr> {
    if i32::from(address.family()) != libc::AF_PACKET {
        return None;
    }
    // SAFETY: the pointer is to a whole `SockAddrStorage`, aligned for and larger than any socket
    // address; all of it is initialised, and any bytes are a `sockaddr_ll`.
    let address = unsafe { address.as_ptr().cast::<libc::sockaddr_ll>().read() };
    let octets = address.sll_addr.get(..usize::from(address.sll_halen))?;
    octets.try_into().ok().map(MacAddr)
}

fn explain_permission(error: io::Error) -> anyhow::Error {
    let refused = error.kind() == io::ErrorKind::PermissionDenied;
    remedied(error, refused, || {
        "packet sockets are for root: run as root or with CAP_NET_RAW".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_addresses_keep_their_parts() {
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let address = link_address(0x1234, 7, mac);
        assert_eq!(sender_mac(&address), Some(mac));
        // SAFETY: the address was made from a `sockaddr_ll` just now.
        let raw = unsafe { address.as_ptr().cast::<libc::sockaddr_ll>().read() };
        assert_eq!(raw.sll_protocol.to_ne_bytes(), [0x12, 0x34]);
        assert_eq!(raw.sll_ifindex, 7);
    }

    #[test]
    fn other_address_lengths_are_no_ethernet_address() {
        let mut storage = SockAddrStorage::zeroed();
        // SAFETY: as in `link_address`.
        let raw = unsafe { storage.view_as::<libc::sockaddr_ll>() };
        raw.sll_family = libc::AF_PACKET as libc::sa_family_t;
        raw.sll_halen = 255;
        // SAFETY: as in `link_address`.
        let address = unsafe { SockAddr::new(storage, 20) };
        assert_eq!(sender_mac(&address), None);
    }
}
