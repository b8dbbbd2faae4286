// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages over a reliable stream.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::PollFlags;

use super::polled::{polled, try_recv, try_send};
use super::{Context, Transport};

/// A connected stream.
pub(super) struct Stream<S> {
    socket: S,
    give_up: Duration,
    polls_to_send: bool,
    polls_to_receive: bool,
}

impl<S: Read + Write + AsFd> Stream<S> {
    /// Takes a connected socket whose blocking calls last no longer than the context says.
    pub(super) fn new(socket: S, context: &Context) -> Self {
        Self {
            socket,
            give_up: context.give_up,
            polls_to_send: context.options.polls_to_send(),
            polls_to_receive: context.options.polls_to_receive(),
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
            let call = || try_send(socket, rest);
            let sent = polled(socket, PollFlags::POLLOUT, self.give_up, call)?;
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
