// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport over EDP, the datagram protocol of PF_ENET.

use anyhow::{Context as _, Result};
use sockaddr_en::{Address, EdpSocket, MacAddr};

use super::datagram::{DatagramSocket, Datagrams};
use super::kind::Kind;
use super::{at_interface, explain_family, peer_address, Context, Prepared};

pub(super) const KIND: Kind = Kind {
    polled: true,
    ..Kind::new(
        "edp",
        "PF_ENET datagrams, Ethernet Datagram Protocol",
        prepare,
    )
};

fn prepare(context: &Context) -> Result<Prepared> {
    let interface = context.ethernet()?;
    let local = Address::new(MacAddr::UNSPECIFIED, interface.index, 0);
    let socket = EdpSocket::bind(local)
        .map_err(explain_family)
        .with_context(|| format!("binding an EDP socket to {}", interface.name))?;
    let (context, port) = (context.clone(), socket.local_addr()?.port);
    Ok(Prepared::new(at_interface(&interface, port), move |peer| {
        let address = peer_address(peer, &interface)?;
        socket
            .connect(address)
            .with_context(|| format!("connecting to {address} by EDP"))?;
        let most = socket.max_datagram();
        let most = most.context("asking for EDP's largest datagram")? as usize;
        Datagrams::boxed(socket, most, &context)
    }))
}

impl DatagramSocket for EdpSocket {}
