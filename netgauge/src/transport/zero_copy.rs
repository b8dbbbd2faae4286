// SPDX-License-Identifier: MIT OR Apache-2.0

//! Streams of TCP and of ESP that send from the program's own memory (`MSG_ZEROCOPY`, the kernel's
//! `Documentation/networking/msg_zerocopy.rst`).
//!
//! The kernel pins the pages of a message instead of copying them. When it has released them, it
//! reports a completion on the socket's error queue. The pages must not change before they are
//! released, so this transport waits for all completions before it receives. The wait is part of
//! the cost, because every program has to wait before it writes to the pages again. Some devices,
//! such as loopback and veth, need a copy. For these devices the kernel makes a copy, and reports
//! that it did.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use anyhow::{Context as _, Result};
use nix::poll::PollFlags;
use nix::sys::socket::{send, setsockopt, MsgFlags};
use socket2::{Domain, SockAddr, SockAddrStorage, SockRef, Socket, Type};

use super::completions::Completions;
use super::esp::Esp;
use super::kind::Kind;
use super::packets::Packets;
use super::polled::{wait, Waits};
use super::stream::{recv_exact, Connected};
use super::streams::pair;
use super::tcp::{self, Tcp};
use super::{Context, Transport};

pub(super) const TCP: Kind = tcp::kind("tcp-zerocopy", "TCP over IP, MSG_ZEROCOPY", |context| {
    // The option is tried before this side connects, so that a failure does not involve the peer.
    enable(&Socket::new(Domain::IPV4, Type::STREAM, None)?)?;
    pair::<Tcp>(context, |stream, context| {
        enable(&stream)?;
        boxed(stream, context)
    })
});

pub(super) const ESP: Kind = Kind {
    records: false,
    ..Kind::new("esp-zerocopy", "PF_ENET streams, MSG_ZEROCOPY", |context| {
        pair::<Esp>(context, |stream, context| {
            stream
                .set_zero_copy(true)
                .context("this enet has no zero-copy sends (EP_SO_ZEROCOPY)")?;
            boxed(stream, context)
        })
    })
};

fn boxed<S: Connected>(stream: S, context: &Context) -> Result<Box<dyn Transport>> {
    let waits = Waits::limit(&stream, context)?;
    Ok(Box::new(ZeroCopyStream::new(stream, waits)))
}

socket_option!(set ZeroCopy, libc::SOL_SOCKET, libc::SO_ZEROCOPY);

fn enable(socket: &impl AsFd) -> Result<()> {
    setsockopt(socket, ZeroCopy, &1)
        .context("this kernel's TCP has no zero-copy sends (SO_ZEROCOPY): Linux has, from 4.14 on")
}

struct ZeroCopyStream<S: AsFd> {
    stream: S,
    waits: Waits,
    completions: Completions,
}

impl<S: AsFd> ZeroCopyStream<S> {
    fn new(stream: S, waits: Waits) -> Self {
        Self {
            stream,
            waits,
            completions: Completions::default(),
        }
    }

    /// Sends as many bytes as there is room for.
    fn send_some(&mut self, data: &[u8]) -> io::Result<usize> {
        let fd = self.stream.as_fd().as_raw_fd();
        let mut flags = MsgFlags::from_bits_retain(libc::MSG_ZEROCOPY) | MsgFlags::MSG_NOSIGNAL;
        flags.set(MsgFlags::MSG_DONTWAIT, self.waits.polls_to_send);
        let mut deadline = None;
        loop {
            match send(fd, data, flags).map_err(io::Error::from) {
                Ok(sent) => {
                    self.completions.expect_one();
                    return Ok(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && self.waits.polls_to_send =>
                {
                    // The completions are taken before the wait, because queued completions would
                    // end each wait for room at once.
                    self.completions.take(&self.stream)?;
                    let now = Instant::now();
                    let left = deadline
                        .get_or_insert(now + self.waits.most)
                        .saturating_duration_since(now);
                    if left.is_zero() || wait(&self.stream, PollFlags::POLLOUT, left)?.is_empty() {
                        return Err(error);
                    }
                }
                // The socket's memory has no room for a further completion, or the limit of pinned
                // memory is reached. In both cases, completions of earlier sends make room.
                Err(error)
                    if error.raw_os_error() == Some(libc::ENOBUFS)
                        && self.completions.pending() > 0 =>
                {
                    self.completions.await_one(&self.stream, self.waits.most)?;
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    return Err(io::Error::other(
                        "no memory to pin for zero-copy sends: raise `ulimit -l`, or \
                         net.core.optmem_max (sysctl)",
                    ));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Aborts the connection, so that the kernel no longer sends from memory that may be reused.
    fn break_off(&mut self) {
        // SAFETY: The storage is all zeros, and the length is the size of `sockaddr`. All-zero
        // bytes are a valid `sockaddr`, of family AF_UNSPEC (0).
        let nobody = unsafe {
            SockAddr::new(
                SockAddrStorage::zeroed(),
                size_of::<libc::sockaddr>() as libc::socklen_t,
            )
        };
        // The error is ignored, because this call fails only if the connection has ended. In that
        // case nothing is left to send.
        let _ = SockRef::from(&self.stream.as_fd()).connect(&nobody);
        self.completions.forget();
    }

    fn send_all(&mut self, message: &[u8]) -> io::Result<()> {
        let mut rest = message;
        while !rest.is_empty() {
            let sent = self.send_some(rest)?;
            rest = &rest[sent..];
            self.completions.take_if_many(&self.stream)?;
        }
        Ok(())
    }
}

impl<S: Connected> Transport for ZeroCopyStream<S> {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let result = self.send_all(message);
        if result.is_err() {
            self.break_off();
        }
        result
    }

    fn recv(&mut self, message: &mut [u8]) -> io::Result<()> {
        // The kernel may still send the previous message from the memory of `message`, which this
        // call overwrites.
        self.settle()?;
        recv_exact(&mut self.stream, message, &self.waits)
    }

    fn packets(&self) -> io::Result<Option<Packets>> {
        self.stream.packets()
    }

    fn settle(&mut self) -> io::Result<()> {
        let result = self.completions.settle(&self.stream, self.waits.most);
        if result.is_err() {
            self.break_off();
        }
        result
    }

    fn remark(&self) -> Option<String> {
        self.completions.remark()
    }
}

impl<S: AsFd> Drop for ZeroCopyStream<S> {
    fn drop(&mut self) {
        if self.completions.pending() > 0 {
            self.break_off();
        }
    }
}

as_fd!([S: AsFd] ZeroCopyStream<S>, stream);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::is_timeout;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;
    use std::time::Duration;

    /// Returns a transport and its peer.
    fn pair(give_up: Duration) -> (ZeroCopyStream<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        enable(&stream).unwrap();
        stream.set_read_timeout(Some(give_up)).unwrap();
        stream.set_write_timeout(Some(give_up)).unwrap();
        let transport = ZeroCopyStream::new(stream, Waits::blocking(give_up));
        (transport, listener.accept().unwrap().0)
    }

    #[test]
    fn every_send_is_completed_before_its_memory_is_received_into() {
        for polls in [false, true] {
            let (mut transport, mut peer) = pair(Duration::from_secs(60));
            let waits = &mut transport.waits;
            (waits.polls_to_send, waits.polls_to_receive) = (polls, polls);
            let size = 3 << 20;
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut got = vec![0; size];
                    for tag in 0..5 {
                        peer.read_exact(&mut got).unwrap();
                        assert!(got.iter().all(|byte| *byte == tag), "round {tag}");
                        peer.write_all(&vec![!tag; size]).unwrap();
                    }
                });
                let mut message = vec![0; size];
                for tag in 0..5 {
                    message.fill(tag);
                    transport.send(&message).unwrap();
                    transport.recv(&mut message).unwrap();
                    assert_eq!(transport.completions.pending(), 0);
                    assert!(message.iter().all(|byte| *byte == !tag));
                }
            });
            assert!(transport.completions.completed() >= 5);
            // A receiver on loopback may keep the pages for any length of time, so the kernel
            // copies them.
            let remark = transport.remark().unwrap();
            assert!(remark.contains("all the same"), "{remark}");
        }
    }

    #[test]
    fn many_small_sends_leave_no_more_pending_than_the_socket_has_room_for() {
        let (mut transport, mut peer) = pair(Duration::from_secs(60));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut got = vec![0; 20_000];
                peer.read_exact(&mut got).unwrap();
                peer.write_all(&[1]).unwrap();
            });
            for _ in 0..20_000 {
                transport.send(&[7]).unwrap();
            }
            transport.recv(&mut [0]).unwrap();
        });
        assert_eq!(transport.completions.pending(), 0);
        assert_eq!(transport.completions.completed(), 20_000);
    }

    #[test]
    fn a_peer_that_reads_nothing_is_given_up() {
        for polls in [false, true] {
            let (mut transport, _peer) = pair(Duration::from_millis(20));
            transport.waits.polls_to_send = polls;
            let error = transport.send(&vec![0; 64 << 20]).unwrap_err();
            assert!(is_timeout(&error), "{error}");
            assert_eq!(transport.completions.pending(), 0);
            // The connection was aborted, so a further message cannot be sent.
            assert!(transport.send(&[0]).is_err());
        }
    }

    #[test]
    fn a_peer_that_is_gone_is_an_error() {
        let (mut transport, peer) = pair(Duration::from_secs(60));
        drop(peer);
        let error = loop {
            if let Err(error) = transport
                .send(&[0; 4096])
                .and_then(|()| transport.recv(&mut [0]))
            {
                break error;
            }
        };
        assert!(!is_timeout(&error), "{error}");
    }
}
