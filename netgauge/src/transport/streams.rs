// SPDX-License-Identifier: MIT OR Apache-2.0

//! How the connections of a stream transport are opened. Most patterns between two hosts use one
//! connection. Pattern setup, and the patterns between more than two hosts, open many.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use anyhow::Result;
use socket2::SockRef;

use super::options::limit_calls;
use super::stream::Connected;
use super::{wait_for_peer, Context, Prepared, Role, Transport};
use crate::wire::Endpoint;

/// A protocol of streams.
pub(super) trait Protocol: Sync + fmt::Debug + 'static {
    /// A socket that listens.
    type Listener: AsFd + 'static;
    /// A connection.
    type Stream: Connected + Send;

    /// Opens a listening socket, and returns its endpoint.
    fn listen(context: &Context) -> Result<(Self::Listener, Endpoint)>;

    /// Returns the endpoint of a side that only connects. A side that cannot connect fails here,
    /// before the peer is involved.
    fn caller(context: &Context) -> Result<Endpoint>;

    /// Checks that the peer, which only connects, can reach this listening socket.
    fn check_caller(_listener: &Self::Listener, _caller: &Endpoint) -> Result<()> {
        Ok(())
    }

    /// Waits for a connection.
    fn accept(listener: &Self::Listener, context: &Context) -> Result<Self::Stream>;

    /// Resolves the address of a listening socket, and returns a function that connects to it.
    fn way_to(context: &Context, server: &Endpoint) -> Result<Way<Self::Stream>>;
}

/// A function that connects to a certain listening socket, once per call.
pub type Way<S> = Box<dyn Fn() -> Result<S>>;

/// A function that makes a transport from a connection.
type Wrap<S> = fn(S, &Context) -> Result<Box<dyn Transport>>;

/// Prepares a transport over one connection with the peer. `wrap` makes the transport from the
/// connection.
pub(super) fn pair<P: Protocol>(context: &Context, wrap: Wrap<P::Stream>) -> Result<Prepared> {
    let context = context.clone();
    if context.role == Role::Leader {
        return Ok(Prepared::new(P::caller(&context)?, move |peer| {
            wrap(P::way_to(&context, peer)?()?, &context)
        }));
    }
    let (listener, endpoint) = P::listen(&context)?;
    Ok(Prepared::waiting(endpoint, move |peer, control| {
        P::check_caller(&listener, peer)?;
        wait_for_peer(&listener, control, context.give_up)?;
        wrap(P::accept(&listener, &context)?, &context)
    }))
}

/// A function that connects to a certain listening socket, of any protocol.
pub type Connect = Way<Box<dyn StreamSocket>>;

/// How patterns with many connections open the connections of a stream transport.
pub trait StreamKind: Sync + fmt::Debug {
    /// Opens a listening socket.
    ///
    /// # Errors
    ///
    /// Fails with the socket's error.
    fn listen(&self, context: &Context) -> Result<StreamListener>;

    /// Resolves the address of a listening socket, and returns a function that connects to it. All
    /// look-ups are done before the function is returned, because its calls may be timed.
    ///
    /// # Errors
    ///
    /// Fails with the socket's error.
    fn way_to(&self, context: &Context, server: &Endpoint) -> Result<Connect>;
}

impl<P: Protocol> StreamKind for P {
    fn listen(&self, context: &Context) -> Result<StreamListener> {
        let (socket, endpoint) = P::listen(context)?;
        let context = context.clone();
        let listening = Box::new(Listener::<P> { socket, context });
        Ok(StreamListener {
            endpoint,
            listening,
        })
    }

    fn way_to(&self, context: &Context, server: &Endpoint) -> Result<Connect> {
        let (way, context) = (P::way_to(context, server)?, context.clone());
        Ok(Box::new(move || boxed(way()?, &context)))
    }
}

/// A connected stream. Reading and writing block for at most the context's `give_up`, unless the
/// stream is non-blocking.
pub trait StreamSocket: Read + Write + AsFd + Send {
    /// Sets whether calls fail with `WouldBlock` instead of waiting.
    ///
    /// # Errors
    ///
    /// Fails with the error of `fcntl(2)`.
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        SockRef::from(&self.as_fd()).set_nonblocking(nonblocking)
    }
}

impl<S: Read + Write + AsFd + Send> StreamSocket for S {}

/// Returns a connection whose blocking calls wait for at most `context.give_up`.
fn boxed(socket: impl StreamSocket + 'static, context: &Context) -> Result<Box<dyn StreamSocket>> {
    limit_calls(&socket, Some(context.give_up))?;
    Ok(Box::new(socket))
}

/// A listening socket, of any protocol.
trait Listening: AsFd {
    fn accept(&self) -> Result<Box<dyn StreamSocket>>;
}

struct Listener<P: Protocol> {
    socket: P::Listener,
    context: Context,
}

as_fd!([P: Protocol] Listener<P>, socket);

impl<P: Protocol> Listening for Listener<P> {
    fn accept(&self) -> Result<Box<dyn StreamSocket>> {
        boxed(P::accept(&self.socket, &self.context)?, &self.context)
    }
}

/// A listening socket.
pub struct StreamListener {
    /// The address of the socket.
    pub endpoint: Endpoint,
    listening: Box<dyn Listening>,
}

impl StreamListener {
    /// Waits for a connection.
    ///
    /// # Errors
    ///
    /// Fails with the error of `accept(2)`.
    pub fn accept(&self) -> Result<Box<dyn StreamSocket>> {
        self.listening.accept()
    }
}

as_fd!([] StreamListener, listening);
