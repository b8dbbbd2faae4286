// SPDX-License-Identifier: GPL-2.0-only

//! Whose turn it is: senders that come, ask, fall silent and go, in any order.

use std::collections::VecDeque;

use arbitrary::{Arbitrary, Unstructured};
use esp::turns::{HOLD, IDLE};
use esp::{Nanos, Ticket, Turns};

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
    turns: Turns,
    tickets: [Ticket; SENDERS],
    list: VecDeque<usize>,
    now: Nanos,
    /// When the list began to fill, or its head left last.
    moved: Nanos,
}

impl Device {
    fn serve(&mut self) {
        while self.turns.head_leaves(self.now) {
            let id = self.list.pop_front().expect("only a listed sender leaves");
            self.turns.depart(&mut self.tickets[id], self.now);
            self.moved = self.now;
        }
        assert_eq!(self.list.len(), self.turns.waiting() as usize);
        let counted = self.tickets.iter().filter(|t| t.is_scheduled()).count();
        assert_eq!(counted, self.turns.scheduled() as usize);
        for (id, ticket) in self.tickets.iter().enumerate() {
            assert_eq!(ticket.is_waiting(), self.list.contains(&id));
        }
        match self.turns.deadline() {
            Some(at) => assert!(self.now < at && at <= self.moved + HOLD),
            None => assert!(self.list.is_empty(), "somebody waits for ever"),
        }
    }

    fn run(&mut self, event: Event) {
        match event {
            Event::Come(id) => {
                let id = usize::from(id) % SENDERS;
                assert!(!self.turns.update(&mut self.tickets[id], true));
            }
            Event::Go(id) => {
                let id = usize::from(id) % SENDERS;
                let listed = self.turns.update(&mut self.tickets[id], false);
                assert_eq!(listed, self.list.contains(&id));
                self.list.retain(|other| *other != id);
            }
            Event::Ask(id) => {
                let id = usize::from(id) % SENDERS;
                // Whoever waits has asked already.
                if self.tickets[id].is_scheduled() && !self.tickets[id].is_waiting() {
                    let was_empty = self.list.is_empty();
                    if !self.turns.ask(&mut self.tickets[id], self.now) {
                        self.list.push_back(id);
                        if was_empty {
                            self.moved = self.now;
                        }
                    }
                }
            }
            Event::Heard => self.turns.heard(self.now),
            Event::Wait(us) => self.now += Nanos::from(us) * 1_000,
            Event::Deadline => self.now = self.now.max(self.turns.deadline().unwrap_or(0)),
        }
        self.serve();
    }
}

/// The turns of one device.
///
/// # Panics
/// When something does not hold, as all targets.
pub fn esp_turns(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let mut device = Device::default();
    while !input.is_empty() {
        let Ok(event) = input.arbitrary() else { return };
        device.run(event);
    }
    // Whoever waits gets the turn in bounded time, though whoever has it is heard and never asks.
    let end = device.now + (SENDERS as Nanos + 1) * HOLD;
    while !device.list.is_empty() {
        assert!(device.now < end, "somebody waits for too long");
        device.now += IDLE / 2;
        device.run(Event::Heard);
    }
}
