// SPDX-License-Identifier: MIT OR Apache-2.0

//! ESP, PF_ENET's streams.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sockaddr_en::{Address, EspListener, EspStream, MacAddr};
use socket2::SockRef;

use super::stream;
use super::streams::{boxed, Connect, StreamContext, StreamKind, StreamListener};
use super::{at_interface, explain_family, peer_address, wait_for_peer};
use super::{Context, Kind, Prepared, Role, SocketOptions, Transport};
use crate::control::Endpoint;
use crate::host::Interface;

pub(super) const KIND: Kind = Kind {
    streams: Some(StreamKind::new(listen, way_to)),
    ..Kind::new(
        "esp",
        "PF_ENET streams, Ethernet Streaming Protocol",
        |context| prepare(context, &STREAMS, stream::boxed),
    )
};

/// The calls by which connections of a kind come about.
pub(super) struct Sockets<L, S> {
    /// The way the messages name them.
    pub(super) by: &'static str,
    pub(super) bind: fn(Address) -> io::Result<L>,
    pub(super) accept: fn(&L) -> io::Result<(S, Address)>,
    pub(super) connect: fn(&Address, Duration) -> io::Result<S>,
}

/// Those of streams.
pub(super) const STREAMS: Sockets<EspListener, EspStream> = Sockets {
    by: "by ESP",
    bind: |local| EspListener::bind(local),
    accept: EspListener::accept,
    connect: EspStream::connect_timeout,
};

/// This side's socket: still to connect, or listening. `wrap` makes a transport of it, once it is
/// connected.
pub(super) fn prepare<L: AsFd + 'static, S: AsFd + 'static>(
    context: &Context,
    sockets: &'static Sockets<L, S>,
    wrap: fn(S, &Context) -> Result<Box<dyn Transport>>,
) -> Result<Prepared> {
    let interface = context.ethernet()?;
    // The follower's.
    let listener = match context.role {
        Role::Leader => None,
        Role::Follower => Some(sockets.listen(&interface, &context.options)?),
    };
    let port = match &listener {
        None => 0,
        Some(listener) => port_of(listener)?,
    };
    let context = context.clone();
    Prepared::new(at_interface(&interface, port), move |peer| {
        let stream = match &listener {
            None => {
                let address = peer_address(peer, &interface)?;
                let stream = sockets.connect(&address, context.give_up)?;
                context.options.apply(&stream)?;
                stream
            }
            Some(listener) => {
                wait_for_peer(listener, context.give_up)?;
                (sockets.accept)(listener)?.0
            }
        };
        wrap(stream, &context)
    })
}

impl<L: AsFd, S: AsFd> Sockets<L, S> {
    fn listen(&self, interface: &Interface, options: &SocketOptions) -> Result<L> {
        let local = Address::new(MacAddr::UNSPECIFIED, interface.index, 0);
        let listener = (self.bind)(local)
            .map_err(explain_family)
            .with_context(|| format!("listening {} on {}", self.by, interface.name))?;
        // Connections inherit their listener's options.
        options.apply(&listener)?;
        Ok(listener)
    }

    fn connect(&self, address: &Address, give_up: Duration) -> Result<S> {
        (self.connect)(address, give_up)
            .map_err(explain_family)
            .with_context(|| format!("connecting to {address} {}", self.by))
    }
}

/// The port that a socket is bound to.
fn port_of(socket: &impl AsFd) -> Result<u16> {
    let address = SockRef::from(socket).local_addr()?;
    Ok(Address::try_from(&address)?.port)
}

fn listen(context: &StreamContext) -> Result<StreamListener> {
    let interface = context.ethernet()?;
    let socket = STREAMS.listen(&interface, &SocketOptions::default())?;
    let endpoint = at_interface(&interface, port_of(&socket)?);
    StreamListener::new(socket, endpoint, context.give_up, |socket| {
        Ok(socket.accept()?.0)
    })
}

fn way_to(context: &StreamContext, server: &Endpoint) -> Result<Connect> {
    let address = peer_address(server, &context.ethernet()?)?;
    let give_up = context.give_up;
    Ok(Box::new(move || {
        Ok(boxed(STREAMS.connect(&address, give_up)?, give_up)?)
    }))
}
