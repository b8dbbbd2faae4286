// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages over a reliable stream.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::sys::socket::{send, MsgFlags};

use super::polled::{try_recv, try_send, Waits};
use super::{Context, Packets, Transport};

/// A connected stream.
pub(super) struct Stream<S> {
    socket: S,
    waits: Waits,
    /// Bytes that one call sends at most.
    longest: usize,
    count: Option<Count<S>>,
}

/// Asks a socket for what it has sent.
pub(super) type Count<S> = fn(&S) -> io::Result<Option<Packets>>;

impl<S: Read + Write + AsFd> Stream<S> {
    /// Takes a connected socket whose blocking calls last no longer than the context says.
    pub(super) fn new(socket: S, context: &Context) -> Self {
        Self {
            socket,
            waits: Waits::of(&context.options, context.give_up),
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
        if !self.waits.polls_to_send {
            return self.socket.write_all(message);
        }
        let mut rest = message;
        while !rest.is_empty() {
            let socket = &self.socket;
            let part = &rest[..rest.len().min(self.longest)];
            let sent = self.waits.send(socket, || try_send(socket, part))?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    fn send_record(&mut self, message: &[u8]) -> io::Result<()> {
        if self.count.is_none() {
            return Err(super::no_records());
        }
        let mut flags = MsgFlags::MSG_EOR | MsgFlags::MSG_NOSIGNAL;
        flags.set(MsgFlags::MSG_DONTWAIT, self.waits.polls_to_send);
        let mut waits = self.waits;
        if !waits.polls_to_send {
            // A call that waits by itself and is over the time it may take has nothing to wait for.
            waits.most = Duration::ZERO;
        }
        let mut rest = message;
        while !rest.is_empty() {
            let fd = self.socket.as_fd().as_raw_fd();
            let part = &rest[..rest.len().min(self.longest)];
            let sent = waits.send(&self.socket, || Ok(send(fd, part, flags)?))?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    fn recv(&mut self, message: &mut [u8]) -> io::Result<()> {
        recv_exact(&mut self.socket, message, &self.waits)
    }

    fn packets(&self) -> io::Result<Option<Packets>> {
        self.count
            .map(|count| count(&self.socket))
            .transpose()
            .map(Option::flatten)
    }
}

/// Fills `message`.
pub(super) fn recv_exact(
    socket: &mut (impl Read + AsFd),
    message: &mut [u8],
    waits: &Waits,
) -> io::Result<()> {
    if !waits.polls_to_receive {
        return socket.read_exact(message);
    }
    let mut filled = 0;
    while filled < message.len() {
        let call = || try_recv(socket, &mut message[filled..]);
        match waits.receive(socket, call)? {
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
