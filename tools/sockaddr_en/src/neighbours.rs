// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads the kernel's neighbour table and interface addresses through `rtnetlink(7)`.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use netlink_packet_core::{
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NLM_F_ACK, NLM_F_DUMP, NLM_F_REPLACE,
    NLM_F_REQUEST,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{protocols::NETLINK_ROUTE, Socket, SocketAddr};

use crate::MacAddr;

/// Receive timeout. The kernel answers at once, so the timeout only keeps a program from hanging.
const PATIENCE: Duration = Duration::from_secs(5);

/// An entry of the kernel's neighbour table: the Ethernet address of an IP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// IP address of the host.
    pub ip: IpAddr,
    /// Number of the interface through which the host is reached.
    pub interface: u32,
    /// Ethernet address of the host, if it is known.
    pub mac: Option<MacAddr>,
    state: NeighbourState,
    /// Whether the kernel learned the entry through address resolution. Such an entry has no flags.
    is_learned: bool,
}

impl Neighbour {
    /// Returns the Ethernet address if the kernel would send to it.
    pub fn usable(&self) -> Option<MacAddr> {
        let valid = self.state == NeighbourState::Permanent || self.is_known();
        self.mac.filter(|mac| valid && !mac.is_unspecified())
    }

    /// Returns whether the host has answered lately.
    pub fn is_confirmed(&self) -> bool {
        self.state == NeighbourState::Reachable
    }

    /// Returns whether address resolution failed because no host answered.
    pub fn has_failed(&self) -> bool {
        self.state == NeighbourState::Failed
    }

    /// Returns whether the kernel asks the host again before it relies on the entry. The kernel
    /// does not ask again about entries that an administrator made.
    pub fn is_doubted(&self) -> bool {
        self.is_known() && self.is_learned
    }

    fn is_known(&self) -> bool {
        matches!(
            self.state,
            NeighbourState::Reachable
                | NeighbourState::Stale
                | NeighbourState::Delay
                | NeighbourState::Probe
        )
    }

    /// Makes the kernel probe the host now, rather than some seconds after the next packet. This
    /// needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, for instance because the privilege is missing.
    pub fn probe(&self) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = match self.ip {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        message.header.ifindex = self.interface;
        message.header.state = NeighbourState::Probe;
        let ip = match self.ip {
            IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
            IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
        };
        message.attributes = vec![NeighbourAttribute::Destination(ip)];
        let flags = NLM_F_REPLACE | NLM_F_ACK;
        request(RouteNetlinkMessage::NewNeighbour(message), flags, |_| ())
    }

    /// Reads the entry in a message. Returns `None` if the entry has no IP address, as in a
    /// bridge's table.
    fn read(message: &NeighbourMessage) -> Option<Self> {
        let (mut ip, mut mac) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                    ip = Some(IpAddr::from(*v4));
                }
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                    ip = Some(IpAddr::from(*v6));
                }
                NeighbourAttribute::LinkLayerAddress(bytes) => {
                    mac = <[u8; 6]>::try_from(&bytes[..]).ok().map(MacAddr);
                }
                _ => {}
            }
        }
        Some(Self {
            ip: ip?,
            interface: message.header.ifindex,
            mac,
            state: message.header.state,
            is_learned: message.header.flags.is_empty(),
        })
    }
}

/// Returns the kernel's neighbour table of this network namespace.
///
/// # Errors
///
/// If the table cannot be read.
pub fn neighbours() -> io::Result<Vec<Neighbour>> {
    let mut found = Vec::new();
    let question = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
    request(question, NLM_F_DUMP, |answer| {
        if let RouteNetlinkMessage::NewNeighbour(message) = answer {
            found.extend(Neighbour::read(&message));
        }
    })?;
    Ok(found)
}

/// The role of an IP address on this host's interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The address of the interface with this number.
    Own(u32),
    /// The broadcast address of an interface's network.
    Broadcast,
}

/// Returns the role of `ip` on this host's interfaces; `None` if no interface has the address.
pub(crate) fn role_here(ip: IpAddr) -> io::Result<Option<Role>> {
    let mut own = None;
    let mut broadcast = false;
    let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    request(question, NLM_F_DUMP, |answer| {
        let RouteNetlinkMessage::NewAddress(message) = answer else {
            return;
        };
        // On a point-to-point link, the attribute `Local` (IFA_LOCAL) is this host's address, and
        // `Address` (IFA_ADDRESS) is the peer's. Elsewhere, both are this host's.
        let attributes = || message.attributes.iter();
        let local = attributes().find_map(|attribute| match attribute {
            AddressAttribute::Local(own) => Some(*own),
            _ => None,
        });
        let other = attributes().find_map(|attribute| match attribute {
            AddressAttribute::Address(own) => Some(*own),
            _ => None,
        });
        if local.or(other) == Some(ip) {
            own = Some(Role::Own(message.header.index));
        }
        // `prefix_len` is the prefix of `other`, which is the attribute `Address`. On a
        // point-to-point link, `local` may be outside of that network.
        broadcast |= is_broadcast(ip, other, message.header.prefix_len);
    })?;
    Ok(own.or(broadcast.then_some(Role::Broadcast)))
}

/// Returns whether `ip` is the broadcast address of the network of `member`, whose prefix has
/// `bits` bits. The kernel has a route for it even if the interface names no broadcast address.
fn is_broadcast(ip: IpAddr, member: Option<IpAddr>, bits: u8) -> bool {
    let (IpAddr::V4(ip), Some(IpAddr::V4(member))) = (ip, member) else {
        return false;
    };
    // Networks of one or two addresses have no broadcast address (RFC 3021).
    let hosts = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
    bits < 31 && ip.to_bits() == member.to_bits() | hosts
}

/// Sends a request to the kernel and calls `take` with each part of the answer.
fn request(
    question: RouteNetlinkMessage,
    flags: u16,
    mut take: impl FnMut(RouteNetlinkMessage),
) -> io::Result<()> {
    let socket = Socket::new(NETLINK_ROUTE)?;
    // Port 0 addresses the kernel.
    socket.connect(&SocketAddr::new(0, 0))?;
    socket2::SockRef::from(&socket).set_read_timeout(Some(PATIENCE))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    loop {
        let (answer, _) = socket.recv_from_full()?;
        if take_all(&answer, &mut take)? {
            return Ok(());
        }
    }
}

/// Passes the messages of a datagram to `take`. Returns true if the last message of the answer was
/// among them.
fn take_all(mut bytes: &[u8], take: &mut impl FnMut(RouteNetlinkMessage)) -> io::Result<bool> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    while !bytes.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).map_err(invalid)?;
        let length = message.header.length as usize;
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(done) if done.code.is_none() => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::InnerMessage(inner) => take(inner),
            _ => {}
        }
        // Messages are aligned to four bytes. A length shorter than a header was refused above.
        bytes = bytes
            .get(length.max(1).next_multiple_of(4)..)
            .unwrap_or_default();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn entry(state: NeighbourState, mac: Option<[u8; 6]>) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = 7;
        message.header.state = state;
        let ip = NeighbourAddress::Inet(Ipv4Addr::new(10, 0, 0, 2));
        message.attributes.push(NeighbourAttribute::Destination(ip));
        let mac = mac.map(|mac| NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
        message.attributes.extend(mac);
        message
    }

    fn bytes_of(message: NeighbourMessage) -> Vec<u8> {
        let payload = NetlinkPayload::from(RouteNetlinkMessage::NewNeighbour(message));
        let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        bytes
    }

    #[test]
    fn entries_are_read() {
        const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
        let mut bytes = bytes_of(entry(NeighbourState::Reachable, Some(MAC.0)));
        bytes.extend(bytes_of(entry(NeighbourState::Failed, None)));
        let mut found = Vec::new();
        let mut take = |message| {
            if let RouteNetlinkMessage::NewNeighbour(message) = message {
                found.extend(Neighbour::read(&message));
            }
        };
        assert!(!take_all(&bytes, &mut take).unwrap());
        let [good, failed] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(good.ip, IpAddr::from([10, 0, 0, 2]));
        assert_eq!((good.interface, good.usable()), (7, Some(MAC)));
        assert!(good.is_confirmed() && good.is_doubted());
        assert_eq!(failed.usable(), None);
        assert!(failed.has_failed() && !failed.is_doubted());
        let permanent = entry(NeighbourState::Permanent, Some(MAC.0));
        let permanent = Neighbour::read(&permanent).unwrap();
        assert!(permanent.usable().is_some() && !permanent.is_doubted());
    }

    #[test]
    fn nonsense_is_refused() {
        let mut bytes = bytes_of(entry(NeighbourState::Failed, None));
        // Two lengths shorter than a header, and one longer than the datagram.
        for length in [0u32, 4, 1000] {
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            assert!(take_all(&bytes, &mut |_| ()).is_err(), "{length}");
        }
        assert!(take_all(&[1, 2, 3], &mut |_| ()).is_err());
    }

    #[test]
    fn the_systems_tables_can_be_read() {
        neighbours().unwrap();
        let lo = role_here(Ipv4Addr::LOCALHOST.into()).unwrap();
        assert_eq!(lo, crate::interface_index("lo").ok().map(Role::Own));
        let nobodys = role_here(Ipv4Addr::new(192, 0, 2, 1).into()).unwrap();
        assert_eq!(nobodys, None);
    }

    #[test]
    fn the_last_address_of_a_network_is_its_broadcast_address() {
        let is = |ip: [u8; 4], bits| is_broadcast(ip.into(), Some([10, 0, 0, 1].into()), bits);
        assert!(is([10, 0, 0, 255], 24) && is([10, 0, 255, 255], 16));
        assert!(!is([10, 0, 0, 255], 16) && !is([10, 0, 0, 2], 24) && !is([10, 0, 0, 0], 24));
        assert!(!is([10, 0, 0, 1], 31) && !is([10, 0, 0, 1], 32) && !is([10, 0, 0, 1], 33));
    }
}
