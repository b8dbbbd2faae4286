// SPDX-License-Identifier: GPL-2.0-only

//! Sets up the devices of network namespaces by `rtnetlink(7)`, from the scenario's own process.
//! With an `ip` process for each step, most scenarios would spend more than half of their time on
//! starting processes.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};

use anyhow::{bail, Context, Result};
use netlink_packet_core::{
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL,
    NLM_F_REQUEST,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{protocols::NETLINK_ROUTE, Socket, SocketAddr};

use crate::lab::eventually;
use crate::netns::Netns;

/// Index of the loopback device in every namespace (`LOOPBACK_IFINDEX`).
pub const LOOPBACK: u32 = 1;

/// Flags of a request that creates an object.
const NEW: u16 = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;

/// One end of a veth pair: the device's name and its Ethernet address. If the address is `None`,
/// the kernel chooses a random one.
pub type End<'a> = (&'a str, Option<[u8; 6]>);

impl Netns {
    /// Makes a veth pair: `own` in this namespace, `other` in `namespace`.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn add_veth(&self, own: End<'_>, (other, namespace): (End<'_>, &Self)) -> Result<()> {
        let mut peer = link(0, attributes(other));
        let place = LinkAttribute::NetNsFd(namespace.as_fd().as_raw_fd());
        peer.attributes.push(place);
        let pair = LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]);
        let own = [attributes(own), vec![pair]].concat();
        self.change(RouteNetlinkMessage::NewLink(link(0, own)), NEW)
            .context("making a veth pair")
    }

    /// Sets `flags` of the device with this index.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn set_flags(&self, index: u32, flags: LinkFlags) -> Result<()> {
        let mut message = link(index, Vec::new());
        message.header.flags = flags;
        message.header.change_mask = flags;
        self.change(RouteNetlinkMessage::SetLink(message), NLM_F_ACK)
            .with_context(|| format!("setting {flags:?} of device {index}"))
    }

    /// Sets the device with this index up.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn set_up(&self, index: u32) -> Result<()> {
        self.set_flags(index, LinkFlags::Up)
    }

    /// Waits until the kernel has noticed the carrier of the device with this index. Until then the
    /// device is up but sends nothing.
    ///
    /// # Errors
    /// If the kernel has not noticed it within [`patience`](crate::patience::patience), or there is
    /// no such device.
    pub fn await_carrier(&self, index: u32) -> Result<()> {
        eventually("the carrier", || self.is_operational(index))
    }

    /// Returns whether the device with this index is up and its carrier has been noticed
    /// (`IFLA_OPERSTATE`).
    fn is_operational(&self, index: u32) -> Result<bool> {
        let question = RouteNetlinkMessage::GetLink(link(index, Vec::new()));
        match self.request(question, 0)? {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                let up = LinkAttribute::OperState(State::Up);
                Ok(link.attributes.contains(&up))
            }
            other => bail!("the kernel answered {other:?} about device {index}"),
        }
    }

    /// Gives the device with this index an IPv4 address.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn add_address(&self, index: u32, address: Ipv4Addr, prefix: u8) -> Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = prefix;
        message.header.index = index;
        let ip = IpAddr::from(address);
        message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
        self.change(RouteNetlinkMessage::NewAddress(message), NEW)
            .with_context(|| format!("giving device {index} the address {address}"))
    }

    /// Adds a permanent neighbour entry to the device with this index.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn add_neighbour(&self, index: u32, address: Ipv4Addr, mac: [u8; 6]) -> Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message.attributes = vec![
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)),
            NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
        ];
        self.change(RouteNetlinkMessage::NewNeighbour(message), NEW)
            .with_context(|| format!("adding neighbour {address} to device {index}"))
    }

    /// Sends a request that the kernel only acknowledges.
    fn change(&self, message: RouteNetlinkMessage, flags: u16) -> Result<()> {
        match self.request(message, flags)? {
            NetlinkPayload::Error(done) if done.code.is_none() => Ok(()),
            NetlinkPayload::Error(error) => Err(error.to_io().into()),
            other => bail!("the kernel answered {other:?}"),
        }
    }

    /// Sends a request and returns the reply, which is one message.
    fn request(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<NetlinkPayload<RouteNetlinkMessage>> {
        let socket = self.within(|| -> io::Result<Socket> {
            let socket = Socket::new(NETLINK_ROUTE)?;
            // The kernel has the netlink port 0.
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok(socket)
        })??;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        socket.send(&bytes, 0)?;
        let (answer, _) = socket.recv_from_full()?;
        Ok(NetlinkMessage::deserialize(&answer)?.payload)
    }
}

fn attributes((name, mac): End<'_>) -> Vec<LinkAttribute> {
    let mut attributes = vec![LinkAttribute::IfName(name.to_owned())];
    attributes.extend(mac.map(|mac| LinkAttribute::Address(mac.to_vec())));
    attributes
}

fn link(index: u32, attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes = attributes;
    link
}
