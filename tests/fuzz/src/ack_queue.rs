// SPDX-License-Identifier: GPL-2.0-only

//! The ACK queue: senders that come, ask, fall silent and go, in any order.

use std::collections::VecDeque;

use arbitrary::{Arbitrary, Unstructured};
use esp::ack_queue::{HOLD, IDLE};
use esp::{AckQueue, Demand, Nanos, Slot, Verdict};

const SENDERS: usize = 8;

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Event {
    /// A sender announces something.
    Come(u8),
    /// It has ended.
    Go(u8),
    /// It has an acknowledgement due.
    Ask(u8),
    /// A packet comes by the device.
    Heard,
    /// Time passes, microseconds.
    Wait(u16),
    /// As long as the turn lasts at most, exactly.
    Deadline,
}

#[derive(Default)]
struct Device {
    queue: AckQueue,
    slots: [Slot; SENDERS],
    list: VecDeque<usize>,
    now: Nanos,
    /// When the list began to fill, or its head left last.
    moved: Nanos,
}

impl Device {
    fn serve(&mut self) {
        while let Some(turn) = self.queue.next_turn(self.now) {
            let id = self.list.pop_front().expect("only a listed sender leaves");
            turn.give(&mut self.slots[id]);
            self.moved = self.now;
        }
        assert_eq!(self.list.len(), self.queue.waiting() as usize);
        let counted = self.slots.iter().filter(|s| s.is_scheduled()).count();
        assert_eq!(counted, self.queue.scheduled() as usize);
        for (id, slot) in self.slots.iter().enumerate() {
            assert_eq!(slot.is_waiting(), self.list.contains(&id));
        }
        match self.queue.deadline() {
            Some(at) => assert!(self.now < at && at <= self.moved + HOLD),
            None => assert!(self.list.is_empty(), "somebody waits for ever"),
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
                let listed = self.list.contains(&id);
                assert_eq!(verdict == Verdict::Leaves, listed);
                self.list.retain(|other| *other != id);
            }
            Event::Ask(id) => {
                let id = usize::from(id) % SENDERS;
                // One that waits has asked already.
                if self.slots[id].is_scheduled() && !self.slots[id].is_waiting() {
                    let was_empty = self.list.is_empty();
                    match self.update(id, Demand::Turn) {
                        Verdict::Turn => {}
                        Verdict::Joins => {
                            self.list.push_back(id);
                            if was_empty {
                                self.moved = self.now;
                            }
                        }
                        verdict => panic!("{verdict:?} is no answer"),
                    }
                }
            }
            Event::Heard => self.queue.note_arrival(self.now),
            Event::Wait(us) => self.now += Nanos::from(us) * 1_000,
            Event::Deadline => self.now = self.now.max(self.queue.deadline().unwrap_or(0)),
        }
        self.serve();
    }
}

/// The ACK queue of one device.
///
/// # Panics
/// When something does not hold, as all targets.
pub fn esp_ack_queue(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let mut device = Device::default();
    while !input.is_empty() {
        let Ok(event) = input.arbitrary() else { return };
        device.run(event);
    }
    // A waiting sender gets its turn in bounded time, though the one that has it is heard and never asks.
    let end = device.now + (SENDERS as Nanos + 1) * HOLD;
    while !device.list.is_empty() {
        assert!(device.now < end, "somebody waits for too long");
        device.now += IDLE / 2;
        device.run(Event::Heard);
    }
}
