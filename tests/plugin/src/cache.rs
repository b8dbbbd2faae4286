// SPDX-License-Identifier: GPL-2.0-only

//! Models a processor's data caches: two set-associative levels with LRU replacement.
//!
//! A store that misses allocates its line, like a load. Evictions cost nothing, there is no
//! prefetching, and instruction fetches are not modelled.

/// Number of bytes in a cache line.
const LINE: u64 = 64;

/// The line number of an entry that holds no line. No address has this line number.
const NOTHING: u64 = u64::MAX;

/// A level of the cache.
#[derive(Debug)]
pub struct Cache {
    /// The lines of all sets, set by set; within a set the most recently used line comes first.
    lines: Vec<u64>,
    ways: usize,
    sets: u64,
}

impl Cache {
    /// Returns an empty cache. The number of sets must be a power of two.
    fn new(bytes: u64, ways: usize) -> Self {
        let sets = bytes / LINE / ways as u64;
        debug_assert!(sets.is_power_of_two());
        Self {
            lines: vec![NOTHING; sets as usize * ways],
            ways,
            sets,
        }
    }

    /// Accesses a line, and returns whether it was in the cache.
    fn has(&mut self, line: u64) -> bool {
        let start = (line % self.sets) as usize * self.ways;
        let set = &mut self.lines[start..start + self.ways];
        let found = set.iter().position(|other| *other == line);
        // A line that is not in the cache replaces the least recently used one.
        let position = found.unwrap_or(self.ways - 1);
        set[..=position].rotate_right(1);
        set[0] = line;
        found.is_some()
    }
}

/// Both levels of the cache, with their numbers of misses.
#[derive(Debug)]
pub struct Caches {
    first: Cache,
    second: Cache,
    /// Number of misses in the first level.
    pub first_misses: u64,
    /// Number of accesses to a line that missed in both levels.
    pub second_misses: u64,
}

impl Default for Caches {
    /// Returns a first level of 32 KiB with 8 ways, and a second level of 1 MiB with 16 ways.
    fn default() -> Self {
        Self {
            first: Cache::new(32 << 10, 8),
            second: Cache::new(1 << 20, 16),
            first_misses: 0,
            second_misses: 0,
        }
    }
}

impl Caches {
    /// Loads or stores `bytes` bytes at a physical address.
    pub fn access(&mut self, address: u64, bytes: u64) {
        let last = address.saturating_add(bytes.max(1) - 1);
        for line in address / LINE..=last / LINE {
            if !self.first.has(line) {
                self.first_misses += 1;
                if !self.second.has(line) {
                    self.second_misses += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accesses `addresses` one after the other. Returns two numbers: how many accesses miss in the
    /// first level, and how many of these miss in the second level, too.
    fn misses(caches: &mut Caches, addresses: impl IntoIterator<Item = u64>) -> (u64, u64) {
        let before = (caches.first_misses, caches.second_misses);
        for address in addresses {
            caches.access(address, 8);
        }
        (
            caches.first_misses - before.0,
            caches.second_misses - before.1,
        )
    }

    #[test]
    fn a_line_misses_once() {
        let mut caches = Caches::default();
        assert_eq!(misses(&mut caches, (0..64).step_by(8)), (1, 1));
        assert_eq!(misses(&mut caches, (0..64).step_by(8)), (0, 0));
        assert_eq!(misses(&mut caches, [64]), (1, 1));
    }

    #[test]
    fn an_access_across_two_lines_uses_both() {
        let mut caches = Caches::default();
        assert_eq!(misses(&mut caches, [60]), (2, 2));
        assert_eq!(misses(&mut caches, [0, 64]), (0, 0));
        // These are the last byte of a line, and the first byte of the next line.
        caches.access(191, 1);
        caches.access(192, 1);
        assert_eq!((caches.first_misses, caches.second_misses), (4, 4));
    }

    #[test]
    fn an_access_at_the_end_of_memory_ends_there() {
        let mut caches = Caches::default();
        caches.access(u64::MAX, 8);
        assert_eq!(caches.first_misses, 1);
    }

    #[test]
    fn the_line_that_was_used_longest_ago_makes_room() {
        let mut caches = Caches::default();
        // These addresses are in one set of the first level, and in different sets of the second.
        let same_set = |number: u64| number * 4096;
        assert_eq!(misses(&mut caches, (0..8).map(same_set)), (8, 8));
        // The first line is used again, so the second line is the oldest when a ninth is accessed.
        assert_eq!(misses(&mut caches, [same_set(0), same_set(8)]), (1, 1));
        assert_eq!(misses(&mut caches, [same_set(0)]), (0, 0));
        assert_eq!(misses(&mut caches, [same_set(1)]), (1, 0));
        // The access to the second line has evicted the third one.
        assert_eq!(misses(&mut caches, [same_set(2)]), (1, 0));
        assert_eq!(misses(&mut caches, [same_set(8)]), (0, 0));
    }

    #[test]
    fn sizes_and_ways_are_those_of_the_model() {
        let run = |bytes: u64| {
            let mut caches = Caches::default();
            let lines = || (0..bytes).step_by(LINE as usize);
            assert_eq!(misses(&mut caches, lines()), (bytes / 64, bytes / 64));
            misses(&mut caches, lines())
        };
        // If all lines fit into a level, each access of the second pass is a hit in that level.
        // With one line more in each set of the level, no access is a hit.
        assert_eq!(run(32 << 10), (0, 0));
        assert_eq!(run(36 << 10), (36 << 4, 0));
        assert_eq!(run(1 << 20), (1 << 14, 0));
        assert_eq!(run((1 << 20) + (64 << 10)), (17 << 10, 17 << 10));
        // All 16 lines belong to one set of the second level, and the first level holds 8 of them.
        let mut caches = Caches::default();
        let same_set = |number: u64| number << 16;
        assert_eq!(misses(&mut caches, (0..16).map(same_set)), (16, 16));
        assert_eq!(misses(&mut caches, (0..16).map(same_set)), (16, 0));
        assert_eq!(misses(&mut caches, (0..17).map(same_set)), (17, 1));
    }
}
