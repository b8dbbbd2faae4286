// SPDX-License-Identifier: MIT OR Apache-2.0

//! The traffic of one-many: N clients send to one server, in rounds.
//!
//! The server begins a round with one byte to every client. Each sends its message, and gets one
//! byte back when all of it has arrived. When the last has, the next round begins. The server's
//! sockets do not block: it reads whichever has something, a piece at a time.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use nix::sys::epoll::{Epoll, EpollEvent};
use serde::{Deserialize, Serialize};

use super::exchange::{wait, watch, Link, Lost, Member, CLOCK, CONTROL, PIECE};
use super::figures::jain;
use crate::host::{is_timeout, wait_readable};
use crate::transport::streams::StreamSocket;

/// The server's byte that begins a round.
const GO: u8 = b'G';
/// The server's byte that confirms a client's message.
const DONE: u8 = b'D';

/// The most bytes that a participant sends in a round: it has them in memory.
pub const MOST_BYTES: u64 = 1 << 30;

/// Bytes that a client sends before it lets others begin: enough packets that some still wait for ESP's or TCP's
/// window when the rest is written, which then joins them and needs no announcement of its own.
const FIRST_PIECE: usize = 16 * 1024;

/// Messages are filled with a pattern of this period: a prime, so that no part that is lost or
/// comes twice leaves it intact by being a round number of bytes.
const PERIOD: u64 = 251;

/// Rounds of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// Bytes that each client sends in a round.
    pub size: u64,
    /// Number of rounds.
    pub rounds: u32,
}

impl Series {
    /// Is it one that a participant does?
    ///
    /// # Errors
    ///
    /// Its size is none.
    pub fn check(&self) -> Result<()> {
        ensure!(
            (1..=MOST_BYTES).contains(&self.size),
            "no size for rounds: {} bytes",
            self.size
        );
        Ok(())
    }
}

/// The server's view of one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// From the first client's go to the last client's last byte, nanoseconds.
    pub ns: u64,
    /// Jain's index of what had come from each client when the first one's message was complete.
    pub fairness: f64,
}

/// How a series ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All rounds were done.
    Complete,
    /// There is something to be read on the control connection, or it has ended.
    Interrupted,
}

/// The byte at `offset` of member `number`'s message.
pub(super) fn pattern(number: u16, offset: u64) -> u8 {
    ((offset + u64::from(number)) % PERIOD) as u8
}

/// The bytes that member `number` sends in a round of `size` bytes.
pub fn message(number: u16, size: u64) -> Vec<u8> {
    (0..size).map(|offset| pattern(number, offset)).collect()
}

/// A member's part: the server's if it keeps the time, or that of a client with its message.
/// `on_round` is given every round that the server has completed.
///
/// # Errors
///
/// [`Lost`] where a client is to blame or `give_up` passed without a byte from anybody; otherwise
/// what the socket or the system says, or the server said something out of turn.
pub fn gather(
    (member, message): (&mut Member, &[u8]),
    control: BorrowedFd<'_>,
    series: Series,
    give_up: Duration,
    on_round: impl FnMut(Round),
) -> Result<End> {
    match &mut member.links[..] {
        [Link {
            peer: CLOCK,
            socket,
        }] => {
            socket.set_nonblocking(false)?;
            send(socket.as_mut(), control, message, series.rounds)
        }
        links => receive(links, control, series, give_up, on_round),
    }
}

/// The client's part: sends its message in so many rounds.
///
/// # Errors
///
/// The socket's error, or the server said something out of turn.
pub fn send(
    socket: &mut dyn StreamSocket,
    control: BorrowedFd<'_>,
    message: &[u8],
    rounds: u32,
) -> Result<End> {
    for _ in 0..rounds {
        if expect(socket, control, GO)? == End::Interrupted {
            return Ok(End::Interrupted);
        }
        // Where clients share a processor, each would otherwise copy its whole message before the
        // next can begin, and the first be done before the last has begun.
        let (first, rest) = message.split_at(message.len().min(FIRST_PIECE));
        write(socket, first, "sending")?;
        if !rest.is_empty() {
            thread::yield_now();
            write(socket, rest, "sending")?;
        }
        if expect(socket, control, DONE)? == End::Interrupted {
            return Ok(End::Interrupted);
        }
    }
    Ok(End::Complete)
}

/// Waits for this byte of the server, as long as the coordinator has nothing to say.
pub(super) fn expect(
    socket: &mut dyn StreamSocket,
    control: BorrowedFd<'_>,
    byte: u8,
) -> Result<End> {
    let [data, _] = wait_readable([socket.as_fd(), control], None)?;
    if !data {
        return Ok(End::Interrupted);
    }
    let mut got = [0];
    socket
        .read_exact(&mut got)
        .map_err(|error| explain(error, "waiting for the server's byte"))?;
    ensure!(
        got[0] == byte,
        "the server sent byte {:#04x}, not {byte:#04x}",
        got[0]
    );
    Ok(End::Complete)
}

/// Writes all of `data`.
pub(super) fn write(socket: &mut dyn StreamSocket, data: &[u8], doing: &str) -> Result<()> {
    let written = socket.write_all(data);
    written.map_err(|error| explain(error, doing))
}

fn explain(error: io::Error, doing: &str) -> anyhow::Error {
    let text = match error.kind() {
        _ if is_timeout(&error) => format!("{doing}: no progress for too long, is the link up?"),
        ErrorKind::UnexpectedEof => format!("{doing}: the server ended the connection"),
        _ => doing.to_owned(),
    };
    anyhow::Error::new(error).context(text)
}

/// The server's part. The clients' sockets are non-blocking; `on_round` is given every round that
/// was completed.
///
/// # Errors
///
/// [`Lost`] where a client is to blame or `give_up` passed without a byte from anybody;
/// otherwise what the system says.
pub fn receive(
    clients: &mut [Link],
    control: BorrowedFd<'_>,
    series: Series,
    give_up: Duration,
    mut on_round: impl FnMut(Round),
) -> Result<End> {
    let epoll = watch(control, clients)?;
    let mut server = Server {
        received: vec![0; clients.len()],
        clients,
        epoll,
        buffer: vec![0; PIECE],
        size: series.size,
        give_up,
    };
    for _ in 0..series.rounds {
        match server.round()? {
            Some(round) => on_round(round),
            None => return Ok(End::Interrupted),
        }
    }
    Ok(End::Complete)
}

struct Server<'a> {
    clients: &'a mut [Link],
    epoll: Epoll,
    buffer: Vec<u8>,
    size: u64,
    give_up: Duration,
    /// Bytes of this round, by client.
    received: Vec<u64>,
}

impl Server<'_> {
    /// One round; `None` if the coordinator has something to say.
    fn round(&mut self) -> Result<Option<Round>> {
        self.received.fill(0);
        let mut unfinished = self.clients.len();
        let mut fairness = None;
        let mut events = vec![EpollEvent::empty(); self.clients.len() + 1];
        let start = Instant::now();
        for client in &mut *self.clients {
            client.tell(GO)?;
        }
        let mut elapsed = start.elapsed();
        while unfinished > 0 {
            let ready = wait(&self.epoll, &mut events, self.give_up)?;
            if ready == 0 {
                return Err(self.silence().into());
            }
            for event in &events[..ready] {
                if event.data() == CONTROL {
                    return Ok(None);
                }
                let number = event.data() as usize;
                if !self.read(number)? {
                    continue;
                }
                elapsed = start.elapsed();
                unfinished -= 1;
                if fairness.is_none() {
                    fairness = Some(jain(&self.arrived()));
                }
                self.clients[number].tell(DONE)?;
            }
        }
        Ok(Some(Round {
            ns: elapsed.as_nanos() as u64,
            fairness: fairness.context("a round without clients")?,
        }))
    }

    /// Reads a piece from a client; true if that completed its message.
    fn read(&mut self, number: usize) -> Result<bool> {
        let (client, before) = (&mut self.clients[number], self.received[number]);
        let read = client.read(&mut self.buffer)?;
        if read == 0 {
            return Ok(false);
        }
        let after = before + read as u64;
        if after > self.size {
            return Err(client.lost("more came than one message").into());
        }
        client.check(before, &self.buffer[..read])?;
        self.received[number] = after;
        Ok(after == self.size)
    }

    /// Bytes that have come from each client, with those that wait in the sockets to be read.
    fn arrived(&self) -> Vec<u64> {
        let clients = self.clients.iter();
        let waiting = clients.map(|client| unread(client.socket.as_fd()).unwrap_or(0));
        let arrived = self.received.iter().zip(waiting);
        arrived
            .map(|(received, waiting)| (received + waiting).min(self.size))
            .collect()
    }

    /// Nothing came from anybody.
    fn silence(&self) -> Lost {
        let clients = self.clients.iter().zip(&self.received);
        let silent = clients.filter(|(_, received)| **received < self.size);
        Lost {
            members: silent.map(|(client, _)| client.peer).collect(),
            reason: format!("nothing came for {} s", self.give_up.as_secs_f32()),
        }
    }
}

/// Errors after which a non-blocking socket is tried again when epoll says so.
pub(super) fn is_harmless(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Bytes that can be read from a socket without waiting.
fn unread(socket: BorrowedFd<'_>) -> Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int through its argument, which is a live one, and keeps no
    // pointer to it; the descriptor is open as long as it is borrowed.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &mut bytes) };
    if result != 0 {
        bail!(io::Error::last_os_error());
    }
    Ok(u64::try_from(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    const GIVE_UP: Duration = Duration::from_secs(10);

    /// Connected pairs: the server's ends, which do not block, and the clients'.
    fn pairs(count: u16) -> (Vec<Link>, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut servers = Vec::new();
        let mut clients = Vec::new();
        for peer in 0..count {
            clients.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let (server, _) = listener.accept().unwrap();
            server.set_nonblocking(true).unwrap();
            let socket = Box::new(server);
            servers.push(Link { peer, socket });
        }
        (servers, clients)
    }

    fn broken_by(clients: impl FnOnce(Vec<TcpStream>) + Send, give_up: Duration) -> Lost {
        let (mut sockets, ends) = pairs(2);
        let (control, _coordinator) = UnixStream::pair().unwrap();
        let series = Series {
            size: 100_000,
            rounds: 1,
        };
        thread::scope(|scope| {
            scope.spawn(|| clients(ends));
            let error = receive(&mut sockets, control.as_fd(), series, give_up, |_| ());
            // The clients wait for more until they hear that there is none.
            drop(sockets);
            error.unwrap_err().downcast().unwrap()
        })
    }

    /// A client's messages until the server ends the connection.
    fn good_client(mut socket: TcpStream, number: u16) {
        let (control, _coordinator) = UnixStream::pair().unwrap();
        let message = message(number, 100_000);
        send(&mut socket, control.as_fd(), &message, u32::MAX).unwrap_err();
    }

    #[test]
    fn rounds_are_done_by_all_and_timed() {
        let (mut sockets, clients) = pairs(3);
        let (control, _coordinator) = UnixStream::pair().unwrap();
        for size in [1, 1000, 1 << 20] {
            let series = Series { size, rounds: 4 };
            let mut rounds = Vec::new();
            thread::scope(|scope| {
                for (number, mut client) in (0..).zip(&clients) {
                    let client = client.try_clone().map_err(|_| &mut client).unwrap();
                    let control = control.as_fd();
                    scope.spawn(move || {
                        let mut client = client;
                        let end = send(&mut client, control, &message(number, size), 4).unwrap();
                        assert_eq!(end, End::Complete);
                    });
                }
                let end = receive(&mut sockets, control.as_fd(), series, GIVE_UP, |round| {
                    rounds.push(round);
                });
                assert_eq!(end.unwrap(), End::Complete);
            });
            assert_eq!(rounds.len(), 4);
            for round in rounds {
                assert!(round.ns > 0);
                assert!((1.0 / 3.0..=1.0).contains(&round.fairness), "{round:?}");
            }
        }
    }

    #[test]
    fn what_waits_unread_counts_as_arrived() {
        let (sockets, mut clients) = pairs(1);
        assert_eq!(unread(sockets[0].socket.as_fd()).unwrap(), 0);
        clients[0].write_all(b"12345").unwrap();
        wait_readable([sockets[0].socket.as_fd()], None).unwrap();
        assert_eq!(unread(sockets[0].socket.as_fd()).unwrap(), 5);
    }

    #[test]
    fn a_client_that_ends_is_named() {
        let broken = broken_by(
            |mut ends| {
                let mut go = [0];
                ends[1].read_exact(&mut go).unwrap();
                drop(ends.pop());
                good_client(ends.pop().unwrap(), 0);
            },
            GIVE_UP,
        );
        assert_eq!(broken.members, [1]);
        assert!(broken.reason.contains("ended"), "{broken}");
    }

    #[test]
    fn silent_clients_are_named() {
        let broken = broken_by(
            |mut ends| {
                let silent = ends.remove(0);
                good_client(ends.remove(0), 1);
                drop(silent);
            },
            // Enough for the other one to be served on a busy machine.
            Duration::from_secs(5),
        );
        assert_eq!(broken.members, [0]);
        assert!(broken.reason.contains("nothing came"), "{broken}");
    }

    #[test]
    fn a_wrong_byte_and_a_byte_too_many_are_noticed() {
        let with = |number: u16, length: u64| {
            move |mut ends: Vec<TcpStream>| {
                let message: Vec<u8> = (0..length).map(|at| pattern(number, at)).collect();
                // The server may have ended the connection before all of it is sent.
                let _ = ends[0].write_all(&message);
                let mut rest = Vec::new();
                let _ = ends[0].read_to_end(&mut rest);
            }
        };
        let broken = broken_by(with(1, 100_000), GIVE_UP);
        assert_eq!(broken.members, [0]);
        assert!(broken.reason.contains("not what was sent"), "{broken}");
        let broken = broken_by(with(0, 200_000), GIVE_UP);
        assert!(broken.reason.contains("more came"), "{broken}");
    }

    #[test]
    fn a_word_on_the_control_connection_interrupts_both() {
        let (mut sockets, mut clients) = pairs(1);
        let (control, mut coordinator) = UnixStream::pair().unwrap();
        coordinator.write_all(b"x").unwrap();
        let series = Series {
            size: 1,
            rounds: u32::MAX,
        };
        let end = send(&mut clients[0], control.as_fd(), b"x", 1).unwrap();
        assert_eq!(end, End::Interrupted);
        let end = receive(&mut sockets, control.as_fd(), series, GIVE_UP, |_| ()).unwrap();
        assert_eq!(end, End::Interrupted);
    }
}
