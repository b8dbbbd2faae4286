// SPDX-License-Identifier: GPL-2.0-only

//! The client's side: lanes of traffic, each a thread that does one session after the other.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fastrand::Rng;

use super::breaks::{Breaks, Stage};
use super::cuts::Weather;
use super::datagrams::Caller;
use super::PORT;
use crate::prelude::*;
use crate::traffic::{both_ways, bulk, dialogue, set_patience, Ledger};

/// What a lane's sessions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A connection with messages that are answered, one after the other.
    Dialogue,
    /// A connection with bytes from the client to the server.
    Bulk,
    /// A connection with bytes in both directions at once.
    BothWays,
    /// Connections that are open at the same time and then talk one after the other.
    Crowd,
    /// A connection that is closed as soon as it is open, reset, or closed after a message.
    Storm,
    /// Datagrams.
    Datagrams,
}

/// All lanes.
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

/// Connections of a crowd.
const CROWD: usize = 20;

/// For how long a connection may last. Cuts are 30 s long at most, both ends wait for each other
/// for 30 s, and between the cuts it moves a few MiB.
const LIMIT: Duration = Duration::from_secs(300);

/// Where the client is, and whom it talks to.
#[derive(Clone, Copy, Debug)]
pub struct Road<'a> {
    /// The client's host.
    pub host: &'a Host,
    /// The server's device.
    pub server: [u8; 6],
}

impl Road<'_> {
    /// The server, as the client addresses it.
    pub fn address(&self) -> Address {
        Address {
            mac: self.server,
            ..self.host.here(PORT)
        }
    }
}

/// What all lanes share.
#[derive(Debug)]
pub struct Client<'a> {
    /// The way to the server.
    pub road: Road<'a>,
    /// Settles what is done, not when.
    pub seed: u64,
    /// What came of it.
    pub ledger: &'a Ledger,
    /// Connections that broke.
    pub breaks: &'a Breaks,
    /// The cuts.
    pub weather: &'a Weather,
    /// No session begins any more.
    pub stop: &'a AtomicBool,
    /// Datagrams sent.
    pub sent: &'a AtomicU64,
    /// When each lane's connection began, milliseconds after `started`, or 0.
    pub busy: &'a [AtomicU64],
    /// The beginning.
    pub started: Instant,
}

impl Client<'_> {
    /// Runs lane `number` until told to stop, or until something fails that must not.
    pub fn run(&self, number: usize, kind: Kind) {
        if let Err(error) = self.sessions(number, kind) {
            self.ledger
                .fail(error.context(format!("lane {number}, {kind:?}")));
        }
    }

    /// The first lane whose connection lasts for longer than any may.
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

    /// A connection, or nothing if the link is to blame.
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

    /// Counts a connection that did what it was for, or one that broke, if the link is to blame.
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

/// A number of bytes: its magnitude is as likely as any other, up to so many bits.
fn size(rng: &mut Rng, bits: u32) -> u64 {
    let most = 1 << rng.u32(8..=bits);
    rng.u64(1..=most)
}
