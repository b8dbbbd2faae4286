// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport over ESP, the stream protocol of PF_ENET.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sockaddr_en::{Address, EspListener, EspStream, MacAddr};
use socket2::SockRef;

use super::kind::Kind;
use super::packets::Packets;
use super::stream::{self, Connected};
use super::streams::{pair, Protocol, Way};
use super::{at_interface, explain_family, peer_address, Context};
use crate::wire::Endpoint;

pub(super) const KIND: Kind = Kind {
    polled: true,
    streams: Some(&Esp),
    ..Kind::new(
        "esp",
        "PF_ENET streams, Ethernet Streaming Protocol",
        |context| pair::<Esp>(context, stream::boxed),
    )
};

/// The protocol ESP.
#[derive(Debug)]
pub(super) struct Esp;

impl Protocol for Esp {
    type Listener = EspListener;
    type Stream = EspStream;

    fn listen(context: &Context) -> Result<(EspListener, Endpoint)> {
        listen(context, EspListener::bind, "by ESP")
    }

    fn caller(context: &Context) -> Result<Endpoint> {
        caller(context)
    }

    fn accept(listener: &EspListener, _context: &Context) -> Result<EspStream> {
        Ok(listener.accept()?.0)
    }

    fn way_to(context: &Context, server: &Endpoint) -> Result<Way<EspStream>> {
        way_to(context, server, EspStream::connect_timeout, "by ESP")
    }
}

impl Connected for EspStream {
    const RECORDS: bool = true;

    fn packets(&self) -> io::Result<Option<Packets>> {
        Ok(Some(self.stats()?.into()))
    }
}

/// Opens a listening socket. Its connections inherit its options. `by` is the text that follows
/// "listening" in error messages.
pub(super) fn listen<L: AsFd>(
    context: &Context,
    bind: fn(Address) -> io::Result<L>,
    by: &str,
) -> Result<(L, Endpoint)> {
    let interface = context.ethernet()?;
    let listener = bind(Address::new(MacAddr::UNSPECIFIED, interface.index, 0))
        .map_err(explain_family)
        .with_context(|| format!("listening {by} on {}", interface.name))?;
    context.options.apply(&listener)?;
    let bound = SockRef::from(&listener).local_addr()?;
    let port = Address::try_from(&bound)?.port;
    Ok((listener, at_interface(&interface, port)))
}

/// Returns the endpoint of a side that only connects.
pub(super) fn caller(context: &Context) -> Result<Endpoint> {
    Ok(at_interface(&context.ethernet()?, 0))
}

/// Returns a function that connects to the listening socket of `server`.
pub(super) fn way_to<S: AsFd + 'static>(
    context: &Context,
    server: &Endpoint,
    connect: fn(&Address, Duration) -> io::Result<S>,
    by: &'static str,
) -> Result<Way<S>> {
    let address = peer_address(server, &context.ethernet()?)?;
    let context = context.clone();
    Ok(Box::new(move || {
        let stream = connect(&address, context.give_up)
            .map_err(explain_family)
            .with_context(|| format!("connecting to {address} {by}"))?;
        context.options.apply(&stream)?;
        Ok(stream)
    }))
}
