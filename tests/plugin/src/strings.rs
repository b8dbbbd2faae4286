// SPDX-License-Identifier: GPL-2.0-only

//! Counts the steps of each repeated string instruction of a guest.

use std::collections::HashMap;

use serde::Serialize;

/// A repeated string instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The instruction's address.
    pub address: u64,
    /// The instruction's name.
    pub name: &'static str,
    /// Number of steps, each of which QEMU counts as an instruction.
    pub steps: u64,
}

/// All repeated string instructions, in the order in which they were first executed.
#[derive(Debug, Default)]
pub struct Strings {
    entries: Vec<Entry>,
    positions: HashMap<(u64, &'static str), usize>,
}

impl Strings {
    /// Returns the position of the instruction `name` at `address`. Adds the instruction if it is
    /// new.
    pub fn position(&mut self, address: u64, name: &'static str) -> usize {
        let entries = &mut self.entries;
        *self.positions.entry((address, name)).or_insert_with(|| {
            entries.push(Entry {
                address,
                name,
                steps: 0,
            });
            entries.len() - 1
        })
    }

    /// Counts a step of the instruction at `position`.
    pub fn step(&mut self, position: usize) {
        if let Some(entry) = self.entries.get_mut(position) {
            entry.steps += 1;
        }
    }

    /// Returns the instructions that were executed at least once.
    pub fn executed(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.steps > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_counted_in_one_place_however_often_it_is_translated() {
        let mut strings = Strings::default();
        let clear = strings.position(0x1000, "rep stosq");
        let copy = strings.position(0x2000, "rep movsq");
        // Another program may have a different instruction at the same address.
        let other = strings.position(0x1000, "rep movsb");
        assert_eq!(strings.position(0x1000, "rep stosq"), clear);
        strings.step(clear);
        strings.step(clear);
        strings.step(other);
        strings.step(usize::MAX);
        let steps: Vec<_> = strings
            .executed()
            .map(|one| (one.name, one.steps))
            .collect();
        assert_eq!(steps, [("rep stosq", 2), ("rep movsb", 1)]);
        assert_ne!(copy, clear);
    }
}
