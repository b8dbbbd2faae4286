// SPDX-License-Identifier: MIT OR Apache-2.0

//! The description of a transport: its name, and what it can do.

use anyhow::Result;

use super::options::{Calls, SocketOptions, Takes};
use super::streams::StreamKind;
use super::{Context, Prepared};

/// A kind of transport.
#[derive(Debug)]
pub struct Kind {
    /// Name in option `-m`.
    pub name: &'static str,
    /// A description of one line.
    pub about: &'static str,
    /// Makes this side's socket.
    pub prepare: Prepare,
    /// The options that apply to the transport's sockets.
    pub takes: Takes,
    /// Whether the transport uses an interface that option `--interface` can name.
    pub interface: bool,
    /// Whether the transport supports records
    /// ([`Transport::send_record`](super::Transport::send_record)).
    pub records: bool,
    /// Whether one thread can drive both ends, because both can send and receive without waiting.
    pub polled: bool,
    /// How patterns with many connections open connections of this kind; `None` if such patterns
    /// cannot use the transport.
    pub streams: Option<&'static dyn StreamKind>,
    /// Whether the transport's congestion control can be chosen.
    pub congestion: bool,
}

/// A function that makes this side's socket of a transport.
pub(super) type Prepare = fn(&Context) -> Result<Prepared>;

impl Kind {
    /// Returns a transport that sends through a device and supports records, but not patterns with
    /// many connections.
    pub(super) const fn new(name: &'static str, about: &'static str, prepare: Prepare) -> Self {
        Self {
            name,
            about,
            prepare,
            takes: Takes::DEVICE,
            interface: true,
            records: true,
            polled: false,
            streams: None,
            congestion: false,
        }
    }

    /// Returns the `given` options, without the ones that do not apply to this transport.
    pub fn options(&self, given: &SocketOptions) -> SocketOptions {
        given.taken_by(self.takes)
    }

    /// Describes the transport, with those of `options` that apply to it, in one line.
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
