// SPDX-License-Identifier: GPL-2.0

//! The smoothed round trip time and what follows from it.

use super::timers::{
    Nanos, ACK_DELAY, HANDSHAKE_TIMEOUT, RETRANSMIT_INITIAL, RETRANSMIT_MAX, RETRANSMIT_MIN,
};

/// A doubling stops here; 2^16 times any timeout is beyond every maximum.
const MOST_DOUBLINGS: u8 = 16;

/// `base` doubled `times` times.
#[inline]
pub(super) fn doubled(base: Nanos, times: u8) -> Nanos {
    base.saturating_mul(1 << u64::from(times.min(MOST_DOUBLINGS)))
}

/// Round trips measured on packets that were sent once (Karn's rule).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Rtt {
    smoothed: Option<Nanos>,
}

impl Rtt {
    /// The smoothed round trip time, 0 as long as there is none.
    #[inline]
    pub(super) fn smoothed(&self) -> Nanos {
        self.smoothed.unwrap_or(0)
    }

    /// Takes in that a packet was answered after `elapsed`. When the answer was
    /// free to wait for data to carry it, `delayable`, it says only that the
    /// round trip took between `elapsed - ACK_DELAY` and `elapsed`, and only a
    /// mean outside of that is corrected.
    #[inline]
    pub(super) fn sample(&mut self, elapsed: Nanos, delayable: bool) {
        let least = if delayable {
            elapsed.saturating_sub(ACK_DELAY)
        } else {
            elapsed
        };
        self.smoothed = Some(match self.smoothed {
            None => elapsed,
            Some(mean) => mean
                .saturating_sub(mean / 8)
                .saturating_add(mean.max(least).min(elapsed) / 8),
        });
    }

    /// The retransmission timeout at the given number of tries before.
    #[inline]
    pub(super) fn timeout(&self, tries: u8) -> Nanos {
        let base = match self.smoothed {
            None => RETRANSMIT_INITIAL,
            Some(mean) => mean.saturating_mul(2).max(RETRANSMIT_MIN),
        };
        doubled(base, tries).min(RETRANSMIT_MAX)
    }
}

/// The timeout of a SYN or SYN|ACK, whose tries are counted and not bounded in
/// length.
#[inline]
pub(super) fn handshake_timeout(tries: u8) -> Nanos {
    doubled(HANDSHAKE_TIMEOUT, tries)
}
