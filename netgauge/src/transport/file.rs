// SPDX-License-Identifier: MIT OR Apache-2.0

//! Streams of TCP and of ESP that send a file by `sendfile(2)`: the kernel sends the file's pages, and
//! nothing of a message is copied.
//!
//! The file is in memory and holds the message. This program's messages differ in length and in their
//! first byte, with which they are filled: when one of the two changes, a new file takes the message,
//! by a copy. Pages of the old one stay as they are for as long as the kernel needs them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::Result;
use nix::poll::PollFlags;
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::sendfile::sendfile64;
use socket2::SockRef;

use super::polled::polled;
use super::stream::{recv_exact, Count};
use super::{esp, packets, tcp, Context, Kind, Packets, Takes, Transport};

pub(super) const TCP: Kind = Kind {
    name: "tcp-sendfile",
    about: "TCP over IP, sendfile(2)",
    prepare: |context| {
        tcp::prepare_with(
            context,
            |_| Ok(()),
            |stream, context| Ok(Box::new(FromFile::new(stream, context, packets::of_tcp)?)),
        )
    },
    takes: Takes {
        nodelay: Some("TCP_NODELAY"),
        ..Takes::DEVICE
    },
    interface: true,
    records: false,
    streams: None,
};

pub(super) const ESP: Kind = Kind {
    name: "esp-sendfile",
    about: "PF_ENET streams, sendfile(2)",
    prepare: |context| {
        esp::prepare_with(context, |stream, context| {
            Ok(Box::new(FromFile::new(stream, context, packets::of_esp)?))
        })
    },
    takes: Takes::DEVICE,
    interface: true,
    records: false,
    streams: None,
};

struct FromFile<S> {
    stream: S,
    count: Count<S>,
    message: Option<Filed>,
    give_up: Duration,
    polls_to_send: bool,
    polls_to_receive: bool,
}

/// A message in a file.
struct Filed {
    file: File,
    length: usize,
    first: u8,
}

impl Filed {
    fn new(message: &[u8], first: u8) -> io::Result<Self> {
        let mut file = File::from(memfd_create("message", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(message)?;
        Ok(Self {
            file,
            length: message.len(),
            first,
        })
    }
}

impl<S: AsFd> FromFile<S> {
    fn new(stream: S, context: &Context, count: Count<S>) -> Result<Self> {
        let polls_to_send = context.options.polls_to_send();
        if polls_to_send {
            // sendfile(2) has no flag for it. Calls that receive wait by poll(2) then, too.
            SockRef::from(&stream.as_fd()).set_nonblocking(true)?;
        }
        Ok(Self {
            stream,
            count,
            message: None,
            give_up: context.give_up,
            polls_to_send,
            polls_to_receive: polls_to_send || context.options.polls_to_receive(),
        })
    }
}

impl<S: Read + AsFd> Transport for FromFile<S> {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let Some(&first) = message.first() else {
            return Ok(());
        };
        let is_it = |filed: &Filed| (filed.length, filed.first) == (message.len(), first);
        let filed = match self.message.take().filter(is_it) {
            Some(filed) => filed,
            None => Filed::new(message, first)?,
        };
        let filed = self.message.insert(filed);
        let mut offset = 0;
        // A call that waits by itself and is over the time it may take has nothing to wait for.
        let patience = if self.polls_to_send {
            self.give_up
        } else {
            Duration::ZERO
        };
        while (offset as usize) < message.len() {
            let stream = &self.stream;
            let left = message.len() - offset as usize;
            let call = || Ok(sendfile64(stream, &filed.file, Some(&mut offset), left)?);
            if polled(stream, PollFlags::POLLOUT, patience, call)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    fn recv(&mut self, message: &mut [u8]) -> io::Result<()> {
        recv_exact(
            &mut self.stream,
            message,
            self.polls_to_receive,
            self.give_up,
        )
    }

    fn max_datagram(&self) -> Option<usize> {
        None
    }

    fn packets(&self) -> io::Result<Option<Packets>> {
        (self.count)(&self.stream)
    }

    /// Nothing: a stream loses nothing, so nothing is late.
    fn discard_pending(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: AsFd> AsFd for FromFile<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    #[test]
    fn messages_of_any_length_and_filling_arrive_as_they_are() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut peer = listener.accept().unwrap().0;
        let mut transport = FromFile {
            stream,
            count: packets::of_tcp,
            message: None,
            give_up: Duration::from_secs(60),
            polls_to_send: false,
            polls_to_receive: false,
        };
        let messages = [
            (1, 7),
            (3_000_001, 7),
            (3_000_001, 8),
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
