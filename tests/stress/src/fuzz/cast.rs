// SPDX-License-Identifier: GPL-2.0-only

//! Plays programs on both hosts that open, use and close connections independently, so that hostile
//! frames meet sockets in every state. Failed calls are counted by errno; an unexpected errno fails
//! the run.

use std::collections::BTreeMap;
use std::io;

use fastrand::Rng;

use crate::fuzz::puts::Target;
use crate::fuzz::world::{World, ACCEPTED, CHANNELS, CONNECTED, NEGLECTED, OPEN, RECORDS, VACANT};
use crate::fuzz::wrap::Wrap;
use guest::channel::join;
use guest::prelude::*;

/// The largest number of connection ends that all programs together have open.
const MOST: usize = 60;
/// Number of actions that the programs take between two volleys of frames.
const ACTS: usize = 24;

/// One end of a connection, with the number of actions that its program will still take.
#[derive(Debug)]
struct End {
    socket: Socket,
    /// For a channel: whether it is on host a.
    channel: Option<bool>,
    life: u32,
}

/// The programs on both hosts, and their sockets.
#[derive(Debug)]
pub struct Cast<'a> {
    world: &'a World,
    /// Listeners. That of a host's channels has a flag: whether it is on host a.
    listeners: Vec<(Socket, Option<bool>)>,
    /// The memory of host a and of host b to which channels put.
    targets: [Target; 2],
    /// Listeners whose connections are never accepted.
    _neglected: Vec<Socket>,
    ends: Vec<End>,
    /// EDP sockets. Each unconnected socket has a flag: whether it is on host a. Connected sockets
    /// have `None`.
    datagrams: Vec<(Socket, Option<bool>)>,
    buffer: Vec<u8>,
    /// Number of failed calls, by call and errno.
    pub failures: BTreeMap<(&'static str, i32), u64>,
    /// Number of connections begun.
    pub begun: u64,
    /// Number of connections accepted.
    pub accepted: u64,
    /// Number of bytes received from streams, plus the number of datagrams received.
    pub received: u64,
}

/// Returns whether a call may fail with `errno` on a host whose neighbour sends arbitrary frames.
/// For instance, a record may be larger than the peer's SYN allows, because that SYN may be forged.
fn is_expected(call: &str, errno: i32) -> bool {
    let expected: &[i32] = match call {
        "connect" => &[libc::EINPROGRESS, libc::EADDRNOTAVAIL, libc::ECONNREFUSED],
        "accept" => &[libc::EAGAIN],
        "send" | "send a record" => &[
            libc::EAGAIN,
            libc::EPIPE,
            libc::ECONNRESET,
            libc::ECONNREFUSED,
            libc::ETIMEDOUT,
        ],
        "receive" => &[
            libc::EAGAIN,
            libc::ECONNRESET,
            libc::ECONNREFUSED,
            libc::ETIMEDOUT,
            libc::ENOTCONN,
        ],
        "shutdown" => &[libc::ENOTCONN],
        "datagram" => &[libc::EAGAIN, libc::ENOBUFS],
        _ => &[],
    };
    expected.contains(&errno) || call == "send a record" && errno == libc::EMSGSIZE
}

/// Makes a non-blocking `SOCK_SEQPACKET` socket, which sends records.
fn records(host: &Host) -> Result<Socket> {
    let socket = (host.namespace).within(|| Socket::new(AF_ENET, libc::SOCK_SEQPACKET, 0))??;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl<'a> Cast<'a> {
    /// Makes listeners and datagram sockets on both hosts.
    ///
    /// # Errors
    /// If one cannot be made.
    pub fn new(world: &'a World) -> Result<Self> {
        let hosts = [(&world.a, &world.b), (&world.b, &world.a)];
        let (mut listeners, mut neglected, mut datagrams) = (Vec::new(), Vec::new(), Vec::new());
        let targets = [
            Target::new(records(&world.a)?)?,
            Target::new(records(&world.b)?)?,
        ];
        for ((host, other), target) in hosts.into_iter().zip(&targets) {
            let is_a = host.mac == world.a.mac;
            // The sockets listen on every device of their host.
            let listen = |socket: Socket, port, backlog| -> Result<Socket> {
                socket.set_nonblocking(true)?;
                socket.bind(&host.anywhere(port))?;
                socket.listen(backlog)?;
                Ok(socket)
            };
            for (socket, port, channel) in [
                (host.esp()?, ACCEPTED, None),
                (records(host)?, RECORDS, None),
                (target.listener.duplicate()?, CHANNELS, Some(is_a)),
            ] {
                listeners.push((listen(socket, port, 16)?, channel));
            }
            neglected.push(listen(host.esp()?, NEGLECTED, 4)?);
            let open = host.edp()?;
            open.bind(&host.anywhere(OPEN))?;
            datagrams.push((open, Some(is_a)));
            let connected = host.edp_bound(CONNECTED)?;
            connected.connect(&host.to(other, CONNECTED))?;
            datagrams.push((connected, None));
        }
        for (socket, _) in &datagrams {
            socket.set_nonblocking(true)?;
        }
        Ok(Self {
            world,
            listeners,
            targets,
            _neglected: neglected,
            ends: Vec::new(),
            datagrams,
            buffer: vec![0; 1 << 16],
            failures: BTreeMap::new(),
            begun: 0,
            accepted: 0,
            received: 0,
        })
    }

    fn failed(&mut self, call: &'static str, error: &io::Error) -> Result<()> {
        let errno = error.raw_os_error().unwrap_or(0);
        *self.failures.entry((call, errno)).or_default() += 1;
        ensure!(
            is_expected(call, errno),
            "{call} failed with {error}, which no frame can bring about"
        );
        Ok(())
    }

    /// Lets each program take an action.
    pub fn step(&mut self, rng: &mut Rng) -> Result<()> {
        self.accept(rng)?;
        for _ in 0..rng.u8(..8) {
            if self.ends.len() < MOST {
                self.begin(rng)?;
            }
        }
        for _ in 0..ACTS {
            if !self.ends.is_empty() {
                let index = rng.usize(..self.ends.len());
                self.act(index, rng)?;
            }
        }
        self.exchange_datagrams(rng)
    }

    fn accept(&mut self, rng: &mut Rng) -> Result<()> {
        for index in 0..self.listeners.len() {
            for _ in 0..4 {
                let (listener, channel) = &self.listeners[index];
                match listener.accept(libc::SOCK_NONBLOCK) {
                    Ok((socket, _)) => {
                        self.accepted += 1;
                        self.add(socket, *channel, rng)?;
                    }
                    Err(error) => {
                        self.failed("accept", &error)?;
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, socket: Socket, channel: Option<bool>, rng: &mut Rng) -> Result<()> {
        if rng.bool() {
            // Small buffers fill quickly.
            let size = rng.i32(1000..60_000);
            socket.set_so(libc::SO_RCVBUF, size)?;
        }
        let life = rng.u32(1..24);
        self.ends.push(End {
            socket,
            channel,
            life,
        });
        Ok(())
    }

    fn begin(&mut self, rng: &mut Rng) -> Result<()> {
        let from_a = rng.bool();
        let host = if from_a { &self.world.a } else { &self.world.b };
        let wrap = Wrap::any(rng);
        let to = |port| self.world.by(wrap, from_a, port);
        let to = match rng.u8(..18) {
            // The client may be another kind of socket than the listener.
            14.. => to(CHANNELS),
            10.. => to(RECORDS),
            0 => to(VACANT),
            1 => to(NEGLECTED),
            2 => host.to_nobody(ACCEPTED),
            _ => to(ACCEPTED),
        };
        let kind = match rng.u8(..8) {
            0 => [ACCEPTED, RECORDS, CHANNELS][rng.usize(..3)],
            _ => to.port,
        };
        let socket = match kind {
            RECORDS | CHANNELS => records(host)?,
            _ => host.esp()?,
        };
        let channel = (kind == CHANNELS).then_some(from_a);
        if channel.is_some() {
            join(&socket, &self.targets[usize::from(!from_a)].listener)?;
        }
        socket.set_nonblocking(true)?;
        self.begun += 1;
        if let Err(error) = socket.connect(&to) {
            self.failed("connect", &error)?;
        }
        self.add(socket, channel, rng)
    }

    /// Lets one program act on its connection, or close it.
    fn act(&mut self, index: usize, rng: &mut Rng) -> Result<()> {
        let end = &mut self.ends[index];
        end.life -= 1;
        if end.life == 0 {
            let end = self.ends.swap_remove(index);
            if rng.u8(..4) == 0 {
                end.socket.set_linger(Some(0))?;
            }
            return Ok(());
        }
        let socket = &end.socket;
        let (call, result) = match rng.u8(..16) {
            0..=4 => {
                let (head, most) = match end.channel {
                    // A channel on host a puts to host b.
                    Some(on_a) => self.targets[usize::from(on_a)].message(rng),
                    None => (Vec::new(), usize::MAX),
                };
                let length = [rng.usize(1..100), rng.usize(1..30_000)][rng.usize(..2)].min(most);
                // Bytes that follow a message would not begin with a header.
                let often = if head.is_empty() { 4 } else { 32 };
                let more = if rng.u8(..often) == 0 {
                    libc::MSG_MORE
                } else {
                    0
                };
                let pieces = [Piece::Good(&head), Piece::Good(&self.buffer[..length])];
                let sent = socket.send_message(&pieces, libc::MSG_NOSIGNAL | more, &[]);
                let call = match socket.so(libc::SO_TYPE)? {
                    libc::SOCK_SEQPACKET => "send a record",
                    _ => "send",
                };
                (call, sent.map(|_| 0))
            }
            5..=11 => {
                let length = [rng.usize(1..200), self.buffer.len()][rng.usize(..2)];
                let peek = if rng.u8(..4) == 0 { libc::MSG_PEEK } else { 0 };
                let got = socket.receive(&mut self.buffer[..length], peek);
                ("receive", got)
            }
            12 => {
                let how = [libc::SHUT_WR, libc::SHUT_RD, libc::SHUT_RDWR][rng.usize(..3)];
                ("shutdown", socket.shutdown(how).map(|()| 0))
            }
            // The program takes no action this time, and its peer has to wait.
            _ => return Ok(()),
        };
        match result {
            Ok(got) => self.received += got as u64,
            Err(error) => self.failed(call, &error)?,
        }
        Ok(())
    }

    fn exchange_datagrams(&mut self, rng: &mut Rng) -> Result<()> {
        for index in 0..self.datagrams.len() {
            let (socket, from_a) = &self.datagrams[index];
            let wrap = Wrap::any(rng);
            let by = from_a
                .filter(|_| wrap.takes_datagrams())
                .map(|from_a| self.world.by(wrap, from_a, OPEN));
            // Leave room for the headers around the datagram.
            let most = if wrap == Wrap::Bare { 8994 } else { 8800 };
            let length = [rng.usize(..100), rng.usize(..most)][rng.usize(..2)];
            let bytes = &self.buffer[..length];
            let sent = match (by, from_a) {
                (Some(to), _) => socket.send_to(bytes, 0, &to),
                (None, None) => socket.send(bytes, 0),
                // The device that adds an MPLS label cannot send datagrams.
                (None, Some(_)) => Ok(0),
            };
            if let Err(error) = sent {
                self.failed("datagram", &error)?;
            }
            for _ in 0..rng.usize(..64) {
                let (socket, _) = &self.datagrams[index];
                match socket.receive_from(&mut self.buffer, 0) {
                    Ok((length, name)) => {
                        ensure!(length <= 8994, "a datagram of {length} bytes came");
                        let from = guest::address::Address::from_bytes(&name)?;
                        ensure!(from.mac[0] & 1 == 0, "a datagram from the group {from:?}");
                        self.received += 1;
                    }
                    Err(error) => {
                        self.failed("datagram", &error)?;
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Resets every connection and closes all sockets.
    ///
    /// # Errors
    /// If a call fails, or bytes were put to wrong memory.
    pub fn leave(self) -> Result<()> {
        for target in &self.targets {
            target.check()?;
        }
        for end in &self.ends {
            end.socket.set_linger(Some(0))?;
        }
        Ok(())
    }
}
