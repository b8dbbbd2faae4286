// SPDX-License-Identifier: GPL-2.0-only

//! Makes the kinds of traffic of the fault matrix. The client is host a, and the server is host b.

use std::sync::atomic::Ordering::Relaxed;

use super::wires::Wire;
use crate::traffic::{both_ways, bulk, dialogue, serve, Ledger};
use guest::crowd::errno;
use guest::patience::factor;
use guest::prelude::*;

const PORT: u16 = 2870;

/// Number of bytes of bulk traffic, in each direction.
const BULK: u64 = 1 << 20;
/// Number of connections that are open at once.
const MANY: u64 = 50;
/// The number of connections in a debug kernel, which is much slower. There the wire carries few
/// frames per second, so the frames of 50 connections would wait for longer than a handshake may
/// last.
const FEWER: u64 = 10;

fn many() -> u64 {
    if factor() == 1 {
        return MANY;
    }
    note(&format!(
        "{FEWER} connections at once in this kernel, not {MANY}"
    ));
    FEWER
}

/// Number of bytes in each direction on a connection of [`Traffic::Many`].
const SHARE: u64 = 16 << 10;
/// The size of a storm: the number of threads, and the number of connections that each thread
/// makes one after the other.
const STORM: (u64, u64) = (10, 10);

/// A kind of traffic in the fault matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// One connection with 100 short messages. Each message is answered before the next one is
    /// sent.
    Dialogue,
    /// One connection with 1 MiB from the client to the server.
    Bulk,
    /// One connection with 1 MiB in each direction at once.
    BothWays,
    /// 50 connections at once with 16 KiB in each direction; 10 connections in a much slower
    /// kernel.
    Many,
    /// 100 connections, 10 at a time. Every second connection is closed as soon as it is open; the
    /// rest carry a message and its answer.
    Storm,
}

impl Traffic {
    /// All kinds of traffic.
    pub const ALL: &'static [Self] = &[
        Self::Dialogue,
        Self::Bulk,
        Self::BothWays,
        Self::Many,
        Self::Storm,
    ];

    /// Returns the traffic's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dialogue => "dialogue",
            Self::Bulk => "bulk",
            Self::BothWays => "both ways",
            Self::Many => "50 connections",
            Self::Storm => "storm",
        }
    }

    /// Returns how many connections the traffic has.
    fn connections(self) -> u64 {
        match self {
            Self::Dialogue | Self::Bulk | Self::BothWays => 1,
            Self::Many => many(),
            Self::Storm => STORM.0 * STORM.1,
        }
    }

    /// Runs the traffic to its end.
    ///
    /// # Errors
    /// If a call fails unexpectedly, or a byte is wrong.
    pub fn run(self, lab: &Lab, wire: &Wire, ledger: &Ledger) -> Result<()> {
        let listener = lab.b.esp_listener(PORT, 256)?;
        let stop = AtomicBool::new(false);
        let excused = |error: &anyhow::Error| wire.may_refuse() && is_refusal(error);
        let clients = Clients { lab, wire, ledger };
        beside(
            || serve(&listener, &stop, ledger, &excused),
            || {
                let ended = clients.run(self);
                stop.store(true, Relaxed);
                ended
            },
        )?;
        ledger.judge()?;
        let made = ledger.connections.load(Relaxed);
        let accepted = ledger.accepted.load(Relaxed);
        ensure!(made == self.connections(), "{made} connections were made");
        ensure!(
            accepted == made || wire.may_refuse(),
            "{accepted} connections were accepted, {made} were made"
        );
        Ok(())
    }
}

/// Returns whether a handshake failed: six SYNs were unanswered, or the server had given up before
/// the client's first data.
fn is_refusal(error: &anyhow::Error) -> bool {
    matches!(errno(error), Some(libc::ETIMEDOUT | libc::ECONNRESET))
}

struct Clients<'a> {
    lab: &'a Lab,
    wire: &'a Wire,
    ledger: &'a Ledger,
}

impl Clients<'_> {
    fn run(&self, traffic: Traffic) -> Result<()> {
        let ledger = self.ledger;
        match traffic {
            Traffic::Dialogue => self.session(|client| dialogue(client, 1, 100, ledger)),
            Traffic::Bulk => self.session(|client| bulk(client, 2, BULK)),
            Traffic::BothWays => self.session(|client| both_ways(client, 3, BULK, ledger)),
            Traffic::Many => each_in_a_thread(many(), |number| {
                self.session(|client| both_ways(client, number, SHARE, ledger))
            }),
            Traffic::Storm => each_in_a_thread(STORM.0, |lane| {
                for round in 0..STORM.1 {
                    let number = lane * STORM.1 + round;
                    let session = |client: &Socket| match number % 2 {
                        0 => Ok(()),
                        _ => dialogue(client, number, 1, ledger),
                    };
                    self.session(session)
                        .with_context(|| format!("round {round}"))?;
                }
                Ok(())
            }),
        }
    }

    /// Makes a connection and runs `session` on it. Tries again if the handshake fails on a wire
    /// where handshakes may fail.
    fn session(&self, session: impl Fn(&Socket) -> Result<()>) -> Result<()> {
        let Lab { a, b, .. } = self.lab;
        loop {
            let client = a.esp()?;
            let ended = client
                .connect(&a.to(b, PORT))
                .context("connecting")
                .and_then(|()| session(&client));
            self.ledger.close(&client);
            match ended {
                Ok(()) => {
                    self.ledger.connections.fetch_add(1, Relaxed);
                    return Ok(());
                }
                Err(error) if self.wire.may_refuse() && is_refusal(&error) => {
                    self.ledger.given_up.fetch_add(1, Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Runs `work` with each number below `count`, in parallel threads.
fn each_in_a_thread(count: u64, work: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        let mut all = Ok(());
        for (number, thread) in threads.into_iter().enumerate() {
            let ended = match thread.join() {
                Ok(ended) => ended.with_context(|| format!("client {number}")),
                Err(panic) => std::panic::resume_unwind(panic),
            };
            all = all.and(ended);
        }
        all
    })
}
