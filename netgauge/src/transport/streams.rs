// SPDX-License-Identifier: MIT OR Apache-2.0

//! Many connections of a stream transport, as patterns of more than two participants use them.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use socket2::SockRef;

use super::options::limit_calls;
use crate::control::Endpoint;
use crate::host::Interface;

/// A stream transport's means for patterns of many connections.
#[derive(Debug)]
pub struct StreamKind {
    /// Opens a listening socket.
    pub listen: fn(&StreamContext) -> Result<StreamListener>,
    /// Finds out how to connect to a listening socket, so that what connects has nothing left to
    /// look up: its time is told.
    pub way_to: fn(&StreamContext, &Endpoint) -> Result<Connect>,
    /// Can its congestion control be chosen?
    pub congestion: bool,
}

/// Connects to a certain listening socket, once for each call.
pub type Connect = Box<dyn Fn() -> Result<Box<dyn StreamSocket>>>;

impl StreamKind {
    /// One whose congestion control cannot be chosen.
    pub(super) const fn new(
        listen: fn(&StreamContext) -> Result<StreamListener>,
        way_to: fn(&StreamContext, &Endpoint) -> Result<Connect>,
    ) -> Self {
        Self {
            listen,
            way_to,
            congestion: false,
        }
    }

    /// Connects to a listening socket.
    ///
    /// # Errors
    ///
    /// The socket's error.
    pub fn connect(
        &self,
        context: &StreamContext,
        server: &Endpoint,
    ) -> Result<Box<dyn StreamSocket>> {
        (self.way_to)(context, server)?()
    }
}

/// The options of a transport's sockets.
#[derive(Clone, Debug)]
pub struct StreamContext {
    /// This host's address of the control connection, if that has one.
    pub local: Option<IpAddr>,
    /// Name of the interface to use; without one, that of `local`.
    pub interface: Option<String>,
    /// How long a blocking call may get nowhere before it fails.
    pub give_up: Duration,
    /// Name of TCP's congestion control; without one, the system's.
    pub congestion: Option<String>,
}

impl StreamContext {
    /// The Ethernet interface to use.
    ///
    /// # Errors
    ///
    /// It is absent or no Ethernet interface, or nothing says which.
    pub fn ethernet(&self) -> Result<Interface> {
        match (&self.interface, self.local) {
            (Some(name), _) => Interface::by_name(name),
            (None, local) => {
                Interface::by_ip(local.context("name an Ethernet interface with --interface")?)
            }
        }
    }
}

/// A connected stream. Reading and writing block for at most the context's time, unless it is
/// made non-blocking.
pub trait StreamSocket: Read + Write + AsFd + Send {
    /// Lets calls fail with `WouldBlock` instead of waiting, or has them wait again.
    ///
    /// # Errors
    ///
    /// The error of `fcntl(2)`.
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        SockRef::from(&self.as_fd()).set_nonblocking(nonblocking)
    }
}

impl<S: Read + Write + AsFd + Send> StreamSocket for S {}

/// A connection whose blocking calls last no longer than this.
pub(super) fn boxed(
    socket: impl StreamSocket + 'static,
    give_up: Duration,
) -> io::Result<Box<dyn StreamSocket>> {
    limit_calls(&socket, Some(give_up))?;
    Ok(Box::new(socket))
}

/// Waits for a connection.
type Accept = Box<dyn Fn() -> io::Result<Box<dyn StreamSocket>>>;

/// A listening socket.
pub struct StreamListener {
    /// Where it can be reached.
    pub endpoint: Endpoint,
    socket: Rc<dyn AsFd>,
    accept: Accept,
}

impl StreamListener {
    /// A socket that can be reached there and accepts connections like this.
    pub(super) fn new<L: AsFd + 'static, S: StreamSocket + 'static>(
        socket: L,
        endpoint: Endpoint,
        give_up: Duration,
        accept: impl Fn(&L) -> io::Result<S> + 'static,
    ) -> Result<Self> {
        let socket = Rc::new(socket);
        let listener = Rc::clone(&socket);
        Ok(Self {
            endpoint,
            socket,
            accept: Box::new(move || boxed(accept(&listener)?, give_up)),
        })
    }

    /// Waits for a connection.
    ///
    /// # Errors
    ///
    /// The error of `accept(2)`.
    pub fn accept(&self) -> io::Result<Box<dyn StreamSocket>> {
        (self.accept)()
    }
}

as_fd!([] StreamListener, socket);
