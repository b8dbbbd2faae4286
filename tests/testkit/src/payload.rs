// SPDX-License-Identifier: GPL-2.0-only

//! What packets carry.

use std::collections::VecDeque;

/// Consecutive bytes of a stream: of a packet, or of a message that becomes several packets.
pub trait Payload: Clone + Default {
    /// Bytes.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the first `most` bytes, or as many as there are.
    #[must_use]
    fn take(&mut self, most: usize) -> Self;

    /// Appends the bytes that follow.
    fn append(&mut self, next: Self);
}

// Not `Vec`, which moves all bytes that follow when the first ones are taken.
impl Payload for VecDeque<u8> {
    fn len(&self) -> usize {
        self.len()
    }

    fn take(&mut self, most: usize) -> Self {
        self.drain(..self.len().min(most)).collect()
    }

    fn append(&mut self, mut next: Self) {
        self.append(&mut next);
    }
}

/// The place of bytes in a stream, in place of the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The place of the first byte.
    pub first: u64,
    /// Bytes.
    pub len: u64,
}

impl Payload for Span {
    fn len(&self) -> usize {
        self.len as usize
    }

    fn take(&mut self, most: usize) -> Self {
        let taken = Self {
            first: self.first,
            len: self.len.min(most as u64),
        };
        self.first += taken.len;
        self.len -= taken.len;
        taken
    }

    fn append(&mut self, next: Self) {
        assert_eq!(self.first + self.len, next.first, "no gap in a packet");
        self.len += next.len;
    }
}
