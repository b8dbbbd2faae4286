// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages over a reliable stream.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::poll::PollFlags;
use nix::sys::socket::{send, MsgFlags};

use super::polled::{polled, try_recv, try_send};
use super::{Context, Packets, Transport};

/// A connected stream.
pub(super) struct Stream<S> {
    socket: S,
    give_up: Duration,
    polls_to_send: bool,
    polls_to_receive: bool,
    /// Bytes that one call sends at most.
    longest: usize,
    count: Option<Count<S>>,
}

/// Asks a socket for what it has sent.
type Count<S> = fn(&S) -> io::Result<Option<Packets>>;

impl<S: Read + Write + AsFd> Stream<S> {
    /// Takes a connected socket whose blocking calls last no longer than the context says.
    pub(super) fn new(socket: S, context: &Context) -> Self {
        Self {
            socket,
            give_up: context.give_up,
            polls_to_send: context.options.polls_to_send(),
            polls_to_receive: context.options.polls_to_receive(),
            longest: usize::MAX,
            count: None,
        }
    }

    /// The same whose calls send so many bytes at most.
    pub(super) fn in_calls_of(self, longest: usize) -> Self {
        Self { longest, ..self }
    }

    /// The same of a protocol that sends packets, which `count` counts, and keeps records apart in
    /// them.
    pub(super) fn counted(self, count: Count<S>) -> Self {
        Self {
            count: Some(count),
            ..self
        }
    }
}

impl<S: Read + Write + AsFd> Transport for Stream<S> {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        if !self.polls_to_send {
            return self.socket.write_all(message);
        }
        let mut rest = message;
        while !rest.is_empty() {
            let socket = &self.socket;
            let part = &rest[..rest.len().min(self.longest)];
            let call = || try_send(socket, part);
            let sent = polled(socket, PollFlags::POLLOUT, self.give_up, call)?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    fn send_record(&mut self, message: &[u8]) -> io::Result<()> {
        if self.count.is_none() {
            return Err(super::no_records());
        }
        let mut flags = MsgFlags::MSG_EOR | MsgFlags::MSG_NOSIGNAL;
        flags.set(MsgFlags::MSG_DONTWAIT, self.polls_to_send);
        let mut rest = message;
        while !rest.is_empty() {
            let fd = self.socket.as_fd().as_raw_fd();
            let part = &rest[..rest.len().min(self.longest)];
            let call = || Ok(send(fd, part, flags)?);
            // A call that waits by itself and is over the time it may take has nothing to wait for.
            let patience = if self.polls_to_send {
                self.give_up
            } else {
                Duration::ZERO
            };
            let sent = polled(&self.socket, PollFlags::POLLOUT, patience, call)?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    fn recv(&mut self, message: &mut [u8]) -> io::Result<()> {
        let Self {
            socket, give_up, ..
        } = self;
        recv_exact(socket, message, self.polls_to_receive, *give_up)
    }

    fn max_datagram(&self) -> Option<usize> {
        None
    }

    fn packets(&self) -> io::Result<Option<Packets>> {
        self.count
            .map(|count| count(&self.socket))
            .transpose()
            .map(Option::flatten)
    }

    /// Nothing: a stream loses nothing, so nothing is late.
    fn discard_pending(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Fills `message`, by calls that do not block if it `polls`.
pub(super) fn recv_exact(
    socket: &mut (impl Read + AsFd),
    message: &mut [u8],
    polls: bool,
    give_up: Duration,
) -> io::Result<()> {
    if !polls {
        return socket.read_exact(message);
    }
    let mut filled = 0;
    while filled < message.len() {
        let call = || try_recv(socket, &mut message[filled..]);
        match polled(socket, PollFlags::POLLIN, give_up, call)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            length => filled += length,
        }
    }
    Ok(())
}

impl<S: AsFd> AsFd for Stream<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
