// SPDX-License-Identifier: GPL-2.0-only

//! Runs one cell of the fault matrix: a kind of traffic over a faulty wire, with a watchdog.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use serde::Serialize;

use super::traffic::Traffic;
use super::wires::{Way, Wire};
use crate::traffic::Ledger;
use guest::harness::{own_threads, Work, FIGURES};
use guest::patience::Allowance;
use guest::prelude::*;
use guest::relay::Tally;

/// Traffic without progress for this long counts as hanging. A connection attempt ends after 12.6
/// s, silence ends a connection after 15 s, and a closed connection waits for its peer for 10 s.
/// After the sum of these times, some connection or attempt must have ended, successfully or not.
const STALL: Duration = Duration::from_secs(40);

/// The time limit of a cell, in seconds. It applies even while the cell makes progress. At 30 %
/// loss in both directions, a packet and its answer get through in one of two attempts. Attempts
/// are at most 2 s (the longest RTO) apart, so a dialogue of 100 messages may take some 200 s.
const LIMIT: u64 = 290;

/// A cell of the fault matrix: one kind of traffic over one faulty wire.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The wire over which the traffic runs.
    pub wire: &'static Wire,
    /// The directions in which the wire has faults.
    pub way: Way,
    /// The traffic over the wire.
    pub traffic: Traffic,
}

/// The figures that a cell reports.
#[derive(Debug, Serialize)]
struct Figures {
    wire: &'static str,
    way: &'static str,
    traffic: &'static str,
    /// Time from the start of the traffic to the check of its last byte, in seconds.
    seconds: f64,
    /// Time from the check of the last byte until no socket was left, in seconds.
    closing: f64,
    /// Number of packets sent, including retransmissions.
    packets: u64,
    /// Number of packets retransmitted.
    resent: u64,
    /// Number of retransmission requests.
    requests: u64,
    /// Number of connection attempts that failed.
    given_up: u64,
    /// Number of frames that the wire lost, duplicated, reordered or damaged.
    spoiled: u64,
}

impl Cell {
    /// Returns the name of the scenario that runs this cell of the fault matrix.
    pub fn name(&self) -> String {
        let Self { wire, way, traffic } = self;
        format!("{}, {}, {}", wire.name, way.name(), traffic.name()).replace(' ', "_")
    }

    /// Makes the scenario that runs this cell of the fault matrix.
    pub const fn scenario(name: &'static str, cell: &'static Self) -> Scenario {
        Scenario::work(name, cell).within(LIMIT)
    }

    /// Runs the traffic over the wire until the last socket is gone, and reports the figures.
    ///
    /// # Errors
    /// If a byte is wrong, a call fails unexpectedly, or the wire or the protocol fails
    /// [`judge`](Self::judge).
    fn run_on(&self, lab: &Lab) -> Outcome {
        let ledger = Ledger::default();
        lab.relay().set_faults_each(self.wire.faults(self.way));
        thread::scope(|scope| {
            let (running, ended) = mpsc::channel::<()>();
            scope.spawn(|| watch(lab, &ledger, ended));
            let outcome = self.play(lab, &ledger);
            drop(running);
            outcome
        })
    }

    fn play(&self, lab: &Lab, ledger: &Ledger) -> Outcome {
        let started = Instant::now();
        self.traffic.run(lab, self.wire, ledger)?;
        let took = started.elapsed();
        // The loop waits until all connections are closed. The faults also affect the packets that
        // close them.
        while !is_deserted(&lab.a)? || !is_deserted(&lab.b)? {
            thread::sleep(Duration::from_millis(5));
        }
        let figures = Figures {
            wire: self.wire.name,
            way: self.way.name(),
            traffic: self.traffic.name(),
            seconds: took.as_secs_f64(),
            closing: (started.elapsed() - took).as_secs_f64(),
            packets: ledger.packets.load(Relaxed),
            resent: ledger.resent.load(Relaxed),
            requests: ledger.requests.load(Relaxed),
            given_up: ledger.given_up.load(Relaxed),
            spoiled: spoiled(lab.relay().tally()),
        };
        note(&format!("{FIGURES}{}", serde_json::to_string(&figures)?));
        self.judge(lab.relay().tally(), &figures)
    }

    /// Fails if the wire is broken: some twenty faults of a kind are expected, and none occurred.
    /// Also fails if twenty frames were lost and the protocol neither requested nor retransmitted
    /// anything.
    fn judge(&self, tally: &Tally, figures: &Figures) -> Outcome {
        let faults = &self.wire.faults;
        let frames = tally.forwarded.load(Relaxed) as f64 / 4.0;
        for (what, share, counter) in [
            ("lost", faults.loss, &tally.lost),
            ("doubled", faults.duplicate, &tally.duplicated),
            ("put behind others", faults.reorder, &tally.reordered),
            ("damaged", faults.corrupt, &tally.discarded),
        ] {
            ensure!(
                share * frames < 20.0 || counter.load(Relaxed) > 0,
                "no frame was {what}: {tally:?}"
            );
        }
        let lost = tally.lost.load(Relaxed) + tally.discarded.load(Relaxed);
        // Lost acknowledgements need no reaction, because a later acknowledgement, or the answer to
        // a probe, replaces them.
        let answers_only = self.way == Way::Back && self.traffic == Traffic::Bulk;
        ensure!(
            lost < 20 || answers_only || figures.resent + figures.requests > 0,
            "{lost} frames were lost, nothing was asked for or sent again"
        );
        Ok(())
    }
}

impl Work for Cell {
    fn run(&self) -> Outcome {
        let lab = Lab::new(Wiring::Switched).context("setting up the lab")?;
        self.run_on(&lab).inspect_err(|_| lab.note_counters())
    }
}

fn spoiled(tally: &Tally) -> u64 {
    [
        &tally.lost,
        &tally.duplicated,
        &tally.reordered,
        &tally.discarded,
    ]
    .into_iter()
    .map(|counter: &AtomicU64| counter.load(Relaxed))
    .sum()
}

/// Returns whether a host has no stream socket left.
fn is_deserted(host: &Host) -> Result<bool> {
    Ok(host.namespace.proc_net("esp")?.lines().count() <= 1)
}

/// Watches the ledger until `ended` is signalled. If the ledger shows no progress for too long,
/// ends the process, with a message that says what hangs.
fn watch(lab: &Lab, ledger: &Ledger, ended: Receiver<()>) {
    let (mut progress, mut allowance) = (ledger.progress(), Allowance::new(STALL));
    while allowance.wait().is_some() {
        if ended.recv_timeout(Duration::from_millis(200)) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        if ledger.progress() != progress {
            (progress, allowance) = (ledger.progress(), Allowance::new(STALL));
        }
    }
    note(&format!("the wire: {:?}", lab.relay().tally()));
    for (name, host) in [("a", &lab.a), ("b", &lab.b)] {
        for line in host.namespace.proc_net("esp").unwrap_or_default().lines() {
            note(&format!("{name}: {line}"));
        }
    }
    own_threads().iter().for_each(|line| note(line));
    note(&format!(
        "nothing has got on for {STALL:?}; so far: {ledger:?}"
    ));
    std::process::exit(1);
}
