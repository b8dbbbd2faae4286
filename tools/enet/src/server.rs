// SPDX-License-Identifier: MIT OR Apache-2.0

//! Serves HTTP to many clients at a time, in one thread.
//!
//! No client can stop or exhaust the server. The number of clients is bounded, and so are the
//! memory and the time for each client. One call of `poll` waits for all of them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use crate::http::{self, Answer, Head};
use crate::output;

/// Maximum number of clients at a time; the others wait in the kernel to be accepted.
const MOST: usize = 128;

/// Maximum time per client.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum time per client while all places are taken and other clients may wait. A scraper that
/// waits ten seconds gets a place even behind thousands of connections that send nothing.
const HURRY: Duration = Duration::from_millis(100);

/// Serves clients of `listeners`. `metrics` produces the response for `/metrics`.
///
/// # Errors
/// If the kernel refuses to wait for clients. Errors of clients end only their own connections.
pub fn serve(listeners: &[TcpListener], metrics: impl Fn() -> Answer) -> io::Result<Infallible> {
    for listener in listeners {
        listener.set_nonblocking(true)?;
    }
    let mut clients = Clients::default();
    let mut first = 0;
    loop {
        let ready = clients.wait(listeners)?;
        clients.proceed(&ready.clients, &metrics);
        // Each round begins with another listener, so that none takes all places.
        first = (first + 1) % listeners.len().max(1);
        for at in (first..listeners.len()).chain(0..first) {
            if ready.listeners[at] {
                clients.accept(&listeners[at]);
            }
        }
        clients.expire();
    }
}

/// Whether `poll` reports an event, for each client and for each listener.
struct Ready {
    clients: Vec<bool>,
    listeners: Vec<bool>,
}

/// The connected clients, the oldest first.
#[derive(Default)]
struct Clients(VecDeque<Client>);

impl Clients {
    fn is_full(&self) -> bool {
        self.0.len() >= MOST
    }

    /// Returns the time at which the oldest client must end.
    fn end(&self) -> Option<Instant> {
        let patience = if self.is_full() { HURRY } else { PATIENCE };
        self.0.front().map(|oldest| oldest.since + patience)
    }

    /// Waits until a client or a listener is ready, or the oldest client must end.
    fn wait(&self, listeners: &[TcpListener]) -> io::Result<Ready> {
        let timeout = self.end().map_or(PollTimeout::NONE, |end| {
            // The time is rounded up. Otherwise the loop would poll without pause during the last
            // fraction of a millisecond.
            let left = end.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            left.try_into().unwrap_or(PollTimeout::MAX)
        });
        let clients = self
            .0
            .iter()
            .map(|client| PollFd::new(client.stream.as_fd(), client.events()));
        let accepting = if self.is_full() {
            PollFlags::empty()
        } else {
            PollFlags::POLLIN
        };
        let listening = listeners
            .iter()
            .map(|listener| PollFd::new(listener.as_fd(), accepting));
        let mut entries: Vec<_> = clients.chain(listening).collect();
        match poll(&mut entries, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut clients: Vec<_> = entries
            .iter()
            .map(|entry| entry.any().unwrap_or(true))
            .collect();
        let listeners = clients.split_off(self.0.len());
        Ok(Ready { clients, listeners })
    }

    /// Serves the clients that are `ready`, and removes those that have ended.
    fn proceed(&mut self, ready: &[bool], metrics: impl Fn() -> Answer) {
        // Clients that ask at the same time share an answer: 100 of them cost as much as one.
        let mut shared = None;
        let mut metrics = || shared.get_or_insert_with(&metrics).clone();
        let mut ready = ready.iter();
        self.0.retain_mut(|client| {
            let is_ready = *ready.next().unwrap_or(&false);
            !is_ready
                || client
                    .proceed(&mut metrics)
                    .is_ok_and(|step| step == Step::Wait)
        });
    }

    fn accept(&mut self, listener: &TcpListener) {
        while !self.is_full() {
            match listener.accept() {
                Ok((stream, _)) => self.0.extend(Client::new(stream)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The client has closed the connection.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    output::message(format_args!("accepting a client: {error}"));
                    // The next `accept` would fail at once, too, for example for lack of
                    // descriptors. So the oldest client is closed. If there is no client, the wait
                    // prevents a busy loop.
                    if self.0.pop_front().is_none() {
                        thread::sleep(Duration::from_secs(1));
                    }
                    return;
                }
            }
        }
    }

    /// Removes the clients whose time has passed.
    fn expire(&mut self) {
        let now = Instant::now();
        while self.end().is_some_and(|end| end <= now) {
            self.0.pop_front();
        }
    }
}

struct Client {
    stream: TcpStream,
    since: Instant,
    state: State,
}

enum State {
    /// The head of the request is read.
    Head(Head),
    /// The answer is being written. The number counts the bytes already written.
    Answer(Vec<u8>, usize),
    /// The answer is written. Everything that the client sends until it closes is dropped. If the
    /// server closed the connection with unread bytes, the kernel would reset it, and the client
    /// might lose the answer.
    Rest,
}

/// The next step of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Wait,
    End,
}

impl Client {
    fn new(stream: TcpStream) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        Some(Self {
            stream,
            since: Instant::now(),
            state: State::Head(Head::default()),
        })
    }

    fn events(&self) -> PollFlags {
        match self.state {
            State::Head(_) | State::Rest => PollFlags::POLLIN,
            State::Answer(..) => PollFlags::POLLOUT,
        }
    }

    /// Reads or writes until a call would block, or the client has ended.
    fn proceed(&mut self, mut metrics: impl FnMut() -> Answer) -> io::Result<Step> {
        match self.try_proceed(&mut metrics) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Step::Wait),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Step::Wait),
            outcome => outcome,
        }
    }

    fn try_proceed(&mut self, metrics: &mut dyn FnMut() -> Answer) -> io::Result<Step> {
        let mut piece = [0; 4096];
        loop {
            match &mut self.state {
                State::Head(head) => {
                    let length = self.stream.read(&mut piece)?;
                    if length == 0 && head.is_empty() {
                        // The client has closed without a request, for example because it only
                        // tested whether the port is open.
                        return Ok(Step::End);
                    }
                    if let Some(text) = head.add(&piece[..length]) {
                        self.state =
                            State::Answer(http::respond(&text, &mut *metrics).into_bytes(), 0);
                    }
                }
                State::Answer(bytes, written) => {
                    *written += self.stream.write(&bytes[*written..])?;
                    if *written == bytes.len() {
                        self.stream.shutdown(Shutdown::Write)?;
                        self.state = State::Rest;
                    }
                }
                State::Rest => {
                    // One piece at a time: a client that sends without end must not keep the
                    // thread.
                    let length = self.stream.read(&mut piece)?;
                    return Ok(if length == 0 { Step::End } else { Step::Wait });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
