// SPDX-License-Identifier: GPL-2.0-only

//! What is going to happen, in the order of time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use esp::Nanos;

#[derive(Debug)]
struct Entry<E> {
    at: Nanos,
    /// What is put in first happens first.
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

/// Events to come, and the time.
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
    /// The time of the event that happened last, nanoseconds from the beginning.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// When something happens next; `None` for never.
    pub fn next(&self) -> Option<Nanos> {
        self.events.peek().map(|entry| entry.0.at)
    }

    /// An event is going to happen.
    pub fn put(&mut self, at: Nanos, event: E) {
        self.serial += 1;
        self.events.push(Reverse(Entry {
            at,
            serial: self.serial,
            event,
        }));
    }

    /// The next event; the time is its time now.
    pub fn take(&mut self) -> Option<E> {
        let Reverse(entry) = self.events.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }
}
