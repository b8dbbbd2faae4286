// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kind of a transport: its name, and what it can do.

use anyhow::Result;

use super::options::{Calls, SocketOptions, Takes};
use super::streams::StreamKind;
use super::{Context, Prepared};

/// A kind of transport.
#[derive(Debug)]
pub struct Kind {
    /// Name in option `-m`.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// Makes this side's socket.
    pub prepare: Prepare,
    /// Which options mean something to its sockets.
    pub takes: Takes,
    /// Does it go by an interface that can be named?
    pub interface: bool,
    /// Does it keep records apart ([`Transport::send_record`])?
    pub records: bool,
    /// Its means for patterns of many connections, if it can be used for these.
    pub streams: Option<&'static dyn StreamKind>,
    /// Can its congestion control be chosen?
    pub congestion: bool,
}

/// Makes this side's socket of a transport.
pub(super) type Prepare = fn(&Context) -> Result<Prepared>;

impl Kind {
    /// A transport that sends by a device and keeps records apart, but has no use for many
    /// connections.
    pub(super) const fn new(name: &'static str, about: &'static str, prepare: Prepare) -> Self {
        Self {
            name,
            about,
            prepare,
            takes: Takes::DEVICE,
            interface: true,
            records: true,
            streams: None,
            congestion: false,
        }
    }

    /// Of these options those that mean something to this transport.
    pub fn options(&self, given: &SocketOptions) -> SocketOptions {
        given.taken_by(self.takes)
    }

    /// Describes the transport with these options in one line for people.
    pub fn describe(&self, options: &SocketOptions) -> String {
        let own = self.options(options);
        let mut text = self.about.to_owned();
        if let Some(name) = self.takes.nodelay {
            text += &match own.is_nodelay() {
                true => format!(", {name}"),
                false => format!(", {name} off"),
            };
        }
        for (value, name) in [
            (own.send_buffer, "SO_SNDBUF"),
            (own.receive_buffer, "SO_RCVBUF"),
            (own.busy_poll, "SO_BUSY_POLL"),
        ] {
            if let Some(value) = value {
                text += &format!(", {name} {value}");
            }
        }
        match own.nonblocking {
            None => {}
            Some(Calls::Send) => text += ", non-blocking sends",
            Some(Calls::Receive) => text += ", non-blocking receives",
            Some(Calls::Both) => text += ", non-blocking",
        }
        if own.no_timeouts {
            text += ", no timeouts";
        }
        text
    }
}
