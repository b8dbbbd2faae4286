// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport over EDP, the datagram protocol of PF_ENET.

use anyhow::{Context as _, Result};
use sockaddr_en::{Address, EdpProtocol, EdpSocket, MacAddr};

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
    prepare_with(context, EdpProtocol::Edp, |socket, _| Ok(socket))
}

/// Prepares a transport over a socket of `protocol`. `wrap` makes the transport's socket of it.
pub(super) fn prepare_with<S: DatagramSocket + 'static>(
    context: &Context,
    protocol: EdpProtocol,
    wrap: fn(EdpSocket, &Context) -> Result<S>,
) -> Result<Prepared> {
    let name = match protocol {
        EdpProtocol::Edp => "EDP",
        EdpProtocol::Ezdp => "EZDP",
    };
    let interface = context.ethernet()?;
    let local = Address::new(MacAddr::UNSPECIFIED, interface.index, 0);
    let socket = EdpSocket::bind_with(protocol, local)
        .map_err(explain_family)
        .with_context(|| format!("binding an {name} socket to {}", interface.name))?;
    let (context, port) = (context.clone(), socket.local_addr()?.port);
    Ok(Prepared::new(at_interface(&interface, port), move |peer| {
        let address = peer_address(peer, &interface)?;
        socket
            .connect(address)
            .with_context(|| format!("connecting to {address} by {name}"))?;
        let most = socket.max_datagram();
        let most = most.with_context(|| format!("asking for {name}'s largest datagram"))?;
        Datagrams::boxed(wrap(socket, &context)?, most as usize, &context)
    }))
}

impl DatagramSocket for EdpSocket {}
