// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connections of a member, and an epoll instance that waits for events on them.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use thiserror::Error;

use super::rounds::pattern;
use crate::transport::streams::StreamSocket;

/// The number of the member that keeps the time.
pub const CLOCK: u16 = 0;

/// The maximum number of bytes that are read from or written to one member before the next member
/// is served.
pub(super) const PIECE: usize = 64 * 1024;

/// The epoll token of the control connection.
const CONTROL: u64 = u64::MAX;

/// The error for other members that failed, or sent nothing for too long.
#[derive(Debug, Error)]
#[error("{reason} (members {members:?})")]
pub struct Lost {
    /// The numbers of the members that failed, or sent nothing for too long.
    pub members: Vec<u16>,
    /// The error, as text for the user.
    pub reason: String,
}

/// A connection with another member.
pub struct Link {
    /// The peer's number in the mesh.
    pub peer: u16,
    /// The connection, which is non-blocking.
    pub socket: Box<dyn StreamSocket>,
}

/// A member and its connections. Member 0 is connected with every other member.
pub struct Member {
    /// The member's number.
    pub number: u16,
    /// The member's connections.
    pub links: Vec<Link>,
}

impl Link {
    /// Returns the error that names the peer as its cause.
    pub(super) fn lost(&self, reason: &str) -> Lost {
        Lost {
            members: vec![self.peer],
            reason: reason.to_owned(),
        }
    }

    /// Reads a piece; returns 0 if no data has arrived.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Lost> {
        match self.socket.read(buffer) {
            Ok(0) => Err(self.lost("the connection ended")),
            Err(error) if is_harmless(&error) => Ok(0),
            read => read.map_err(|error| self.lost(&format!("receiving: {error}"))),
        }
    }

    /// Writes as many bytes as there is room for; returns 0 if there is no room.
    pub(super) fn write(&mut self, data: &[u8]) -> Result<usize, Lost> {
        match self.socket.write(data) {
            Ok(0) => Err(self.lost("it takes nothing")),
            Err(error) if is_harmless(&error) => Ok(0),
            written => written.map_err(|error| self.lost(&format!("sending: {error}"))),
        }
    }

    /// Sends one byte. There is always room, because the peer has answered the previous byte.
    pub(super) fn tell(&mut self, byte: u8) -> Result<(), Lost> {
        let told = self.socket.write_all(&[byte]);
        told.map_err(|error| self.lost(&format!("sending it a byte: {error}")))
    }

    /// Checks the first and the last byte of `piece`, the part of the peer's message at `offset`.
    pub(super) fn check(&self, offset: u64, piece: &[u8]) -> Result<(), Lost> {
        let last = piece.len().saturating_sub(1);
        for place in [0, last] {
            let offset = offset + place as u64;
            if piece.get(place) != Some(&pattern(self.peer, offset)) {
                let reason = format!("byte {offset} of its message is not what was sent");
                return Err(self.lost(&reason));
            }
        }
        Ok(())
    }
}

/// Returns whether `error` only means that a call on a non-blocking socket has to be repeated when
/// epoll reports the next event.
fn is_harmless(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// An epoll instance that watches the links and the control connection. An event has the index of
/// its link.
pub(super) struct Watch {
    epoll: Epoll,
    events: Vec<EpollEvent>,
}

impl Watch {
    /// Watches all links for data to read.
    pub(super) fn new(control: BorrowedFd<'_>, links: &[Link]) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("making an epoll")?;
        let readable = |token| EpollEvent::new(EpollFlags::EPOLLIN, token);
        epoll.add(control, readable(CONTROL))?;
        for (token, link) in (0..).zip(links) {
            epoll.add(link.socket.as_fd(), readable(token))?;
        }
        let events = vec![EpollEvent::empty(); links.len() + 1];
        Ok(Self { epoll, events })
    }

    /// Sets whether a link is also watched for room to write.
    pub(super) fn want_room(&self, place: usize, link: &Link, wanted: bool) -> Result<()> {
        let mut flags = EpollFlags::EPOLLIN;
        flags.set(EpollFlags::EPOLLOUT, wanted);
        let mut event = EpollEvent::new(flags, place as u64);
        Ok(self.epoll.modify(link.socket.as_fd(), &mut event)?)
    }

    /// Waits for events. Returns their number, which is 0 after the timeout. Returns `None` if the
    /// coordinator has sent something.
    pub(super) fn wait(
        &mut self,
        patience: impl TryInto<EpollTimeout> + Copy,
    ) -> Result<Option<usize>> {
        let ready = loop {
            let patience = patience.try_into().unwrap_or(EpollTimeout::MAX);
            match self.epoll.wait(&mut self.events, patience) {
                Err(Errno::EINTR) => {}
                ready => break ready.context("waiting for the others")?,
            }
        };
        let mut events = self.events[..ready].iter();
        let interrupted = events.any(|event| event.data() == CONTROL);
        Ok((!interrupted).then_some(ready))
    }

    /// Returns entry `number` of the events that the last call of [`wait`](Self::wait) reported:
    /// the index of the link that is ready, and the link's events.
    pub(super) fn ready(&self, number: usize) -> (usize, EpollFlags) {
        let event = self.events[number];
        (event.data() as usize, event.events())
    }
}
