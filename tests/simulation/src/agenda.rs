// SPDX-License-Identifier: GPL-2.0-only

//! Keeps the events of the simulation in a queue, ordered by time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use esp::Nanos;

#[derive(Debug)]
struct Entry<E> {
    at: Nanos,
    /// Order of insertion; events of the same time happen in this order.
    serial: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

/// The current time of the simulation, and the events that are yet to happen.
#[derive(Debug)]
pub struct Agenda<E> {
    now: Nanos,
    events: BinaryHeap<Reverse<Entry<E>>>,
    serial: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self {
            now: 0,
            events: BinaryHeap::new(),
            serial: 0,
        }
    }
}

impl<E> Agenda<E> {
    /// Returns the time of the latest event that was taken, in nanoseconds from the start.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the time of the next event; `None` if there is none.
    pub fn next(&self) -> Option<Nanos> {
        self.events.peek().map(|entry| entry.0.at)
    }

    /// Schedules an event.
    pub fn put(&mut self, at: Nanos, event: E) {
        self.serial += 1;
        self.events.push(Reverse(Entry {
            at,
            serial: self.serial,
            event,
        }));
    }

    /// Removes the next event and advances the time to it.
    pub fn take(&mut self) -> Option<E> {
        let Reverse(entry) = self.events.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }
}
