// SPDX-License-Identifier: MIT OR Apache-2.0

//! EDP, PF_ENET's datagrams.

use std::io;

use anyhow::{Context as _, Result};
use sockaddr_en::{Address, EdpSocket, MacAddr};

use super::datagram::{DatagramSocket, Datagrams};
use super::{explain_family, peer_address, Context, Kind, Prepared, Takes, Transport};
use crate::control::Endpoint;
use crate::host::Interface;

pub(super) const KIND: Kind = Kind {
    name: "edp",
    about: "PF_ENET datagrams, Ethernet Datagram Protocol",
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

struct Edp {
    socket: EdpSocket,
    interface: Interface,
    context: Context,
}

fn prepare(context: &Context) -> Result<Box<dyn Prepared>> {
    let interface = context.ethernet()?;
    let local = Address::new(MacAddr::UNSPECIFIED, interface.index, 0);
    let socket = EdpSocket::bind(local)
        .map_err(explain_family)
        .with_context(|| format!("binding an EDP socket to {}", interface.name))?;
    Ok(Box::new(Edp {
        socket,
        interface,
        context: context.clone(),
    }))
}

impl Prepared for Edp {
    fn endpoint(&self) -> Result<Endpoint> {
        let port = self.socket.local_addr()?.port;
        Ok(Endpoint {
            port,
            mac: Some(self.interface.mac.to_string()),
            ..Endpoint::default()
        })
    }

    fn open(self: Box<Self>, peer: &Endpoint) -> Result<Box<dyn Transport>> {
        let address = peer_address(peer, &self.interface)?;
        self.socket
            .connect(address)
            .with_context(|| format!("connecting to {address} by EDP"))?;
        let max_datagram =
            (self.socket.max_datagram()).context("asking for EDP's largest datagram")? as usize;
        let datagrams = Datagrams::new(self.socket, max_datagram, self.context.loss_timeout)?;
        Ok(Box::new(datagrams.with_options(&self.context.options)?))
    }
}

impl DatagramSocket for EdpSocket {
    fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.send(datagram)
    }

    fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv(buffer)
    }
}
