// SPDX-License-Identifier: MIT OR Apache-2.0

//! A member's connections, and waiting for them.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use thiserror::Error;

use super::rounds::pattern;
use crate::transport::streams::StreamSocket;

/// The member that keeps the time.
pub const CLOCK: u16 = 0;

/// The most read from or written to one member before the next has its turn, bytes.
pub(super) const PIECE: usize = 64 * 1024;

/// The epoll token of the control connection.
const CONTROL: u64 = u64::MAX;

/// Others were lost, or nothing came from some for too long.
#[derive(Debug, Error)]
#[error("{reason} (members {members:?})")]
pub struct Lost {
    /// Their numbers.
    pub members: Vec<u16>,
    /// The event.
    pub reason: String,
}

/// A connection with another member.
pub struct Link {
    /// The other one's number.
    pub peer: u16,
    /// The connection; it does not block.
    pub socket: Box<dyn StreamSocket>,
}

/// A member and its connections, among them one with member 0; member 0 has one with everybody.
pub struct Member {
    /// Its number.
    pub number: u16,
    /// Its connections.
    pub links: Vec<Link>,
}

impl Link {
    /// The error that says that the other one is to blame.
    pub(super) fn lost(&self, reason: &str) -> Lost {
        Lost {
            members: vec![self.peer],
            reason: reason.to_owned(),
        }
    }

    /// Reads a piece; nothing if none has come.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Lost> {
        match self.socket.read(buffer) {
            Ok(0) => Err(self.lost("the connection ended")),
            Err(error) if is_harmless(&error) => Ok(0),
            read => read.map_err(|error| self.lost(&format!("receiving: {error}"))),
        }
    }

    /// Writes what there is room for; nothing if there is none.
    pub(super) fn write(&mut self, data: &[u8]) -> Result<usize, Lost> {
        match self.socket.write(data) {
            Ok(0) => Err(self.lost("it takes nothing")),
            Err(error) if is_harmless(&error) => Ok(0),
            written => written.map_err(|error| self.lost(&format!("sending: {error}"))),
        }
    }

    /// Sends one byte, for which there always is room: the one before has been answered.
    pub(super) fn tell(&mut self, byte: u8) -> Result<(), Lost> {
        let told = self.socket.write_all(&[byte]);
        told.map_err(|error| self.lost(&format!("sending it a byte: {error}")))
    }

    /// Are both ends of a piece what the other one's message has at this offset?
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

/// Errors after which a non-blocking socket is tried again when epoll says so.
fn is_harmless(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Waits for links, by their places, and for a word on the control connection.
pub(super) struct Watch {
    epoll: Epoll,
    events: Vec<EpollEvent>,
}

impl Watch {
    /// Has an eye on what can be read from all of them.
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

    /// Looks for room to write to a link, too, or no longer.
    pub(super) fn want_room(&self, place: usize, link: &Link, wanted: bool) -> Result<()> {
        let mut flags = EpollFlags::EPOLLIN;
        flags.set(EpollFlags::EPOLLOUT, wanted);
        let mut event = EpollEvent::new(flags, place as u64);
        Ok(self.epoll.modify(link.socket.as_fd(), &mut event)?)
    }

    /// Waits: how many links there is something to do with, none after the time; `None` if the
    /// coordinator has something to say.
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

    /// The place of a link that is ready, and for what.
    pub(super) fn ready(&self, number: usize) -> (usize, EpollFlags) {
        let event = self.events[number];
        (event.data() as usize, event.events())
    }
}
