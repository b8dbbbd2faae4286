// SPDX-License-Identifier: GPL-2.0-only

//! Opens many connections, over ESP or over TCP. Measures the cost of a round trip over them, and
//! the rate at which they can be opened and closed.

use std::fmt;

use crate::address::internet;
use crate::prelude::*;

/// The protocol of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// ESP, over Ethernet.
    Esp,
    /// TCP over IPv4, with the kernel's defaults.
    Tcp,
}

/// Both protocols. TCP comes first because it is the reference.
pub const BOTH: [Protocol; 2] = [Protocol::Tcp, Protocol::Esp];

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Esp => "esp",
            Self::Tcp => "tcp",
        })
    }
}

impl Protocol {
    /// Makes a socket in the calling thread's namespace.
    ///
    /// # Errors
    /// The errno of `socket(2)`.
    fn socket(self) -> std::io::Result<Socket> {
        match self {
            Self::Esp => Socket::esp(),
            Self::Tcp => Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0),
        }
    }

    /// Returns the address of `port` on every interface, for binding.
    pub fn here(self, port: u16) -> Vec<u8> {
        match self {
            Self::Esp => Address {
                port,
                ..Address::default()
            }
            .to_bytes()
            .to_vec(),
            Self::Tcp => internet([0; 4], port),
        }
    }

    /// Returns the address of `port` on host b, as host a sees it.
    pub fn there(self, lab: &Lab, port: u16) -> Vec<u8> {
        match self {
            Self::Esp => lab.a.to(&lab.b, port).to_bytes().to_vec(),
            Self::Tcp => internet([10, 0, 0, 2], port),
        }
    }

    /// Makes a listener on `port` of host b.
    ///
    /// # Errors
    /// The errno of the failing call.
    pub fn listener(self, lab: &Lab, port: u16) -> Result<Socket> {
        let socket = lab.b.namespace.within(|| self.socket())??;
        socket.bind_bytes(&self.here(port)).context("bind")?;
        socket.listen(16).context("listen")?;
        Ok(socket)
    }

    /// Connects host a to the listener at `there` on host b, and returns both ends. The calling
    /// thread must be in host a's namespace.
    fn connect(self, listener: &Socket, there: &[u8]) -> Result<(Socket, Socket)> {
        let client = self.socket()?;
        client.connect_bytes(there).context("connect")?;
        let (server, _) = listener.accept(0).context("accept")?;
        if self == Self::Tcp {
            // Nagle's algorithm is switched off for TCP, because ESP never delays data to wait for
            // more.
            for end in [&client, &server] {
                end.set_int_option(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
            }
        }
        Ok((client, server))
    }

    /// Returns the port that a socket is bound to.
    ///
    /// # Errors
    /// The errno of `getsockname(2)`.
    pub fn port_of(self, socket: &Socket) -> Result<u16> {
        // Both address structures have the port at the same offset.
        let name = socket.local_name()?;
        let bytes = name.get(2..4).context("a short address")?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }
}

/// Connections that are open, and the listener that accepted them.
#[derive(Debug)]
pub struct Crowd {
    listener: Socket,
    /// Both ends of each connection.
    pub pairs: Vec<(Socket, Socket)>,
}

impl Crowd {
    /// Opens `count` connections and sends a few bytes both ways over each.
    ///
    /// # Errors
    /// If a connection cannot be opened, or bytes are lost.
    pub fn open(lab: &Lab, protocol: Protocol, port: u16, count: usize) -> Result<Self> {
        let mut crowd = Self {
            listener: protocol.listener(lab, port)?,
            pairs: Vec::with_capacity(count),
        };
        crowd.grow(lab, protocol, port, count)?;
        Ok(crowd)
    }

    /// Opens connections until there are `count`.
    ///
    /// # Errors
    /// As [`Crowd::open`].
    pub fn grow(&mut self, lab: &Lab, protocol: Protocol, port: u16, count: usize) -> Result<()> {
        let there = protocol.there(lab, port);
        lab.a.namespace.within(|| {
            while self.pairs.len() < count {
                let number = self.pairs.len();
                let pair = protocol
                    .connect(&self.listener, &there)
                    .and_then(|(client, server)| {
                        exchange(&client, &server)?;
                        Ok((client, server))
                    })
                    .with_context(|| format!("connection {number} of {count}"))?;
                self.pairs.push(pair);
            }
            Ok(())
        })?
    }

    /// Returns the cost of half a round trip of one byte, in nanoseconds. The result is the average
    /// over `connections` connections, which are chosen evenly from all open connections and used
    /// one after the other. If the guest's clock counts instructions, a nanosecond is an
    /// instruction, and the result includes the instructions of both ends.
    ///
    /// # Errors
    /// If a call fails.
    pub fn half_round_trip(&self, connections: usize, rounds: u32) -> Result<f64> {
        let (mut took, mut halves) = (Duration::ZERO, 0);
        for pair in self.spread(connections) {
            // After the pause, the previous connection has finished its remaining work, such as
            // delayed acknowledgements. The first round trip after a pause costs more, so it is not
            // measured.
            thread::sleep(PAUSE);
            round_trip(pair)?;
            let started = Instant::now();
            for _ in 0..rounds {
                round_trip(pair)?;
            }
            took += started.elapsed();
            halves += 2 * rounds;
        }
        Ok(took.as_nanos() as f64 / f64::from(halves))
    }

    /// Measures the same cost as [`Crowd::half_round_trip`], but changes to the next connection
    /// after each round trip, and goes through all the connections `rounds` times.
    ///
    /// # Errors
    /// If a call fails.
    pub fn half_round_trip_in_turn(&self, connections: usize, rounds: u32) -> Result<f64> {
        let turn = || self.spread(connections).try_for_each(round_trip);
        turn()?;
        let started = Instant::now();
        for _ in 0..rounds {
            turn()?;
        }
        let halves = 2 * connections.min(self.pairs.len()) as u32 * rounds;
        Ok(started.elapsed().as_nanos() as f64 / f64::from(halves))
    }

    /// Returns `connections` connections, which are chosen evenly from all open connections.
    fn spread(&self, connections: usize) -> impl Iterator<Item = &(Socket, Socket)> {
        let step = (self.pairs.len() / connections).max(1);
        self.pairs.iter().step_by(step).take(connections)
    }
}

/// A pause that is longer than any delay of an acknowledgement.
const PAUSE: Duration = Duration::from_millis(300);

/// Sends a byte there and back.
fn round_trip((client, server): &(Socket, Socket)) -> Result<()> {
    for (from, to) in [(client, server), (server, client)] {
        let mut byte = [0];
        from.send_all(b"x")?;
        to.receive_exact(&mut byte)?;
    }
    Ok(())
}

/// The results of [`churn`], which opens and closes connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Churn {
    /// Number of connections opened, used and closed.
    pub made: u32,
    /// Whether the last attempt to connect failed for lack of a port, with `EADDRNOTAVAIL`.
    pub without_port: bool,
    /// The time that opening and closing all connections took.
    pub took: Duration,
    /// The longest delay of a connection's start, compared with the schedule.
    pub latest: Duration,
}

/// Opens `count` connections at `rate` per second. Sends a few bytes each way over each connection,
/// and closes it, the client first. Stops at the first connection that is refused for lack of a
/// port.
///
/// # Errors
/// If a call fails for another reason.
pub fn churn(lab: &Lab, protocol: Protocol, port: u16, rate: u32, count: u32) -> Result<Churn> {
    let listener = protocol.listener(lab, port)?;
    let there = protocol.there(lab, port);
    let churn = || churn_through(protocol, &listener, &there, rate, count);
    lab.a.namespace.within(churn)?
}

fn churn_through(
    protocol: Protocol,
    listener: &Socket,
    there: &[u8],
    rate: u32,
    count: u32,
) -> Result<Churn> {
    let mut churn = Churn::default();
    let started = Instant::now();
    for number in 0..count {
        let due = Duration::from_secs(1) * number / rate;
        match due.checked_sub(started.elapsed()) {
            Some(early) => thread::sleep(early),
            None => churn.latest = churn.latest.max(started.elapsed() - due),
        }
        match protocol.connect(listener, there) {
            Ok((client, server)) => {
                exchange(&client, &server).with_context(|| format!("connection {number}"))?;
                drop(client);
                drop(server);
                churn.made += 1;
            }
            Err(error) if errno(&error) == Some(libc::EADDRNOTAVAIL) => {
                churn.without_port = true;
                break;
            }
            Err(error) => return Err(error.context(format!("connection {number}"))),
        }
    }
    churn.took = started.elapsed();
    Ok(churn)
}

/// Returns the errno of an error's root cause.
pub fn errno(error: &anyhow::Error) -> Option<i32> {
    error
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::raw_os_error)
}

/// Closes a connection and returns the time until the client's port can be bound again; `None` if
/// that takes longer than `limit`. Closes both ends if `both` is set, and otherwise only the
/// client's end.
///
/// # Errors
/// If a call fails.
pub fn port_rests(
    lab: &Lab,
    protocol: Protocol,
    port: u16,
    both: bool,
    limit: Duration,
) -> Result<Option<Duration>> {
    let listener = protocol.listener(lab, port)?;
    let there = protocol.there(lab, port);
    let connect = || protocol.connect(&listener, &there);
    let (client, server) = lab.a.namespace.within(connect)??;
    exchange(&client, &server)?;
    let own = protocol.port_of(&client)?;
    drop(client);
    let _kept = (!both).then_some(server);
    let wait = || until_free(protocol, own, limit);
    lab.a.namespace.within(wait)?
}

fn until_free(protocol: Protocol, port: u16, limit: Duration) -> Result<Option<Duration>> {
    let started = Instant::now();
    while started.elapsed() < limit {
        let socket = protocol.socket()?;
        match socket.bind_bytes(&protocol.here(port)) {
            Ok(()) => return Ok(Some(started.elapsed())),
            Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {}
            Err(error) => return Err(error).context("bind"),
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(None)
}
