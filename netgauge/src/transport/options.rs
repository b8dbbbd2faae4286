// SPDX-License-Identifier: MIT OR Apache-2.0

//! Options of a transport's sockets. Options on the client's command line apply at both ends.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use clap::{Args, ValueEnum};
use nix::sys::socket::{setsockopt, sockopt};
use serde::{Deserialize, Serialize};
use socket2::SockRef;

use crate::sizes::parse_size;

/// The options' group in the help.
const SOCKETS: &str = "Sockets, at both ends";

/// The largest buffer size that the kernel takes, because it keeps twice the size in an `int`.
const MOST_BUFFER: u64 = (1 << 30) - 1;

/// Options of sockets. If an option is not given, the transport's default applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SocketOptions {
    /// Send small writes at once, TCP_NODELAY or TIPC_NODELAY, or gather them (Nagle) [default: on]
    #[arg(help_heading = SOCKETS, long, value_name = "on|off", hide_possible_values = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodelay: Option<Switch>,

    /// Microseconds for which a receiver polls its device instead of sleeping, SO_BUSY_POLL; tcp
    /// and esp, both also with -zerocopy and -splice, udp, edp and edp-zerocopy [default:
    /// net.core.busy_read]
    #[arg(help_heading = SOCKETS, long, value_name = "USECS",
          value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_poll: Option<u32>,

    /// Send buffer, SO_SNDBUF: bytes, with K or M for powers of 1024 [default: the system's]
    #[arg(help_heading = SOCKETS, long, value_name = "SIZE", value_parser = parse_buffer)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<u32>,

    /// Receive buffer, SO_RCVBUF [default: the system's; 4M for udp, raw, edp and edp-zerocopy]
    #[arg(help_heading = SOCKETS, long, value_name = "SIZE", value_parser = parse_buffer)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<u32>,

    /// Calls that wait only in poll(2), never in the socket: send, receive or both
    #[arg(help_heading = SOCKETS, short = 'N', long, value_name = "CALLS", hide_possible_values = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nonblocking: Option<Calls>,

    /// Do not set SO_RCVTIMEO and SO_SNDTIMEO: with them the kernel arms a timer in each call that
    /// waits, which adds to the measured time. Without them, a lost datagram or a silent peer
    /// blocks the run
    #[arg(help_heading = SOCKETS, long, conflicts_with = "nonblocking")]
    #[serde(skip_serializing_if = "is_false")]
    pub no_timeouts: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// The kinds of calls that do not block in the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Calls {
    /// Sending calls.
    Send,
    /// Receiving calls.
    Receive,
    /// Both kinds.
    Both,
}

/// Limits the time of a connected socket's blocking calls to `most`; `None` removes the limit.
///
/// # Errors
///
/// Fails with the error of `setsockopt(2)`.
pub(super) fn limit_calls(socket: &impl AsFd, most: Option<Duration>) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_read_timeout(most)?;
    socket.set_write_timeout(most)
}

/// The [`SocketOptions`] that apply to a transport. `--nonblocking` and `--no-timeouts` apply to
/// all transports.
#[derive(Clone, Copy, Debug)]
pub struct Takes {
    /// The name of the socket option that `--nodelay` sets; `None` if the protocol never gathers
    /// small writes.
    pub nodelay: Option<&'static str>,
    /// Whether `--busy-poll` applies, that is, whether the kernel knows the device queue in which
    /// the packets arrive.
    pub busy_poll: bool,
    /// Whether `--send-buffer` applies, that is, whether `SO_SNDBUF` limits the socket's send
    /// buffer.
    pub send_buffer: bool,
    /// Whether `--receive-buffer` applies, that is, whether `SO_RCVBUF` limits the socket's receive
    /// buffer.
    pub receive_buffer: bool,
}

impl Takes {
    /// The value for sockets to which none of the four options applies.
    pub(super) const NOTHING: Self = Self {
        nodelay: None,
        busy_poll: false,
        send_buffer: false,
        receive_buffer: false,
    };

    /// The value for sockets that send through a device. The kernel can poll the device, and the
    /// sockets never gather small writes.
    pub(super) const DEVICE: Self = Self {
        busy_poll: true,
        send_buffer: true,
        receive_buffer: true,
        ..Self::NOTHING
    };
}

/// A function that returns whether an option applies to a transport.
pub(super) type Taken = fn(&Takes) -> bool;

impl SocketOptions {
    /// Returns whether no option is given.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns two values for each given option: its name, and a function that returns whether the
    /// option applies to a transport.
    pub(super) fn given(&self) -> impl Iterator<Item = (&'static str, Taken)> {
        let all: [(bool, &str, Taken); 6] = [
            (self.nodelay.is_some(), "--nodelay", |t| t.nodelay.is_some()),
            (self.busy_poll.is_some(), "--busy-poll", |t| t.busy_poll),
            (self.send_buffer.is_some(), "--send-buffer", |t| {
                t.send_buffer
            }),
            (self.receive_buffer.is_some(), "--receive-buffer", |t| {
                t.receive_buffer
            }),
            (self.nonblocking.is_some(), "--nonblocking", |_| true),
            (self.no_timeouts, "--no-timeouts", |_| true),
        ];
        all.into_iter()
            .filter(|(given, ..)| *given)
            .map(|(_, name, takes)| (name, takes))
    }

    /// Returns the given options, without the ones that `takes` excludes for a transport.
    pub(super) fn taken_by(&self, takes: Takes) -> Self {
        Self {
            nodelay: self.nodelay.filter(|_| takes.nodelay.is_some()),
            busy_poll: self.busy_poll.filter(|_| takes.busy_poll),
            send_buffer: self.send_buffer.filter(|_| takes.send_buffer),
            receive_buffer: self.receive_buffer.filter(|_| takes.receive_buffer),
            nonblocking: self.nonblocking,
            no_timeouts: self.no_timeouts,
        }
    }

    /// Returns whether small writes are sent at once.
    pub(super) fn is_nodelay(&self) -> bool {
        self.nodelay != Some(Switch::Off)
    }

    /// Returns whether a sending call that finds no room waits in `poll(2)`, not in the socket.
    pub(super) fn polls_to_send(&self) -> bool {
        matches!(self.nonblocking, Some(Calls::Send | Calls::Both))
    }

    /// Returns whether a receiving call that finds no data waits in `poll(2)`, not in the socket.
    pub(super) fn polls_to_receive(&self) -> bool {
        matches!(self.nonblocking, Some(Calls::Receive | Calls::Both))
    }

    /// Removes the time limits of a connected socket's calls, if `--no-timeouts` is given.
    ///
    /// # Errors
    ///
    /// Fails like [`limit_calls`].
    pub(super) fn unlimit(&self, socket: &impl AsFd) -> io::Result<()> {
        if self.no_timeouts {
            limit_calls(socket, None)?;
        }
        Ok(())
    }

    /// Sets the options of all kinds of sockets: buffers and busy polling. Must be called before
    /// the socket connects or listens, because TCP chooses its window scale at that time.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses an option.
    pub(super) fn apply(&self, socket: &impl AsFd) -> Result<()> {
        let options = SockRef::from(socket);
        // Only root may exceed the system's limits on buffers.
        if let Some(size) = self.send_buffer {
            if setsockopt(socket, sockopt::SndBufForce, &(size as usize)).is_err() {
                options.set_send_buffer_size(size as usize)?;
            }
            let granted = options.send_buffer_size()?;
            ensure_granted("--send-buffer", size, granted, "net.core.wmem_max")?;
        }
        if let Some(size) = self.receive_buffer {
            if setsockopt(socket, sockopt::RcvBufForce, &(size as usize)).is_err() {
                options.set_recv_buffer_size(size as usize)?;
            }
            let granted = options.recv_buffer_size()?;
            ensure_granted("--receive-buffer", size, granted, "net.core.rmem_max")?;
        }
        if let Some(microseconds) = self.busy_poll {
            options.set_busy_poll(microseconds).with_context(|| {
                format!(
                    "--busy-poll {microseconds}: the kernel does not poll for this socket; \
                     some allow it to root only, and some are built without CONFIG_NET_RX_BUSY_POLL"
                )
            })?;
        }
        Ok(())
    }
}

/// Checks that the kernel has granted the size `asked`. The kernel doubles the size to make room
/// for its own overhead, so `reported` is the doubled size.
fn ensure_granted(option: &str, asked: u32, reported: usize, limit: &str) -> Result<()> {
    ensure!(
        reported / 2 >= asked as usize,
        "{option} {asked}: the kernel grants {} bytes here; raise {limit} (sysctl) or run as root",
        reported / 2
    );
    Ok(())
}

fn parse_buffer(text: &str) -> Result<u32, String> {
    let size = parse_size(text)?;
    u32::try_from(size)
        .ok()
        .filter(|_| size <= MOST_BUFFER)
        .ok_or_else(|| {
            format!("`{text}` is too large: the kernel takes at most {MOST_BUFFER} bytes")
        })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};
    use socket2::{Domain, Socket, Type};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: SocketOptions,
    }

    pub(in crate::transport) fn parse(line: &str) -> Result<SocketOptions, clap::Error> {
        let words = std::iter::once("line").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.options)
    }

    #[test]
    fn options_are_read_and_travel_as_they_are() {
        Line::command().debug_assert();
        assert!(parse("").unwrap().is_default());
        let line = "--nodelay off --busy-poll 50 --send-buffer 64K --receive-buffer 1M -N both";
        let options = parse(line).unwrap();
        assert_eq!(options.nodelay, Some(Switch::Off));
        assert_eq!(
            (
                options.busy_poll,
                options.send_buffer,
                options.receive_buffer
            ),
            (Some(50), Some(65_536), Some(1 << 20))
        );
        assert!(!options.no_timeouts && parse("--no-timeouts").unwrap().no_timeouts);
        assert!(options.polls_to_send() && options.polls_to_receive());
        let text = serde_json::to_string(&options).unwrap();
        assert_eq!(
            serde_json::from_str::<SocketOptions>(&text).unwrap(),
            options
        );
        for (line, sends, receives) in [("-N send", true, false), ("-N receive", false, true)] {
            let options = parse(line).unwrap();
            assert_eq!(options.polls_to_send(), sends);
            assert_eq!(options.polls_to_receive(), receives);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "--nodelay maybe",
            "--busy-poll -1",
            "--busy-poll 2147483648",
            "--send-buffer 0",
            "--send-buffer 1G",
            "--receive-buffer lots",
            "-N sometimes",
            "-N send --no-timeouts",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_socket_gets_its_options_or_an_error() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let options = parse("--send-buffer 6000 --receive-buffer 7000 --busy-poll 0").unwrap();
        options.apply(&socket).unwrap();
        assert_eq!(socket.send_buffer_size().unwrap(), 12_000);
        assert_eq!(socket.recv_buffer_size().unwrap(), 14_000);
        let error = ensure_granted("--send-buffer", 6000, 11_998, "net.core.wmem_max").unwrap_err();
        assert!(error.to_string().contains("grants 5999 bytes"), "{error}");
        assert!(error.to_string().contains("net.core.wmem_max"), "{error}");
    }
}
