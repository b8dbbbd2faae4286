// SPDX-License-Identifier: MIT OR Apache-2.0

//! The number of rounds, the messages that members send in them, and how a series of rounds ends.

use anyhow::{ensure, Result};
use serde::{Deserialize, Serialize};

/// The maximum number of bytes that a participant sends in a round. The participant holds these
/// bytes in memory.
pub const MOST_BYTES: u64 = 1 << 30;

/// The period of the bytes in a message. It is a prime, so a lost or repeated part changes the
/// pattern even if the part's length is a power of two.
const PERIOD: u64 = 251;

/// Rounds of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// The number of bytes that each client sends in a round.
    pub size: u64,
    /// Number of rounds.
    pub rounds: u32,
}

impl Series {
    /// Checks that a participant can do the rounds of this series.
    ///
    /// # Errors
    ///
    /// Fails if the size is 0 or too large.
    pub fn check(&self) -> Result<()> {
        ensure!(
            (1..=MOST_BYTES).contains(&self.size),
            "no size for rounds: {} bytes",
            self.size
        );
        Ok(())
    }
}

/// How a series of rounds ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All rounds were done.
    Complete,
    /// The control connection has data to read, or has ended.
    Interrupted,
}

/// Returns the byte at `offset` of member `number`'s message.
pub(super) fn pattern(number: u16, offset: u64) -> u8 {
    ((offset + u64::from(number)) % PERIOD) as u8
}

/// Returns the bytes that member `number` sends in a round of `size` bytes.
pub fn message(number: u16, size: u64) -> Vec<u8> {
    (0..size).map(|offset| pattern(number, offset)).collect()
}
