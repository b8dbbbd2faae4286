// SPDX-License-Identifier: MIT OR Apache-2.0

//! Channels: connections by which the kernel of a peer writes puts into the memory of its process.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use sockaddr_en::{Address, Channel, Domain, EspStream, MacAddr, Message, Place};
use socket2::Socket;

use crate::link::Payload;
use crate::wire::{Hello, Purpose, Target, HELLO};

/// Number of rounds without a completed put after which a channel is checked for its end.
const CHECKED: u32 = 64;

/// Listens for channels of `domain` on an interface, on a port that the kernel chooses.
///
/// # Errors
///
/// The errors of the socket calls.
pub fn listen(domain: &Domain, interface: u32, backlog: u16) -> io::Result<ChannelListener> {
    let socket = socket(domain)?;
    socket.bind(&Address::new(MacAddr::UNSPECIFIED, interface, 0).into())?;
    socket.listen(backlog.into())?;
    let port = Address::try_from(&socket.local_addr()?)?.port;
    Ok(ChannelListener { socket, port })
}

/// Starts to connect a channel of `domain`. It breaks if the peer does not answer for `timeout`.
///
/// # Errors
///
/// The immediate errors of `connect(2)`.
pub fn connect<P>(
    domain: &Domain,
    address: Address,
    hello: &Hello,
    timeout: Duration,
) -> io::Result<Outgoing<P>> {
    let socket = socket(domain)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
        _ => {}
    }
    // The option is the same for streams and for channels.
    let stream = EspStream::from(OwnedFd::from(socket));
    stream.set_user_timeout(Some(timeout))?;
    Ok(Outgoing {
        channel: Channel::from(OwnedFd::from(stream)),
        hello: Some((*hello, Instant::now() + timeout)),
        waiting: VecDeque::new(),
        sent: VecDeque::new(),
        bytes: 0,
        idle: 0,
    })
}

/// Opens a socket of `domain` that never blocks.
fn socket(domain: &Domain) -> io::Result<Socket> {
    let socket = Socket::from(domain.open()?);
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A socket that accepts channels.
#[derive(Debug)]
pub struct ChannelListener {
    socket: Socket,
    port: u16,
}

impl ChannelListener {
    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the next channel of the accept queue, if any.
    pub fn accept(&self) -> Option<Incoming> {
        // A channel that ended in the queue is skipped when its hello cannot be read. After other
        // errors the queue is read again in the next round.
        let (socket, _) = self.socket.accept().ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Incoming {
            channel: Channel::from(OwnedFd::from(socket)),
            hello: None,
        })
    }
}

/// A channel that a peer has opened. While the value lives, the kernel writes what the peer puts.
#[derive(Debug)]
pub struct Incoming {
    channel: Channel,
    /// The peer's hello, if it has arrived.
    pub hello: Option<Hello>,
}

impl Incoming {
    /// Reads the peer's hello. Returns false if the peer is no process of the job, or has gone
    /// before its hello came.
    pub fn greet(&mut self, token: u64) -> bool {
        if self.hello.is_some() {
            return true;
        }
        let mut bytes = [0; HELLO];
        match self.channel.recv(&mut bytes) {
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            Ok(Some(Message::Sent { length: HELLO, .. })) => {
                let hello = Hello::decode(&bytes).ok();
                self.hello =
                    hello.filter(|hello| (hello.token, hello.purpose) == (token, Purpose::Puts));
                self.hello.is_some()
            }
            Ok(_) => false,
        }
    }
}

/// A put by a channel.
#[derive(Debug)]
pub struct Put<P> {
    /// The key of the peer's region.
    pub region: u64,
    /// The same memory as the peer's process knows it.
    pub target: Target,
    /// The data.
    pub payload: P,
    /// Number of bytes that were sent.
    written: usize,
    /// The channel's count of sent bytes at the end of the put.
    end: u64,
}

impl<P: Payload> Put<P> {
    /// Returns a put of the data of `payload`.
    pub fn new(region: u64, target: Target, payload: P) -> Self {
        Self {
            region,
            target,
            payload,
            written: 0,
            end: 0,
        }
    }

    /// Returns the next bytes to send, at most [`Channel::MOST`]; `None` after the last.
    fn next(&self) -> Option<&[u8]> {
        let mut skip = self.written;
        for part in self.payload.parts() {
            if skip < part.len() {
                let rest = &part[skip..];
                return Some(&rest[..rest.len().min(Channel::MOST)]);
            }
            skip -= part.len();
        }
        None
    }
}

/// A channel that this process has opened. Its puts complete in order.
#[derive(Debug)]
pub struct Outgoing<P> {
    channel: Channel,
    /// The hello and the time limit, until the channel is connected.
    hello: Option<(Hello, Instant)>,
    /// The puts that are not sent as a whole.
    waiting: VecDeque<Put<P>>,
    /// The puts that were sent and are not acknowledged.
    sent: VecDeque<Put<P>>,
    /// Number of bytes that were sent, headers included.
    bytes: u64,
    /// Number of rounds since a put completed.
    idle: u32,
}

impl<P: Payload> Outgoing<P> {
    /// Queues a put.
    pub fn push(&mut self, put: Put<P>) {
        self.waiting.push_back(put);
    }

    /// Returns whether there are puts that are not complete.
    pub fn has_puts(&self) -> bool {
        !self.waiting.is_empty() || !self.sent.is_empty()
    }

    /// Returns and removes the puts that are not complete, in order.
    pub fn abandon(&mut self) -> Vec<Put<P>> {
        self.sent.drain(..).chain(self.waiting.drain(..)).collect()
    }

    /// Sends as much as the kernel accepts, and moves the messages of complete puts to `done`.
    ///
    /// # Errors
    ///
    /// If the channel is broken.
    pub fn advance(&mut self, done: &mut Vec<P>) -> io::Result<()> {
        if self.hello.is_some() && !self.connect()? {
            return Ok(());
        }
        while let Some(put) = self.waiting.front_mut() {
            let Some(bytes) = put.next() else {
                put.end = self.bytes;
                self.sent.extend(self.waiting.pop_front());
                continue;
            };
            let place = Place {
                key: put.region,
                offset: put.target.offset + put.written as u64,
            };
            let count = bytes.len();
            match self.channel.put(place, bytes) {
                Ok(()) => {
                    put.written += count;
                    self.bytes += (Channel::HEADER + count) as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.complete(done)
    }

    /// Moves the messages of the puts that the peer's kernel has acknowledged to `done`.
    fn complete(&mut self, done: &mut Vec<P>) -> io::Result<()> {
        if self.sent.is_empty() {
            return Ok(());
        }
        let acknowledged = self
            .bytes
            .saturating_sub(self.channel.unacknowledged()? as u64);
        let before = done.len();
        let complete = |put: &&Put<P>| put.end <= acknowledged;
        let count = self.sent.iter().take_while(complete).count();
        done.extend(self.sent.drain(..count).map(|put| put.payload));
        self.idle += 1;
        if done.len() > before {
            self.idle = 0;
        } else if self.idle % CHECKED == 0 {
            // A channel that has failed keeps its number of unacknowledged bytes.
            self.readiness()?;
        }
        Ok(())
    }

    /// Finishes the connection. Returns whether it is established.
    fn connect(&mut self) -> io::Result<bool> {
        let Some((hello, end)) = self.hello else {
            return Ok(true);
        };
        if !self.readiness()? {
            return match Instant::now() > end {
                true => Err(ErrorKind::TimedOut.into()),
                false => Ok(false),
            };
        }
        self.channel.send(0, Place::default(), &hello.encode())?;
        self.bytes += (Channel::HEADER + HELLO) as u64;
        self.hello = None;
        Ok(true)
    }

    /// Returns whether there is room for output.
    fn readiness(&self) -> io::Result<bool> {
        let fd: BorrowedFd<'_> = self.channel.as_fd();
        let mut set = [PollFd::new(fd, PollFlags::POLLOUT)];
        match poll(&mut set, PollTimeout::ZERO) {
            Err(nix::errno::Errno::EINTR) => return Ok(false),
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let found = set[0].revents().unwrap_or(PollFlags::empty());
        if found.intersects(PollFlags::POLLERR | PollFlags::POLLHUP) {
            let error = self.channel.take_error()?;
            return Err(error.unwrap_or_else(|| ErrorKind::ConnectionReset.into()));
        }
        Ok(found.contains(PollFlags::POLLOUT))
    }
}
