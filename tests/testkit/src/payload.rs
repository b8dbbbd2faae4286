// SPDX-License-Identifier: GPL-2.0-only

//! The payload of packets: real bytes, or only their position in a stream.

use std::collections::VecDeque;

/// Consecutive bytes of a stream: the payload of a packet, or a message that is split into packets.
pub trait Payload: Clone + Default {
    /// Returns the number of bytes.
    fn len(&self) -> usize;

    /// Returns whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes and returns the first `most` bytes, or all bytes if there are fewer.
    #[must_use]
    fn take(&mut self, most: usize) -> Self;

    /// Appends the bytes that follow in the stream.
    fn append(&mut self, next: Self);
}

// `VecDeque` implements `Payload`, and `Vec` does not: `take` removes the first bytes, and a `Vec`
// would move all remaining bytes to the front.
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

/// A range of positions in a stream. It stands for the bytes at these positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The position of the first byte.
    pub first: u64,
    /// The number of bytes.
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
