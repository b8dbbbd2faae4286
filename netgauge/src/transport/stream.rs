// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport over a reliable stream of any protocol.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use anyhow::Result;
use nix::sys::socket::{send, MsgFlags};

use super::packets::Packets;
use super::polled::{try_recv, try_send, Waits};
use super::{Context, Transport};

/// The socket of a connected stream.
pub(super) trait Connected: Read + Write + AsFd + 'static {
    /// Whether the protocol supports records, as packet boundaries.
    const RECORDS: bool = false;
    /// The maximum number of bytes that one call sends.
    const LONGEST: usize = usize::MAX;

    /// Returns how many packets this side has sent so far, if the protocol counts its packets.
    fn packets(&self) -> io::Result<Option<Packets>> {
        Ok(None)
    }
}

/// A transport over a connected stream.
struct Stream<S> {
    socket: S,
    waits: Waits,
}

/// Wraps a connected socket.
pub(super) fn boxed<S: Connected>(socket: S, context: &Context) -> Result<Box<dyn Transport>> {
    let waits = Waits::limit(&socket, context)?;
    Ok(Box::new(Stream { socket, waits }))
}

impl<S: Connected> Transport for Stream<S> {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        if !self.waits.polls_to_send {
            return self.socket.write_all(message);
        }
        let mut rest = message;
        while !rest.is_empty() {
            let socket = &self.socket;
            let part = &rest[..rest.len().min(S::LONGEST)];
            let sent = self.waits.send(socket, || try_send(socket, part))?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    fn send_record(&mut self, message: &[u8]) -> io::Result<()> {
        if !S::RECORDS {
            return Err(super::no_records());
        }
        let mut flags = MsgFlags::MSG_EOR | MsgFlags::MSG_NOSIGNAL;
        flags.set(MsgFlags::MSG_DONTWAIT, self.waits.polls_to_send);
        let mut waits = self.waits;
        if !waits.polls_to_send {
            // A blocking call that has reached the socket's time limit does not wait again in
            // poll(2).
            waits.most = Duration::ZERO;
        }
        let mut rest = message;
        while !rest.is_empty() {
            let fd = self.socket.as_fd().as_raw_fd();
            let part = &rest[..rest.len().min(S::LONGEST)];
            let sent = waits.send(&self.socket, || Ok(send(fd, part, flags)?))?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    fn recv(&mut self, message: &mut [u8]) -> io::Result<()> {
        recv_exact(&mut self.socket, message, &self.waits)
    }

    fn try_send(&mut self, rest: &[u8]) -> io::Result<usize> {
        try_send(&self.socket, &rest[..rest.len().min(S::LONGEST)])
    }

    fn try_recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match try_recv(&self.socket, buffer)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            length => Ok(length),
        }
    }

    fn packets(&self) -> io::Result<Option<Packets>> {
        self.socket.packets()
    }
}

/// Reads until `message` is full.
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

as_fd!([S: AsFd] Stream<S>, socket);
