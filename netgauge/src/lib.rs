// SPDX-License-Identifier: MIT OR Apache-2.0

//! Network benchmark: measures any transport with any pattern of messages.
//!
//! Two netgauges find each other over a TCP connection ([`control`]). The [client](pair::client)
//! measures a [pattern](pair) of messages over a [`transport`] and [`report`]s the results; the
//! [`server`] plays the peer's part of the pattern. Patterns and transports do not depend on each
//! other, so each can be added without the other.
//!
//! Patterns between more than two hosts are in [`group`]. A coordinator gives orders to
//! participants. Each participant is a server, or a process in a network namespace. The
//! [`registry`] lists all patterns. In [`polled`], one thread is client and server.
//!
//! The main modules, from the command line down to the sockets:
//!
//! ```text
//! main    cli, command, lab, polled, registry, server
//!         pair/           group/coordinator, group/worker, group/net
//!         report/, plot/  control
//!         transport/      wire, host
//! ```
//!
//! Times are from the monotonic clock (`CLOCK_MONOTONIC`, through [`std::time::Instant`]).

#![deny(clippy::print_stderr, clippy::print_stdout)]

/// Implements `AsFd` for a type by passing the call on to one of its fields.
macro_rules! as_fd {
    ([$($generics:tt)*] $type:ty, $($field:tt)+) => {
        impl<$($generics)*> std::os::fd::AsFd for $type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.$($field)+.as_fd()
            }
        }
    };
}

pub mod cli;
pub mod command;
pub mod completions;
pub mod control;
pub mod group;
pub mod host;
pub mod lab;
pub mod machine;
pub mod measuring;
pub mod messages;
pub mod netns;
pub mod pair;
pub mod participate;
pub mod pattern;
pub mod pattern_command;
#[cfg(feature = "pictures")]
pub mod picture;
pub mod picture_file;
#[cfg(feature = "pictures")]
pub mod plot;
pub mod polled;
pub mod progress;
pub mod registry;
pub mod report;
pub mod server;
pub mod signals;
pub mod sizes;
pub mod summary;
pub mod transport;
pub mod watch;
pub mod wire;
pub mod wrong_line;
