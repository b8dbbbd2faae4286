// SPDX-License-Identifier: MIT OR Apache-2.0

//! ESP, PF_ENET's streams.

use std::io;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sockaddr_en::{Address, EspListener, EspStream, MacAddr};

use super::options::limit_calls;
use super::stream::Stream;
use super::streams::{Connect, StreamContext, StreamKind, StreamListener};
use super::{at_interface, explain_family, packets, peer_address, wait_for_peer};
use super::{Context, Kind, Prepared, Role, SocketOptions, Takes, Transport};
use crate::control::Endpoint;
use crate::host::Interface;

pub(super) const KIND: Kind = Kind {
    name: "esp",
    about: "PF_ENET streams, Ethernet Streaming Protocol",
    prepare,
    takes: Takes::DEVICE,
    interface: true,
    records: true,
    streams: Some(StreamKind {
        listen,
        way_to,
        congestion: false,
    }),
};

fn prepare(context: &Context) -> Result<Prepared> {
    prepare_with(context, |stream, context| {
        Ok(Box::new(
            Stream::new(stream, context).counted(packets::of_esp),
        ))
    })
}

/// This side's socket: still to connect, or listening. `wrap` makes a transport of it, once it is
/// connected.
pub(super) fn prepare_with(
    context: &Context,
    wrap: fn(EspStream, &Context) -> Result<Box<dyn Transport>>,
) -> Result<Prepared> {
    let interface = context.ethernet()?;
    // The follower's.
    let listener = match context.role {
        Role::Leader => None,
        Role::Follower => Some(listen_on(&interface, &context.options)?),
    };
    let port = match &listener {
        None => 0,
        Some(listener) => listener.local_addr()?.port,
    };
    let context = context.clone();
    Prepared::new(at_interface(&interface, port), move |peer| {
        let stream = match &listener {
            None => {
                let stream = connect(&peer_address(peer, &interface)?, context.give_up)?;
                context.options.apply(&stream)?;
                stream
            }
            Some(listener) => {
                wait_for_peer(listener, context.give_up)?;
                accept(listener, context.give_up)?
            }
        };
        wrap(stream, &context)
    })
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

fn accept(listener: &EspListener, give_up: Duration) -> io::Result<EspStream> {
    let (stream, _) = listener.accept()?;
    limit_calls(&stream, Some(give_up))?;
    Ok(stream)
}

fn connect(address: &Address, give_up: Duration) -> Result<EspStream> {
    let stream = EspStream::connect_timeout(address, give_up)
        .map_err(explain_family)
        .with_context(|| format!("connecting to {address} by ESP"))?;
    limit_calls(&stream, Some(give_up))?;
    Ok(stream)
}

fn listen(context: &StreamContext) -> Result<StreamListener> {
    let (interface, give_up) = (context.ethernet()?, context.give_up);
    let socket = listen_on(&interface, &SocketOptions::default())?;
    let endpoint = at_interface(&interface, socket.local_addr()?.port);
    StreamListener::new(socket, endpoint, move |socket| accept(socket, give_up))
}

fn way_to(context: &StreamContext, server: &Endpoint) -> Result<Connect> {
    let address = peer_address(server, &context.ethernet()?)?;
    let give_up = context.give_up;
    Ok(Box::new(move || Ok(Box::new(connect(&address, give_up)?))))
}
