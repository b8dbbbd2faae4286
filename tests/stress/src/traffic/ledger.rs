// SPDX-License-Identifier: GPL-2.0-only

//! Collects the results of all threads that make traffic: counters and errors.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use anyhow::Error;

use guest::prelude::*;

/// The counters of all traffic, and its unexpected errors.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Number of bytes received and found correct.
    pub bytes: AtomicU64,
    /// Number of messages in dialogues; datagrams are not counted here.
    pub messages: AtomicU64,
    /// Number of connections that succeeded.
    pub connections: AtomicU64,
    /// Number of connections that the server accepted.
    pub accepted: AtomicU64,
    /// Number of connections that failed for an expected reason.
    pub given_up: AtomicU64,
    /// Number of datagrams received and found correct.
    pub datagrams: AtomicU64,
    /// Number of packets sent, summed over the sockets' own counters.
    pub packets: AtomicU64,
    /// Number of packets retransmitted.
    pub resent: AtomicU64,
    /// Number of retransmission requests.
    pub requests: AtomicU64,
    failures: Mutex<Vec<Error>>,
}

impl Ledger {
    /// Adds the counters of a stream socket that is about to be closed.
    pub fn close(&self, socket: &Socket) {
        // If the socket's counters cannot be read, the sums lack this connection.
        if let Ok(counters) = socket.esp_counters() {
            self.packets.fetch_add(counters.pkt_tx.into(), Relaxed);
            self.resent.fetch_add(counters.pkt_rtx.into(), Relaxed);
            self.requests.fetch_add(counters.arq_tx.into(), Relaxed);
        }
    }

    /// Returns a number that grows while anything makes progress.
    pub fn progress(&self) -> u64 {
        let counters = [
            &self.bytes,
            &self.messages,
            &self.connections,
            &self.accepted,
            &self.given_up,
            &self.datagrams,
        ];
        counters.iter().map(|counter| counter.load(Relaxed)).sum()
    }

    fn failures(&self) -> MutexGuard<'_, Vec<Error>> {
        self.failures.lock().expect("nobody panics meanwhile")
    }

    /// Stores an unexpected failure, and prints it at once, since other threads may now wait for
    /// ever.
    pub fn fail(&self, error: Error) {
        note(&format!("{error:#}"));
        self.failures().push(error);
    }

    /// Returns whether there was an unexpected failure.
    pub fn failed(&self) -> bool {
        !self.failures().is_empty()
    }

    /// Checks that there was no unexpected failure.
    ///
    /// # Errors
    /// The first failure.
    pub fn judge(&self) -> Result<()> {
        let mut failures = std::mem::take(&mut *self.failures());
        let count = failures.len();
        if count == 0 {
            return Ok(());
        }
        let first = failures.swap_remove(0);
        if count == 1 {
            return Err(first);
        }
        Err(first.context(format!("{count} failures, the first")))
    }
}
