// SPDX-License-Identifier: GPL-2.0-only

//! What came of some traffic, as all its threads count it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use anyhow::Error;

use crate::prelude::*;

/// Counters, and the errors that were no part of the plan.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Bytes received and found right.
    pub bytes: AtomicU64,
    /// Messages of dialogues, datagrams not among them.
    pub messages: AtomicU64,
    /// Connections that did what they were for.
    pub connections: AtomicU64,
    /// Connections that the server accepted.
    pub accepted: AtomicU64,
    /// Connections that failed for a reason that was to be expected.
    pub given_up: AtomicU64,
    /// Datagrams received and found right.
    pub datagrams: AtomicU64,
    /// Packets that left, by the sockets' own counters.
    pub packets: AtomicU64,
    /// Of these, packets sent again.
    pub resent: AtomicU64,
    /// Requests to send again.
    pub requests: AtomicU64,
    failures: Mutex<Vec<Error>>,
}

impl Ledger {
    /// Takes over a stream socket's counters, before it is closed.
    pub fn close(&self, socket: &Socket) {
        // Without its counters a connection is only missing from a sum.
        if let Ok(counters) = socket.esp_counters() {
            self.packets.fetch_add(counters.pkt_tx.into(), Relaxed);
            self.resent.fetch_add(counters.pkt_rtx.into(), Relaxed);
            self.requests.fetch_add(counters.arq_tx.into(), Relaxed);
        }
    }

    /// A number that grows as long as anything gets on.
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

    /// Something failed that must not; noted at once, since others may now wait for ever.
    pub fn fail(&self, error: Error) {
        note(&format!("{error:#}"));
        self.failures().push(error);
    }

    /// Whether something did.
    pub fn failed(&self) -> bool {
        !self.failures().is_empty()
    }

    /// Demands that nothing failed.
    ///
    /// # Errors
    /// With the first failure.
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
