// SPDX-License-Identifier: GPL-2.0

//! The smoothed round trip time, and the timeouts that follow from it (RFC 6298).

use super::timers::{Nanos, ACK_DELAY, HANDSHAKE_TIMEOUT, RETRANSMIT_INITIAL, RETRANSMIT_MAX};

/// Maximum number of doublings. It suffices, because 2^16 times any timeout exceeds every upper
/// bound.
const MOST_DOUBLINGS: u8 = 16;

/// Returns `base` doubled `times` times.
#[inline]
pub(super) fn doubled(base: Nanos, times: u8) -> Nanos {
    base.saturating_mul(1 << u64::from(times.min(MOST_DOUBLINGS)))
}

/// An estimate of the round trip time. It is measured only on packets that were sent once (Karn's
/// rule).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Rtt {
    estimate: Option<Estimate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Estimate {
    smoothed: Nanos,
    variation: Nanos,
}

impl Rtt {
    /// Returns the smoothed round trip time; 0 before the first measurement.
    #[inline]
    pub(super) fn smoothed(&self) -> Nanos {
        self.estimate.map_or(0, |estimate| estimate.smoothed)
    }

    /// Returns an upper bound that few round trips exceed; 0 before the first measurement.
    #[inline]
    pub(super) fn longest(&self) -> Nanos {
        self.estimate.map_or(0, |estimate| {
            let margin = estimate.variation.saturating_mul(4);
            estimate.smoothed.saturating_add(margin)
        })
    }

    /// Returns whether a round trip was measured.
    #[inline]
    pub(super) fn is_known(&self) -> bool {
        self.estimate.is_some()
    }

    /// Adds a measured round trip.
    #[inline]
    pub(super) fn sample(&mut self, elapsed: Nanos) {
        self.sample_between(elapsed, elapsed);
    }

    /// Adds a round trip that took between `least` and `most`. If the smoothed round trip time is
    /// within these bounds, it does not change.
    #[inline]
    pub(super) fn sample_between(&mut self, least: Nanos, most: Nanos) {
        self.estimate = Some(match self.estimate {
            None => Estimate {
                smoothed: most,
                variation: most / 2,
            },
            Some(Estimate {
                smoothed,
                variation,
            }) => {
                let measured = smoothed.max(least).min(most);
                Estimate {
                    smoothed: smoothed
                        .saturating_sub(smoothed / 8)
                        .saturating_add(measured / 8),
                    variation: variation
                        .saturating_sub(variation / 4)
                        .saturating_add(smoothed.abs_diff(measured) / 4),
                }
            }
        });
    }

    /// Returns the retransmission timeout, at least `least`, after the given number of tries. The
    /// minimum margin above the round trip is [`ACK_DELAY`], because a sample may be wrong by that
    /// much. In RFC 6298 the minimum margin is the clock's granularity.
    #[inline]
    pub(super) fn timeout(&self, least: Nanos, tries: u8) -> Nanos {
        let base = match self.estimate {
            None => RETRANSMIT_INITIAL,
            Some(estimate) => {
                let margin = estimate.variation.saturating_mul(4).max(ACK_DELAY);
                estimate.smoothed.saturating_add(margin)
            }
        };
        let base = base.max(least);
        if tries == 0 {
            return base.min(RETRANSMIT_MAX.max(least));
        }
        doubled(base, tries).min(RETRANSMIT_MAX.max(least))
    }
}

/// Returns the timeout of a SYN or SYN|ACK after the given number of tries. The timeout needs no
/// upper bound, because the number of tries is limited.
#[inline]
pub(super) fn handshake_timeout(tries: u8) -> Nanos {
    doubled(HANDSHAKE_TIMEOUT, tries)
}
