// SPDX-License-Identifier: GPL-2.0-only

//! Makes the client's traffic in lanes. Each lane is a thread that runs one session after the
//! other.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fastrand::Rng;

use super::breaks::{Breaks, Stage};
use super::cuts::Weather;
use super::datagrams::Caller;
use super::PORT;
use crate::traffic::{both_ways, bulk, dialogue, set_patience, Ledger};
use guest::prelude::*;

/// The kind of traffic in a lane. A lane is a thread that runs one session after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A connection with messages, each of which is answered before the next one is sent.
    Dialogue,
    /// A connection over which the client sends data to the server.
    Bulk,
    /// A connection over which both ends send data at the same time.
    BothWays,
    /// Connections that are opened together and then used one after the other.
    Crowd,
    /// A connection that is closed at once, reset at once, or closed after a message.
    Storm,
    /// Datagrams, and answers to them.
    Datagrams,
}

/// The kind of traffic in each lane (a thread that makes traffic).
pub const LANES: &[Kind] = &[
    Kind::Dialogue,
    Kind::Dialogue,
    Kind::Bulk,
    Kind::Bulk,
    Kind::BothWays,
    Kind::BothWays,
    Kind::Crowd,
    Kind::Storm,
    Kind::Storm,
    Kind::Storm,
    Kind::Datagrams,
];

/// The number of connections that a session of the kind `Crowd` opens.
const CROWD: usize = 20;

/// The longest time that a connection may last. It allows for cuts of up to 30 s, for both ends to
/// wait 30 s for each other, and for the transfer of a few MiB between the cuts.
const LIMIT: Duration = Duration::from_secs(300);

/// The client's host and the server's address.
#[derive(Clone, Copy, Debug)]
pub struct Road<'a> {
    /// The client's host.
    pub host: &'a Host,
    /// The address of the server's device.
    pub server: [u8; 6],
}

impl Road<'_> {
    /// Returns the server's address as the client sees it.
    pub fn address(&self) -> Address {
        Address {
            mac: self.server,
            ..self.host.here(PORT)
        }
    }
}

/// The state that all lanes share.
#[derive(Debug)]
pub struct Client<'a> {
    /// The client's host and the server's address.
    pub road: Road<'a>,
    /// The seed. It determines the actions of the sessions, but not their times.
    pub seed: u64,
    /// The counters of all traffic.
    pub ledger: &'a Ledger,
    /// The broken connections, counted by errno.
    pub breaks: &'a Breaks,
    /// The history of the link's cuts.
    pub weather: &'a Weather,
    /// Whether to stop: then no lane begins another session.
    pub stop: &'a AtomicBool,
    /// The number of datagrams that were sent.
    pub sent: &'a AtomicU64,
    /// For each lane (thread of traffic), the time at which its connection began, in milliseconds
    /// after `started`; 0 if the lane has none.
    pub busy: &'a [AtomicU64],
    /// The time at which the traffic started.
    pub started: Instant,
}

impl Client<'_> {
    /// Runs lane `number` (a thread of traffic) until `stop` is set, or until an error that no cut
    /// explains.
    pub fn run(&self, number: usize, kind: Kind) {
        if let Err(error) = self.sessions(number, kind) {
            self.ledger
                .fail(error.context(format!("lane {number}, {kind:?}")));
        }
    }

    /// Returns the number of the first lane (a thread of traffic) whose connection has lasted too
    /// long.
    pub fn overdue(&self) -> Option<usize> {
        let now = self.started.elapsed().as_millis() as u64;
        let limit = allow(LIMIT).as_millis() as u64;
        self.busy.iter().position(|since| {
            let since = since.load(Relaxed);
            since != 0 && now.saturating_sub(since) > limit
        })
    }

    fn sessions(&self, number: usize, kind: Kind) -> Result<()> {
        let mut rng = Rng::with_seed(self.seed.wrapping_add(number as u64));
        if kind == Kind::Datagrams {
            return self.datagrams(&mut rng);
        }
        while !self.stop.load(Relaxed) {
            if kind == Kind::Crowd {
                self.crowd(number, &mut rng)?;
            } else if let Some(client) = self.connect(number)? {
                let ended = self.session(kind, &client, &mut rng);
                self.finish(&client, ended)?;
            }
            self.busy[number].store(0, Relaxed);
        }
        Ok(())
    }

    /// Makes a connection; returns `None` if it failed and a cut may be the reason.
    fn connect(&self, number: usize) -> Result<Option<Socket>> {
        let now = self.started.elapsed().as_millis() as u64;
        self.busy[number].store(now.max(1), Relaxed);
        let client = self.road.host.esp()?;
        set_patience(&client)?;
        let made = client.connect(&self.road.address()).context("connecting");
        let Err(error) = made else {
            return Ok(Some(client));
        };
        if !self.breaks.count(Stage::Connecting, &error) {
            return Err(error);
        }
        if !self.weather.may_refuse() {
            return Err(error.context("while the link was whole"));
        }
        self.ledger.given_up.fetch_add(1, Relaxed);
        Ok(None)
    }

    /// Counts a connection that has succeeded. Also counts a connection that failed, if a cut may
    /// be the reason; otherwise returns the error.
    fn finish(&self, client: &Socket, ended: Result<()>) -> Result<()> {
        self.ledger.close(client);
        let Err(error) = ended else {
            self.ledger.connections.fetch_add(1, Relaxed);
            return Ok(());
        };
        client.set_linger(Some(0)).context("SO_LINGER")?;
        if !self.breaks.count(Stage::Connected, &error) {
            return Err(error);
        }
        if !self.weather.may_break() {
            return Err(error.context("no cut was long enough to break a connection"));
        }
        Ok(())
    }

    fn session(&self, kind: Kind, client: &Socket, rng: &mut Rng) -> Result<()> {
        let (seed, ledger) = (rng.u64(..), self.ledger);
        match kind {
            Kind::Dialogue => dialogue(client, seed, rng.u32(1..=300), ledger),
            Kind::Bulk => bulk(client, seed, size(rng, 22)),
            Kind::BothWays => both_ways(client, seed, size(rng, 21), ledger),
            Kind::Storm => match rng.u8(..4) {
                0 | 1 => Ok(()),
                2 => client.set_linger(Some(0)).context("SO_LINGER"),
                _ => dialogue(client, seed, 1, ledger),
            },
            Kind::Crowd | Kind::Datagrams => unreachable!("they have no single connection"),
        }
    }

    fn crowd(&self, number: usize, rng: &mut Rng) -> Result<()> {
        let mut clients = Vec::with_capacity(CROWD);
        while clients.len() < CROWD {
            match self.connect(number)? {
                Some(client) => clients.push(client),
                None => break,
            }
        }
        for client in clients {
            let ended = dialogue(&client, rng.u64(..), 1, self.ledger);
            self.finish(&client, ended)?;
        }
        Ok(())
    }

    fn datagrams(&self, rng: &mut Rng) -> Result<()> {
        let socket = self.road.host.edp_bound(PORT)?;
        socket.connect(&self.road.address()).context("connect")?;
        let mut caller = Caller::new(&socket, self.seed);
        while !self.stop.load(Relaxed) {
            caller.call(rng, self.ledger)?;
            self.sent.store(caller.sent(), Relaxed);
        }
        Ok(())
    }
}

/// Returns a random size in bytes, at least 1. The upper bound is a random power of two: 2^8, 2^9
/// and so on to 2^`bits` have equal probability.
fn size(rng: &mut Rng, bits: u32) -> u64 {
    let most = 1 << rng.u32(8..=bits);
    rng.u64(1..=most)
}
