// SPDX-License-Identifier: MIT OR Apache-2.0

//! The numbers of the frames that have arrived. If a frame arrives again, because it was
//! retransmitted on another stream, its number shows that it must be dropped.

use std::collections::BTreeSet;

/// The set of frame numbers that were seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// All numbers below this one were seen.
    next: u64,
    /// The numbers above `next` that were seen.
    above: BTreeSet<u64>,
}

impl Seen {
    /// Returns whether `number` was seen.
    pub fn contains(&self, number: u64) -> bool {
        number < self.next || self.above.contains(&number)
    }

    /// Adds `number`; returns false if it was seen before.
    pub fn insert(&mut self, number: u64) -> bool {
        if number < self.next || !self.above.insert(number) {
            return false;
        }
        while self.above.remove(&self.next) {
            self.next += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_new_once() {
        let mut seen = Seen::default();
        for number in [0, 3, 1, 2, 5] {
            assert!(seen.insert(number));
        }
        for number in [0, 1, 2, 3, 5] {
            assert!(!seen.insert(number));
        }
        assert!(seen.contains(2) && seen.contains(5) && !seen.contains(4) && !seen.contains(6));
        assert!(seen.insert(4));
        assert!(seen.above.is_empty());
    }
}
