// SPDX-License-Identifier: MIT OR Apache-2.0

//! ESP, PF_ENET's streams.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context as _, Result};
use sockaddr_en::{Address, EspListener, EspStream, MacAddr};

use super::options::limit_calls;
use super::stream::Stream;
use super::streams::{Connect, StreamContext, StreamKind, StreamListener, StreamSocket};
use super::{explain_family, packets, peer_address, wait_for_peer};
use super::{Context, Kind, Prepared, Role, SocketOptions, Takes, Transport};
use crate::control::Endpoint;
use crate::host::Interface;

pub(super) const KIND: Kind = Kind {
    name: "esp",
    about: "PF_ENET streams, Ethernet Streaming Protocol",
    prepare,
    takes: Takes {
        nodelay: None,
        busy_poll: true,
        send_buffer: true,
        receive_buffer: true,
    },
    interface: true,
    records: true,
    streams: Some(StreamKind {
        listen,
        way_to,
        congestion: false,
    }),
};

struct Esp {
    interface: Interface,
    context: Context,
    /// The follower's.
    listener: Option<EspListener>,
}

fn prepare(context: &Context) -> Result<Box<dyn Prepared>> {
    let interface = context.ethernet()?;
    let listener = match context.role {
        Role::Leader => None,
        Role::Follower => Some(listen_on(&interface, &context.options)?),
    };
    Ok(Box::new(Esp {
        interface,
        context: context.clone(),
        listener,
    }))
}

impl Prepared for Esp {
    fn endpoint(&self) -> Result<Endpoint> {
        let port = match &self.listener {
            None => 0,
            Some(listener) => listener.local_addr()?.port,
        };
        Ok(Endpoint {
            port,
            mac: Some(self.interface.mac.to_string()),
            ..Endpoint::default()
        })
    }

    fn open(self: Box<Self>, peer: &Endpoint) -> Result<Box<dyn Transport>> {
        let give_up = self.context.give_up;
        let stream = match &self.listener {
            None => {
                let stream = connect(&peer_address(peer, &self.interface)?, give_up)?;
                self.context.options.apply(&stream)?;
                stream
            }
            Some(listener) => {
                wait_for_peer(listener, give_up)?;
                listener.accept()?.0
            }
        };
        limit_calls(&stream, Some(give_up))?;
        Ok(Box::new(
            Stream::new(stream, &self.context).counted(packets::of_esp),
        ))
    }
}

fn listen_on(interface: &Interface, options: &SocketOptions) -> Result<EspListener> {
    let local = Address::new(MacAddr::UNSPECIFIED, interface.index, 0);
    let listener = EspListener::bind(local)
        .map_err(explain_family)
        .with_context(|| format!("listening by ESP on {}", interface.name))?;
    // What a listener has, its connections inherit.
    options.apply(&listener)?;
    Ok(listener)
}

fn connect(address: &Address, give_up: Duration) -> Result<EspStream> {
    EspStream::connect_timeout(address, give_up)
        .map_err(explain_family)
        .with_context(|| format!("connecting to {address} by ESP"))
}

struct Listener {
    socket: EspListener,
    interface: Interface,
    give_up: Duration,
}

fn listen(context: &StreamContext) -> Result<Box<dyn StreamListener>> {
    let interface = context.ethernet()?;
    Ok(Box::new(Listener {
        socket: listen_on(&interface, &SocketOptions::default())?,
        interface,
        give_up: context.give_up,
    }))
}

impl StreamListener for Listener {
    fn endpoint(&self) -> Result<Endpoint> {
        Ok(Endpoint {
            port: self.socket.local_addr()?.port,
            mac: Some(self.interface.mac.to_string()),
            ..Endpoint::default()
        })
    }

    fn accept(&self) -> io::Result<Box<dyn StreamSocket>> {
        let (stream, _) = self.socket.accept()?;
        limit_calls(&stream, Some(self.give_up))?;
        Ok(Box::new(stream))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn way_to(context: &StreamContext, server: &Endpoint) -> Result<Connect> {
    let address = peer_address(server, &context.ethernet()?)?;
    let give_up = context.give_up;
    Ok(Box::new(move || {
        let stream = connect(&address, give_up)?;
        limit_calls(&stream, Some(give_up))?;
        Ok(Box::new(stream))
    }))
}

impl StreamSocket for EspStream {
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        Self::set_nonblocking(self, nonblocking)
    }
}
