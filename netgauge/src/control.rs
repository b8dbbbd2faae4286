// SPDX-License-Identifier: MIT OR Apache-2.0

//! The control connection, on which two netgauges agree on what to measure.
//!
//! It is a TCP connection with one JSON object per line:
//!
//! ```text
//! client                                  server
//! Hello                         ->
//!                               <-        Hello
//! Open (transport, pattern,     ->
//!       client's endpoint)      <-        Endpoint   (the socket is bound and listens)
//!                               <-        Opened     (both sockets are connected)
//! Step (size, rounds)           ->
//!                               <-        Ready      (now the data goes over the transport)
//!                               <-        Endpoint   (pattern setup: a further listener)
//!   ... more steps ...
//! Close                         ->
//!                               <-        Closed
//!   ... more transports ...
//! ```
//!
//! Instead of any answer the server may send `Failed`; the client's `Close` follows as usual.
//!
//! In patterns between more than two hosts, a coordinator has such a connection to each
//! participant, and sends `Order` instead of `Open`, `Step` and `Close`; see
//! [`crate::group::net::orders`]. The connection to a participant that the coordinator started
//! itself is a pair of local sockets, or ssh's pipes.

use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use serde::{Deserialize, Serialize};
use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;

use crate::group::net::orders::{Answer, Order};
use crate::host::{is_timeout, wait_readable};
use crate::machine::Machine;
use crate::transport::SocketOptions;
use crate::wire::Endpoint;

/// Version of the messages below; both sides need the same version.
pub const VERSION: u32 = 8;

/// If no packet arrives from the peer's host for this time, the host counts as dead.
const HOST_TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two attempts to reach a server that is not up yet.
const RETRY: Duration = Duration::from_millis(100);

/// Length of the longest line that is accepted, in bytes. It is far longer than any message.
const LINE_LIMIT: u64 = 64 * 1024;

/// A series of messages that all have the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The size of a message, or in a bulk transfer the size of the whole stream, in bytes.
    pub size: u64,
    /// In a bulk transfer, the number of bytes in a message. In pattern logp, the number of
    /// messages in a train.
    pub chunk: u32,
    /// Number of messages or transfers, not counting repetitions after a loss.
    pub rounds: u32,
    /// The value of each byte in the messages of a bulk transfer or a flood.
    pub tag: u8,
}

impl Step {
    /// Returns a step of `rounds` messages of `size` bytes.
    pub fn of(size: u64, rounds: u32) -> Self {
        Self {
            size,
            chunk: 0,
            rounds,
            tag: 0,
        }
    }
}

/// The transport and the pattern that a client asks the server to open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// Transport's name.
    pub transport: String,
    /// Pattern's name.
    pub pattern: String,
    /// Ethernet type for raw packets, host order.
    pub ethertype: u16,
    /// The address of the client's socket.
    pub endpoint: Endpoint,
    /// Options that the server sets on its socket.
    #[serde(default, skip_serializing_if = "SocketOptions::is_default")]
    pub options: SocketOptions,
}

/// A message on the control connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// From either side: the first message.
    Hello {
        /// The sender's [`VERSION`].
        version: u32,
        /// The facts about the sender's host, if the sender is a server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        machine: Option<Box<Machine>>,
    },
    /// Client: open a transport and get ready for a pattern.
    Open(Open),
    /// Server: the address of its socket, which is ready.
    Endpoint(Endpoint),
    /// Server: the transport is connected.
    Opened,
    /// Client: a series of messages comes next.
    Step(Step),
    /// Server: ready for the messages.
    Ready,
    /// Client: done with this transport.
    Close,
    /// Server: the transport is closed.
    Closed,
    /// Coordinator: the participant's next order.
    Order(Order),
    /// Participant: the result of an order.
    Answer(Answer),
    /// Server or participant: the request failed, with this error.
    Failed(String),
}

/// The error for a peer that does not answer, or that has ended the connection.
#[derive(Debug, Error)]
#[error("peer {peer} is gone: {reason}")]
pub struct PeerGone {
    /// The peer's name.
    pub peer: String,
    /// The reason why the peer counts as gone, as text for the user.
    pub reason: String,
}

/// One end of the control connection. The connection to a server is TCP. The connection to a
/// process that the coordinator has started is a pair of sockets on the same host, or the pipes of
/// ssh to another host.
#[derive(Debug)]
pub struct Control {
    input: BufReader<File>,
    /// The descriptor to write to. It is the same socket as `input`, or the second of two pipes.
    output: File,
    is_socket: bool,
    name: String,
    /// This side's address and the peer's, if the connection has addresses.
    addresses: Option<(SocketAddr, SocketAddr)>,
    local: Option<SocketAddr>,
    peer: Option<Machine>,
}

impl Control {
    /// Wraps a TCP connection. `answer_timeout` limits the wait for each message. Keepalive probes
    /// and `TCP_USER_TIMEOUT` notice the death of the peer's host even without this limit.
    ///
    /// # Errors
    ///
    /// Fails if the connection has ended already, or if a socket option cannot be set.
    pub fn new(stream: TcpStream, answer_timeout: Option<Duration>) -> Result<Self> {
        let (local, peer) = (
            canonical(stream.local_addr()?),
            canonical(stream.peer_addr()?),
        );
        stream.set_nodelay(true)?;
        stream.set_read_timeout(answer_timeout)?;
        stream.set_write_timeout(Some(HOST_TIMEOUT))?;
        let socket = SockRef::from(&stream);
        let keepalive = TcpKeepalive::new()
            .with_time(HOST_TIMEOUT / 2)
            .with_interval(HOST_TIMEOUT / 10)
            .with_retries(5);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(HOST_TIMEOUT))?;
        Ok(Self {
            addresses: Some((local, peer)),
            local: Some(local),
            ..Self::of_socket(stream.into(), &peer.to_string())?
        })
    }

    /// Wraps one socket of a local pair. The other socket belongs to the process called `name`.
    ///
    /// # Errors
    ///
    /// Fails if a socket option cannot be set.
    pub fn local_pair(
        stream: UnixStream,
        name: &str,
        answer_timeout: Option<Duration>,
    ) -> Result<Self> {
        stream.set_read_timeout(answer_timeout)?;
        stream.set_write_timeout(Some(HOST_TIMEOUT))?;
        Self::of_socket(stream.into(), name)
    }

    fn of_socket(socket: OwnedFd, name: &str) -> Result<Self> {
        let output = File::from(socket.try_clone()?);
        Ok(Self {
            is_socket: true,
            ..Self::over(File::from(socket), output, name)
        })
    }

    /// Wraps two pipes of ssh. They lead to the process called `name`, which has started this
    /// process from another host.
    pub fn pipes(input: File, output: File, name: &str) -> Self {
        // SSH_CONNECTION is "CLIENT PORT SERVER PORT", and this host is the server.
        let local = env::var("SSH_CONNECTION").ok().and_then(|connection| {
            let local = connection.split_whitespace().nth(2)?;
            Some(SocketAddr::new(local.parse().ok()?, 0))
        });
        Self {
            local,
            ..Self::over(input, output, name)
        }
    }

    fn over(input: File, output: File, name: &str) -> Self {
        Self {
            input: BufReader::new(input),
            output,
            is_socket: false,
            name: name.to_owned(),
            addresses: None,
            local: None,
            peer: None,
        }
    }

    /// Returns this host's address on the connection, if it is known.
    pub fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    /// Returns the peer's name: its address, or the name given to the constructor.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends this side's greeting; [`greeted`](Self::greeted) waits for the server's greeting.
    ///
    /// # Errors
    ///
    /// Fails if the peer is gone.
    pub fn hello(&mut self) -> Result<()> {
        self.send(&Message::Hello {
            version: VERSION,
            machine: None,
        })
    }

    /// Waits for the server's greeting.
    ///
    /// # Errors
    ///
    /// Fails if the peer is gone, or if it speaks another version of the control protocol.
    pub fn greeted(&mut self) -> Result<()> {
        match self.answer()? {
            Message::Hello {
                version: VERSION,
                machine,
            } => self.peer = machine.map(|machine| *machine),
            Message::Hello { version, .. } => bail!(
                "{} speaks version {version} of the control protocol, this netgauge {VERSION}: \
                 run the same netgauge everywhere",
                self.name
            ),
            other => bail!("{} greeted with {other:?}", self.name),
        }
        Ok(())
    }

    /// Returns the facts about the peer's host, if the peer's greeting had them.
    pub fn peer_machine(&self) -> Option<&Machine> {
        self.peer.as_ref()
    }

    /// Returns this side's address and the peer's address.
    ///
    /// # Errors
    ///
    /// Fails if the connection is not a TCP connection, because only TCP gives both addresses.
    pub fn addresses(&self) -> Result<(SocketAddr, SocketAddr)> {
        let addresses = self.addresses;
        addresses.context("the control connection has no addresses to go by")
    }

    /// Limits the wait for each message from now on; `None` removes the limit.
    ///
    /// # Errors
    ///
    /// Fails if the socket option cannot be set.
    pub fn set_answer_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        // A read from a pipe needs no limit, because the read ends when ssh ends.
        if self.is_socket {
            SockRef::from(&self.output).set_read_timeout(timeout)?;
        }
        Ok(())
    }

    /// Shuts down this side's sending direction, so that the peer does not wait for more messages.
    pub fn end(&self) {
        // Pipes need no shutdown, because they close when the process ends. The error is ignored
        // because it only says that the connection is already broken.
        if self.is_socket {
            let _ = SockRef::from(&self.output).shutdown(Shutdown::Write);
        }
    }

    /// Sends one message.
    ///
    /// # Errors
    ///
    /// Fails with [`PeerGone`] if the peer is gone.
    pub fn send(&mut self, message: &Message) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.output
            .write_all(&line)
            .map_err(|error| self.gone(&error).into())
    }

    /// Waits for one message. Returns `None` if the peer has ended the connection between two
    /// messages.
    ///
    /// # Errors
    ///
    /// Fails with [`PeerGone`] if the peer is gone. Also fails if the line is not a message.
    pub fn receive_or_end(&mut self) -> Result<Option<Message>> {
        let mut line = Vec::new();
        let read = (&mut self.input)
            .take(LINE_LIMIT)
            .read_until(b'\n', &mut line);
        match read {
            Err(error) => Err(self.gone(&error).into()),
            Ok(0) => Ok(None),
            Ok(_) if line.last() != Some(&b'\n') && (line.len() as u64) < LINE_LIMIT => {
                Err(self.gone(&io::ErrorKind::UnexpectedEof.into()).into())
            }
            Ok(_) => serde_json::from_slice(&line).map(Some).with_context(|| {
                format!("{} does not speak netgauge's control protocol", self.name)
            }),
        }
    }

    /// Waits for one message.
    ///
    /// # Errors
    ///
    /// Fails if the line is not a message. Fails with [`PeerGone`] if the peer is gone, or if it
    /// has ended the connection between two messages.
    pub fn receive(&mut self) -> Result<Message> {
        match self.receive_or_end()? {
            Some(message) => Ok(message),
            None => Err(self.gone(&io::ErrorKind::UnexpectedEof.into()).into()),
        }
    }

    /// Waits for one answer. The answer `Failed` becomes an error.
    ///
    /// # Errors
    ///
    /// Fails like [`receive`](Self::receive), or with the text of `Failed`.
    pub fn answer(&mut self) -> Result<Message> {
        match self.receive()? {
            Message::Failed(text) => bail!("peer {}: {text}", self.host()),
            message => Ok(message),
        }
    }

    /// Returns whether a message, or the end of the connection, can be read within `timeout`.
    ///
    /// # Errors
    ///
    /// Fails with the error of `poll(2)`.
    pub fn is_ready(&self, timeout: Duration) -> io::Result<bool> {
        if self.has_read_ahead() {
            return Ok(true);
        }
        let [ready] = wait_readable([self.as_fd()], Some(timeout))?;
        Ok(ready)
    }

    /// Returns whether `input` already holds data from the descriptor. `poll(2)` on the descriptor
    /// does not report such data.
    pub fn has_read_ahead(&self) -> bool {
        !self.input.buffer().is_empty()
    }

    /// Returns the peer's name without its port, for error messages.
    fn host(&self) -> String {
        match self.addresses {
            Some((_, peer)) => peer.ip().to_string(),
            None => self.name.clone(),
        }
    }

    fn gone(&self, error: &io::Error) -> PeerGone {
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof => "it ended the connection".to_owned(),
            _ if is_timeout(error) => "it does not answer".to_owned(),
            _ => error.to_string(),
        };
        PeerGone {
            peer: self.name.clone(),
            reason,
        }
    }
}

as_fd!([] Control, input.get_ref());

/// Connects to the server at `port` of `host` and greets it. While the server is not up yet,
/// retries until `wait` has passed. Waits at most `give_up` for a connection to each address, and
/// for the server's greeting.
///
/// # Errors
///
/// Fails if there is no server, if it serves another client, or if it has another version of the
/// control protocol.
pub fn reach(host: &str, port: u16, wait: Duration, give_up: Duration) -> Result<Control> {
    let addresses = (host, port).to_socket_addrs();
    let addresses: Vec<_> = addresses
        .with_context(|| format!("no IP address is known for {host}"))?
        .collect();
    let deadline = Instant::now() + wait;
    let stream = loop {
        match try_connect(&addresses, give_up) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() + RETRY < deadline && may_come_up(&error) => {
                thread::sleep(RETRY);
            }
            Err(error) if may_come_up(&error) => {
                return Err(error).with_context(|| {
                    format!("no netgauge at {host} port {port}: start `netgauge --server` there")
                })
            }
            Err(error) => {
                return Err(error).with_context(|| format!("connecting to {host} port {port}"))
            }
        }
    };
    // A server needs up to `give_up` to notice that its transport does not open, so the client
    // waits longer.
    let mut control = Control::new(stream, Some(give_up * 3))?;
    control.hello()?;
    ensure!(
        control.is_ready(give_up)?,
        "netgauge at {host} port {port} does not answer: it may be serving somebody else, and \
         serves one at a time"
    );
    control.greeted()?;
    Ok(control)
}

fn try_connect(addresses: &[SocketAddr], timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns whether the cause of `error` may go away when the other host comes up.
fn may_come_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::TimedOut
    )
}

/// Converts an IPv4-mapped IPv6 address, as a dual-stack socket shows it, to the IPv4 address.
/// Returns other addresses unchanged.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        // Rebuilds only mapped addresses, because a rebuilt address loses its flow label and its
        // scope.
        ip if ip != address.ip() => SocketAddr::new(ip, address.port()),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Control, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        (
            Control::new(stream, Some(Duration::from_secs(10))).unwrap(),
            other,
        )
    }

    #[test]
    fn messages_are_one_json_line_each() {
        let (mut one, other) = pair();
        let mut two = Control::new(other, None).unwrap();
        let step = Step {
            size: 1,
            chunk: 2,
            rounds: 3,
            tag: 4,
        };
        for message in [
            Message::Hello {
                version: VERSION,
                machine: None,
            },
            Message::Hello {
                version: VERSION,
                machine: Some(Box::new(Machine::here(None))),
            },
            Message::Step(step),
            Message::Close,
        ] {
            one.send(&message).unwrap();
            assert!(two.is_ready(Duration::from_secs(10)).unwrap());
            assert_eq!(two.receive().unwrap(), message);
        }
        assert!(!two.is_ready(Duration::ZERO).unwrap());
        assert_eq!(
            serde_json::to_string(&Message::Step(step)).unwrap(),
            r#"{"Step":{"size":1,"chunk":2,"rounds":3,"tag":4}}"#
        );
    }

    #[test]
    fn a_greeting_may_say_less_or_more() {
        let (mut one, mut other) = pair();
        other
            .write_all(
                b"{\"Hello\":{\"version\":2}}\n{\"Hello\":{\"version\":2,\"mood\":\"good\"}}\n",
            )
            .unwrap();
        for _ in 0..2 {
            let machine = None;
            let expected = Message::Hello {
                version: 2,
                machine,
            };
            assert_eq!(one.receive().unwrap(), expected);
        }
    }

    #[test]
    fn messages_read_ahead_count_as_ready() {
        let (mut one, mut other) = pair();
        other.write_all(b"\"Ready\"\n\"Closed\"\n").unwrap();
        assert_eq!(one.receive().unwrap(), Message::Ready);
        assert!(one.is_ready(Duration::ZERO).unwrap());
        assert_eq!(one.receive().unwrap(), Message::Closed);
    }

    #[test]
    fn the_end_of_a_connection_means_that_the_peer_is_gone() {
        let (mut one, other) = pair();
        drop(other);
        assert!(one.is_ready(Duration::from_secs(10)).unwrap());
        assert_eq!(one.receive_or_end().unwrap(), None);
        let error = one.receive().unwrap_err();
        assert!(error.is::<PeerGone>(), "{error:#}");
        assert!(error.to_string().contains("127.0.0.1"), "{error:#}");

        let (mut one, mut other) = pair();
        other.write_all(b"\"Rea").unwrap();
        drop(other);
        assert!(one.receive_or_end().unwrap_err().is::<PeerGone>());
    }

    #[test]
    fn a_line_that_is_no_message_is_an_error() {
        let (mut one, mut other) = pair();
        other.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        let error = one.receive().unwrap_err();
        assert!(error.to_string().contains("does not speak"), "{error:#}");

        let (mut one, mut other) = pair();
        other
            .write_all(&vec![b'x'; LINE_LIMIT as usize + 1])
            .unwrap();
        assert!(one.receive().is_err());
    }

    #[test]
    fn the_peers_failure_is_quoted() {
        let (mut one, mut other) = pair();
        other
            .write_all(b"{\"Failed\":\"no such thing\"}\n")
            .unwrap();
        assert_eq!(
            one.answer().unwrap_err().to_string(),
            "peer 127.0.0.1: no such thing"
        );
    }

    #[test]
    fn mapped_addresses_become_ipv4() {
        assert_eq!(
            canonical("[::ffff:10.0.0.1]:5".parse().unwrap()),
            "10.0.0.1:5".parse().unwrap()
        );
        let scoped: SocketAddr = "[fe80::1%3]:5".parse().unwrap();
        assert_eq!(canonical(scoped), scoped);
    }
}
