// SPDX-License-Identifier: GPL-2.0-only

//! Fuzzes the ACK queue, in which senders wait for their turn to send. The senders begin, request
//! turns, fall silent and end, in any order.

use std::collections::VecDeque;

use arbitrary::{Arbitrary, Unstructured};
use esp::ack_queue::{HOLD, IDLE, LISTS};
use esp::{AckQueue, Demand, Nanos, Slot, Verdict};

const SENDERS: usize = 8;

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Event {
    /// A sender announces a transmission, but no acknowledgement is due.
    Come(u8),
    /// A sender's connection ends.
    Go(u8),
    /// An acknowledgement of a sender's data is due.
    Ask(u8),
    /// A sender announces a transmission, and the acknowledgement of the announcement is due.
    Begin(u8),
    /// A sender's socket gets a priority.
    Prefer(u8, u8),
    /// The device receives a packet, from any sender.
    Heard,
    /// Time passes, in microseconds.
    Wait(u16),
    /// Time passes until the deadline of the ACK queue.
    Deadline,
}

struct Device {
    queue: AckQueue,
    slots: [Slot; SENDERS],
    lists: [VecDeque<usize>; LISTS],
    now: Nanos,
    /// The later of two times: when the lists of waiting senders became non-empty, and when the
    /// most recent turn was given.
    moved: Nanos,
}

impl Default for Device {
    fn default() -> Self {
        Self {
            queue: AckQueue::default(),
            // Each host has two senders.
            slots: std::array::from_fn(|id| Slot::of(id as u64 / 2)),
            lists: Default::default(),
            now: 0,
            moved: 0,
        }
    }
}

impl Device {
    fn serve(&mut self) {
        while let Some(turn) = self.queue.next_turn(self.now) {
            let head = self.lists[turn.list().index()].pop_front();
            let id = head.expect("only a listed sender leaves");
            match turn.give(&mut self.slots[id]) {
                None => self.moved = self.now,
                Some(list) => self.lists[list.index()].push_back(id),
            }
        }
        assert_eq!(self.waiting(), self.queue.waiting() as usize);
        let counted = self.slots.iter().filter(|s| s.is_scheduled()).count();
        assert_eq!(counted, self.queue.scheduled() as usize);
        for (id, slot) in self.slots.iter().enumerate() {
            assert_eq!(slot.is_waiting(), self.is_listed(id));
        }
        match self.queue.deadline() {
            Some(at) => assert!(self.now < at && at <= self.moved + HOLD),
            None => assert!(self.waiting() == 0, "somebody waits for ever"),
        }
    }

    fn waiting(&self) -> usize {
        self.lists.iter().map(VecDeque::len).sum()
    }

    fn is_listed(&self, id: usize) -> bool {
        self.lists.iter().any(|list| list.contains(&id))
    }

    fn request_turn(&mut self, id: usize, demand: Demand) {
        let was_empty = self.waiting() == 0;
        match self.update(id, demand) {
            Verdict::Turn => {}
            Verdict::Joins(list) => {
                self.lists[list.index()].push_back(id);
                if was_empty {
                    self.moved = self.now;
                }
            }
            verdict => panic!("{verdict:?} is no answer"),
        }
    }

    fn update(&mut self, id: usize, demand: Demand) -> Verdict {
        self.queue.update(&mut self.slots[id], demand, self.now)
    }

    fn run(&mut self, event: Event) {
        match event {
            Event::Come(id) => {
                let id = usize::from(id) % SENDERS;
                let verdict = self.update(id, Demand::Count);
                assert_eq!(verdict, Verdict::Unchanged);
            }
            Event::Go(id) => {
                let id = usize::from(id) % SENDERS;
                let verdict = self.update(id, Demand::Nothing);
                match verdict {
                    Verdict::Leaves(list) => {
                        let list = &mut self.lists[list.index()];
                        let before = list.len();
                        list.retain(|other| *other != id);
                        assert_eq!(list.len() + 1, before);
                    }
                    _ => assert!(!self.is_listed(id)),
                }
            }
            Event::Ask(id) => {
                let id = usize::from(id) % SENDERS;
                // A sender that already waits has requested its turn, so it must not request one
                // again.
                if self.slots[id].is_scheduled() && !self.slots[id].is_waiting() {
                    self.request_turn(id, Demand::Turn);
                }
            }
            Event::Begin(id) => {
                let id = usize::from(id) % SENDERS;
                if !self.slots[id].is_waiting() {
                    self.request_turn(id, Demand::First);
                }
            }
            Event::Prefer(id, priority) => {
                let id = usize::from(id) % SENDERS;
                self.slots[id].set_priority(priority.into());
            }
            Event::Heard => self.queue.note_arrival(self.now),
            Event::Wait(us) => self.now += Nanos::from(us) * 1_000,
            Event::Deadline => self.now = self.now.max(self.queue.deadline().unwrap_or(0)),
        }
        self.serve();
    }
}

/// Fuzzes the ACK queue of one device.
///
/// # Panics
///
/// If a property does not hold.
pub fn esp_ack_queue(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let mut device = Device::default();
    while !input.is_empty() {
        let Ok(event) = input.arbitrary() else { return };
        device.run(event);
    }
    // A waiting sender gets its turn in bounded time, even if the sender that has the turn keeps
    // sending and never requests an acknowledgement.
    let end = device.now + 4 * (SENDERS as Nanos + 1) * HOLD;
    while device.waiting() > 0 {
        assert!(device.now < end, "somebody waits for too long");
        device.now += IDLE / 2;
        device.run(Event::Heard);
    }
}
