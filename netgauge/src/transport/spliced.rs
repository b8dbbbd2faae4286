// SPDX-License-Identifier: MIT OR Apache-2.0

//! Streams of TCP and of ESP that send by `splice(2)`. The kernel sends the pages of a pipe, and
//! copies no message.
//!
//! The message is in one pipe. Each send duplicates the references to the message's pages into
//! another pipe (`tee(2)`), and moves the duplicates from that pipe into the socket. netgauge fills
//! each message with one byte, so its messages differ only in this byte and in their length. If the
//! length or the byte changes, the message is copied into a new pipe. The pages of the previous
//! message stay unchanged while the kernel needs them. A message that is larger than the pipe is
//! copied into the other pipe, in parts, for each send.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::fcntl::{fcntl, splice, tee, FcntlArg, SpliceFFlags};
use nix::unistd::pipe;
use socket2::SockRef;

use super::esp::Esp;
use super::kind::Kind;
use super::packets::Packets;
use super::polled::Waits;
use super::stream::{recv_exact, Connected};
use super::streams::pair;
use super::tcp::{self, Tcp};
use super::{Context, Transport};

pub(super) const TCP: Kind = tcp::kind("tcp-splice", "TCP over IP, splice(2)", |context| {
    pair::<Tcp>(context, boxed)
});

pub(super) const ESP: Kind = Kind {
    records: false,
    ..Kind::new("esp-splice", "PF_ENET streams, splice(2)", |context| {
        pair::<Esp>(context, boxed)
    })
};

fn boxed<S: Connected>(stream: S, context: &Context) -> Result<Box<dyn Transport>> {
    let waits = Waits::limit(&stream, context)?;
    Ok(Box::new(Spliced::new(stream, waits)?))
}

struct Spliced<S> {
    stream: S,
    message: Piped,
    work: Pipe,
    waits: Waits,
}

struct Pipe {
    out: File,
    into: File,
    /// The number of bytes that fit into the pipe.
    size: usize,
}

impl Pipe {
    fn new() -> Result<Self> {
        /// The largest size of a pipe that an unprivileged user may set, bytes.
        const WANTED: i32 = 1 << 20;
        const USUAL: usize = 1 << 16;
        let (out, into) = pipe().context("making a pipe")?;
        let size = fcntl(&into, FcntlArg::F_SETPIPE_SZ(WANTED));
        let size = size.ok().and_then(|size| usize::try_from(size).ok());
        Ok(Self {
            out: out.into(),
            into: into.into(),
            size: size.unwrap_or(USUAL),
        })
    }
}

/// A pipe that holds a message.
struct Piped {
    pipe: Pipe,
    length: usize,
    first: u8,
}

impl Piped {
    /// Replaces the pipe with a new one that contains `message`. `first` is the first byte of
    /// `message`.
    fn fill(&mut self, message: &[u8], first: u8) -> Result<()> {
        self.pipe = Pipe::new()?;
        self.pipe.into.write_all(message)?;
        (self.length, self.first) = (message.len(), first);
        Ok(())
    }
}

impl<S: AsFd> Spliced<S> {
    fn new(stream: S, mut waits: Waits) -> Result<Self> {
        if waits.polls_to_send {
            // splice(2) has no flag for a call that does not block in the socket, so the socket
            // itself is made non-blocking. Receiving calls then wait in poll(2) as well.
            SockRef::from(&stream.as_fd()).set_nonblocking(true)?;
            waits.polls_to_receive = true;
        }
        Ok(Self {
            stream,
            message: Piped {
                pipe: Pipe::new()?,
                length: 0,
                first: 0,
            },
            work: Pipe::new()?,
            waits,
        })
    }

    /// Moves `left` bytes from the second pipe into the socket. `more` says whether further bytes
    /// of the message will follow.
    fn drain(&self, mut left: usize, more: bool) -> io::Result<()> {
        let flags = if more {
            SpliceFFlags::SPLICE_F_MORE
        } else {
            SpliceFFlags::empty()
        };
        // On a blocking socket, splice(2) itself waits until the socket's time limit, so no wait in
        // poll(2) follows.
        let waits = if self.waits.polls_to_send {
            self.waits
        } else {
            Waits::blocking(Duration::ZERO)
        };
        while left > 0 {
            let call = || {
                Ok(splice(
                    &self.work.out,
                    None,
                    &self.stream,
                    None,
                    left,
                    flags,
                )?)
            };
            left -= waits.send(&self.stream, call)?;
        }
        Ok(())
    }
}

impl<S: Connected> Transport for Spliced<S> {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let Some(&first) = message.first() else {
            return Ok(());
        };
        if message.len() > self.message.pipe.size.min(self.work.size) {
            let mut parts = message.chunks(self.work.size).peekable();
            while let Some(part) = parts.next() {
                self.work.into.write_all(part)?;
                self.drain(part.len(), parts.peek().is_some())?;
            }
            return Ok(());
        }
        if (self.message.length, self.message.first) != (message.len(), first) {
            self.message
                .fill(message, first)
                .map_err(io::Error::other)?;
        }
        let none = SpliceFFlags::empty();
        let there = tee(&self.message.pipe.out, &self.work.into, message.len(), none)?;
        if there < message.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.drain(there, false)
    }

    fn recv(&mut self, message: &mut [u8]) -> io::Result<()> {
        recv_exact(&mut self.stream, message, &self.waits)
    }

    fn packets(&self) -> io::Result<Option<Packets>> {
        self.stream.packets()
    }
}

as_fd!([S: AsFd] Spliced<S>, stream);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    #[test]
    fn messages_of_any_length_and_filling_arrive_as_they_are() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut peer = listener.accept().unwrap().0;
        let waits = Waits::blocking(Duration::from_secs(60));
        let mut transport = Spliced::new(stream, waits).unwrap();
        let messages = [
            (1, 7),
            (50_000, 7),
            (50_000, 8),
            (50_000, 8),
            (3_000_001, 8),
            (5, 8),
        ];
        thread::scope(|scope| {
            scope.spawn(|| {
                for (length, tag) in messages {
                    let mut got = vec![0; length];
                    peer.read_exact(&mut got).unwrap();
                    assert!(got.iter().all(|byte| *byte == tag));
                }
                peer.write_all(b"x").unwrap();
            });
            for (length, tag) in messages {
                transport.send(&vec![tag; length]).unwrap();
            }
            let mut byte = [0];
            transport.recv(&mut byte).unwrap();
            assert_eq!(&byte, b"x");
        });
        assert!(transport.packets().unwrap().unwrap().sent > 0);
    }
}
