// SPDX-License-Identifier: MIT OR Apache-2.0

//! TCP that sends from the program's own memory (`MSG_ZEROCOPY`, the kernel's
//! `Documentation/networking/msg_zerocopy.rst`).
//!
//! The kernel pins the pages of a message instead of copying them, and says on the socket's error
//! queue when it needs them no more. Until then they must not change, so before it receives, this
//! transport waits until all that was sent has been completed: a program of its own would have to
//! before it writes there again, and so that is part of what such sends cost. Where a device needs
//! a copy after all, as loopback and veth do, the kernel makes one and says so.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Instant;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{recvmsg, send, setsockopt, ControlMessageOwned, MsgFlags};
use socket2::{SockAddr, SockAddrStorage, SockRef};

use super::polled::{wait, Waits};
use super::stream::recv_exact;
use super::tcp::prepare_with;
use super::{packets, Context, Kind, Packets, Prepared, Takes, Transport};

pub(super) const KIND: Kind = Kind {
    name: "tcp-zerocopy",
    about: "TCP over IP, MSG_ZEROCOPY",
    prepare,
    takes: Takes {
        nodelay: Some("TCP_NODELAY"),
        ..Takes::DEVICE
    },
    interface: true,
    records: false,
    streams: None,
};

/// Socket option `SO_ZEROCOPY`.
#[derive(Clone)]
struct ZeroCopy;
nix::setsockopt_impl!(
    ZeroCopy,
    libc::SOL_SOCKET,
    libc::SO_ZEROCOPY,
    bool,
    nix::sys::socket::sockopt::SetBool
);

/// `SO_EE_ORIGIN_ZEROCOPY` of `linux/errqueue.h`: the error is a completion.
const ORIGIN_ZEROCOPY: u8 = 5;
/// `SO_EE_CODE_ZEROCOPY_COPIED` of `linux/errqueue.h`: the kernel made a copy.
const CODE_COPIED: u8 = 1;

/// Sends that may be without their completion before a sender looks for some. Each takes of the
/// memory that a socket may have for such things, `net.core.optmem_max`.
const MANY: u32 = 64;

/// Room for one control message of the error queue: an error and an IPv6 address.
const CONTROL_SPACE: usize = 128;

fn prepare(context: &Context) -> Result<Prepared> {
    // Looked at now, so that nobody is disturbed where it cannot be done.
    prepare_with(context, enable, |stream, context| {
        enable(&stream)?;
        let waits = Waits::of(&context.options, context.give_up);
        Ok(Box::new(ZeroCopyStream::new(stream, waits)))
    })
}

fn enable(socket: &impl AsFd) -> Result<()> {
    setsockopt(socket, ZeroCopy, &true)
        .context("this kernel's TCP has no zero-copy sends (SO_ZEROCOPY): Linux has, from 4.14 on")
}

struct ZeroCopyStream {
    stream: TcpStream,
    waits: Waits,
    /// Sends that have not been completed yet.
    pending: u32,
    completed: Completed,
}

/// Sends that the kernel needs no memory of any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Completed {
    sends: u64,
    /// Those of them of which it made a copy all the same.
    copied: u64,
}

impl ZeroCopyStream {
    fn new(stream: TcpStream, waits: Waits) -> Self {
        Self {
            stream,
            waits,
            pending: 0,
            completed: Completed::default(),
        }
    }

    /// Sends what there is room for.
    fn send_some(&mut self, data: &[u8]) -> io::Result<usize> {
        let fd = self.stream.as_raw_fd();
        let mut flags = MsgFlags::from_bits_retain(libc::MSG_ZEROCOPY) | MsgFlags::MSG_NOSIGNAL;
        flags.set(MsgFlags::MSG_DONTWAIT, self.waits.polls_to_send);
        let mut deadline = None;
        loop {
            match send(fd, data, flags).map_err(io::Error::from) {
                Ok(sent) => {
                    self.pending += 1;
                    return Ok(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && self.waits.polls_to_send =>
                {
                    // They would end every wait for room at once.
                    self.take_completions()?;
                    let now = Instant::now();
                    let left = deadline
                        .get_or_insert(now + self.waits.most)
                        .saturating_duration_since(now);
                    if left.is_zero() || wait(&self.stream, PollFlags::POLLOUT, left)?.is_empty() {
                        return Err(error);
                    }
                }
                // No room for one more completion, or no more memory may be pinned: what has been
                // sent gives some back.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) && self.pending > 0 => {
                    self.await_completion()?;
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

    /// Takes what the error queue has.
    fn take_completions(&mut self) -> io::Result<bool> {
        let mut any = false;
        while self.pending > 0 {
            let Some((sends, copied)) = completion(&self.stream)? else {
                break;
            };
            any = true;
            self.pending = self.pending.saturating_sub(sends);
            self.completed.sends += u64::from(sends);
            if copied {
                self.completed.copied += u64::from(sends);
            }
        }
        Ok(any)
    }

    /// Waits until at least one send is completed, or more if they are.
    fn await_completion(&mut self) -> io::Result<()> {
        while !self.take_completions()? {
            // A queued completion is an error to poll(2), which always waits for errors.
            let events = wait(&self.stream, PollFlags::empty(), self.waits.most)?;
            if events.is_empty() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if self.take_completions()? {
                return Ok(());
            }
            if let Some(error) = self.stream.take_error()? {
                return Err(error);
            }
            if events.contains(PollFlags::POLLHUP) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
        Ok(())
    }

    /// Waits until nothing of what was sent is needed any more.
    fn settle(&mut self) -> io::Result<()> {
        while self.pending > 0 {
            self.await_completion()?;
        }
        Ok(())
    }

    /// Breaks the connection off, so that nothing more is sent from memory that may be another's soon.
    fn break_off(&mut self) {
        // SAFETY: the storage is all zeros, and its first bytes are a whole generic socket address
        // without contents, whose family is AF_UNSPEC (0).
        let nobody = unsafe {
            SockAddr::new(
                SockAddrStorage::zeroed(),
                size_of::<libc::sockaddr>() as libc::socklen_t,
            )
        };
        // A connection that has ended already has nothing left to send.
        let _ = SockRef::from(&self.stream).connect(&nobody);
        self.pending = 0;
    }

    fn send_all(&mut self, message: &[u8]) -> io::Result<()> {
        let mut rest = message;
        while !rest.is_empty() {
            let sent = self.send_some(rest)?;
            rest = &rest[sent..];
            if self.pending > MANY {
                self.take_completions()?;
            }
        }
        Ok(())
    }
}

impl Transport for ZeroCopyStream {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let result = self.send_all(message);
        if result.is_err() {
            self.break_off();
        }
        result
    }

    fn recv(&mut self, message: &mut [u8]) -> io::Result<()> {
        // The message may be where the one before was sent from.
        if let Err(error) = self.settle() {
            self.break_off();
            return Err(error);
        }
        recv_exact(&mut self.stream, message, &self.waits)
    }

    fn packets(&self) -> io::Result<Option<Packets>> {
        packets::of_tcp(&self.stream)
    }

    fn remark(&self) -> Option<String> {
        let Completed { sends, copied } = self.completed;
        (copied > 0)
            .then(|| format!("the kernel copied {copied} of {sends} sends here all the same"))
    }
}

impl Drop for ZeroCopyStream {
    fn drop(&mut self) {
        if self.pending > 0 {
            self.break_off();
        }
    }
}

impl AsFd for ZeroCopyStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The next completion on a socket's error queue, if there is one: for how many sends it is, and
/// whether the kernel had copied them.
fn completion(stream: &TcpStream) -> io::Result<Option<(u32, bool)>> {
    let mut control = [0; CONTROL_SPACE];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    loop {
        let message = recvmsg::<()>(stream.as_raw_fd(), &mut [], Some(&mut control), flags);
        let message = match message {
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::EINTR) => continue,
            message => message?,
        };
        for control in message.cmsgs()? {
            let error = match control {
                ControlMessageOwned::Ipv4RecvErr(error, _) => error,
                ControlMessageOwned::Ipv6RecvErr(error, _) => error,
                _ => continue,
            };
            if error.ee_origin == ORIGIN_ZEROCOPY {
                // The first and the last of a run of sends, numbered from 0 on, beyond 2^32 again.
                let sends = error.ee_data.wrapping_sub(error.ee_info).wrapping_add(1);
                let copied = error.ee_code & CODE_COPIED != 0;
                return Ok(Some((sends, copied)));
            }
        }
        // Something else that was queued there, as a timestamp or a host's refusal: not ours.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::is_timeout;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;
    use std::time::Duration;

    /// A transport and what it is connected to.
    fn pair(give_up: Duration) -> (ZeroCopyStream, TcpStream) {
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
                    assert_eq!(transport.pending, 0);
                    assert!(message.iter().all(|byte| *byte == !tag));
                }
            });
            assert!(transport.completed.sends >= 5);
            // Loopback hands the pages to a receiver who may keep them for ever, so it copies.
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
        assert_eq!((transport.pending, transport.completed.sends), (0, 20_000));
    }

    #[test]
    fn a_peer_that_reads_nothing_is_given_up() {
        for polls in [false, true] {
            let (mut transport, _peer) = pair(Duration::from_millis(20));
            transport.waits.polls_to_send = polls;
            let error = transport.send(&vec![0; 64 << 20]).unwrap_err();
            assert!(is_timeout(&error), "{error}");
            assert_eq!(transport.pending, 0);
            // It has been broken off.
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
