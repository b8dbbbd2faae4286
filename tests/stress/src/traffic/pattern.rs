// SPDX-License-Identifier: GPL-2.0-only

//! Generates an endless byte pattern from a seed. Both ends generate it, so that every byte of a
//! stream can be checked.

use fastrand::Rng;

use guest::prelude::*;

const BLOCK: usize = 4096;

/// An endless byte pattern, and how far it has been generated.
#[derive(Debug)]
pub struct Pattern {
    rng: Rng,
    block: Vec<u8>,
    /// The index, in `block`, of the pattern's next byte.
    at: usize,
    passed: u64,
}

impl Pattern {
    /// Starts the pattern of `seed` at its beginning.
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            block: vec![0; BLOCK],
            at: BLOCK,
            passed: 0,
        }
    }

    /// Returns the next bytes of the pattern: at least one, at most `most`.
    fn next(&mut self, most: usize) -> &[u8] {
        if self.at == BLOCK {
            self.rng.fill(&mut self.block);
            self.at = 0;
        }
        let from = self.at;
        self.at = BLOCK.min(from + most);
        self.passed += (self.at - from) as u64;
        &self.block[from..self.at]
    }

    /// Fills `bytes` with the next bytes of the pattern.
    pub fn fill(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let next = self.next(bytes.len());
            let (here, rest) = bytes.split_at_mut(next.len());
            here.copy_from_slice(next);
            bytes = rest;
        }
    }

    /// Checks that `bytes` are the next bytes of the pattern.
    ///
    /// # Errors
    /// If a byte differs; the error has its position.
    pub fn check(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let before = self.passed;
            let next = self.next(bytes.len());
            let (here, rest) = bytes.split_at(next.len());
            if let Some(wrong) = (0..here.len()).find(|&place| here[place] != next[place]) {
                bail!("byte {} of the stream is wrong", before + wrong as u64);
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Returns the number of bytes that were generated or checked.
    pub fn passed(&self) -> u64 {
        self.passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_make_the_same_pattern() {
        let mut bytes = vec![0; 3 * BLOCK + 5];
        Pattern::new(7).fill(&mut bytes);
        for size in [1, 7, 1489, BLOCK, 5000] {
            let mut pattern = Pattern::new(7);
            for piece in bytes.chunks(size) {
                pattern.check(piece).unwrap();
            }
            assert_eq!(pattern.passed(), bytes.len() as u64);
        }
    }

    #[test]
    fn a_wrong_byte_is_found() {
        let mut bytes = vec![0; 2 * BLOCK];
        Pattern::new(7).fill(&mut bytes);
        bytes[5000] ^= 1;
        let found = Pattern::new(7).check(&bytes).unwrap_err();
        assert_eq!(found.to_string(), "byte 5000 of the stream is wrong");
        assert!(Pattern::new(8).check(&bytes[..100]).is_err());
    }
}
