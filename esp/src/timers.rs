// SPDX-License-Identifier: GPL-2.0

//! The protocol's times and timers, and the detection of a dead peer.
//!
//! A connection computes each [`Timer`]'s deadline on demand, and the caller arms one timer for the
//! earliest. Early expiry is a no-op.

/// A time or a duration in nanoseconds. Times are those of a monotonic clock.
pub type Nanos = u64;

/// The timers of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The sender retransmits, or probes the peer for its window.
    Retransmission,
    /// The receiver probes for packets that do not arrive (R4).
    Request,
    /// A delayed acknowledgement is sent without data to carry it.
    DelayedAck,
    /// The peer is silent, so it is probed or considered dead.
    Liveness,
    /// The peer of an orphan has not ended the connection in time.
    Orphan,
}

impl Timer {
    /// All timers, in the order in which expired timers are handled.
    pub(super) const ALL: [Self; 5] = [
        Self::Retransmission,
        Self::Request,
        Self::DelayedAck,
        Self::Liveness,
        Self::Orphan,
    ];
}

pub(super) const MICROSECOND: Nanos = 1_000;
pub(super) const MILLISECOND: Nanos = 1_000_000;
pub(super) const SECOND: Nanos = 1_000_000_000;

/// The last acknowledgement of a transmission opens no window. It waits for this time, in
/// nanoseconds, for data to carry it. This time suffices for most answers, because a hundred
/// exchanges of a request and an answer, one after the other, take less. The delay is well below
/// the minimum retransmission timeout of 10 ms, after which a sender assumes that its last packet
/// was lost.
pub(super) const ACK_DELAY: Nanos = 4 * MILLISECOND;

/// Retransmission timeout before the first measured round trip.
pub(super) const RETRANSMIT_INITIAL: Nanos = 200 * MILLISECOND;
/// Upper bound of the retransmission timeout; the lower bound is configured.
pub(super) const RETRANSMIT_MAX: Nanos = 2 * SECOND;

/// While all its packets are acknowledged, a sender waits at least this time before it probes a
/// closed window. The probe is needed because the packet that opened the window may be lost.
pub(super) const WINDOW_PROBE_MIN: Nanos = 50 * MILLISECOND;

/// The time for which a frame may be in flight, including its time in the queues of switches. If a
/// sender's packets became too large, and its peer does not support skips, the sender waits this
/// long.
pub(super) const FRAME_LIFE: Nanos = 500 * MILLISECOND;

/// Timeout of the first SYN and SYN|ACK.
pub(super) const HANDSHAKE_TIMEOUT: Nanos = 200 * MILLISECOND;
/// The number of times that a SYN is sent. Because timeouts double from [`HANDSHAKE_TIMEOUT`] on,
/// the last timeout ends after 12.6 s.
pub(super) const SYN_TRIES: u8 = 6;
/// The number of times that a SYN|ACK is sent. The last timeout ends after 6.2 s.
pub(super) const SYN_ACK_TRIES: u8 = 5;

/// Minimum time before the first probe for a missing packet. It applies until the time from an
/// acknowledgement to the next packet has been measured. At 12 Mbit/s, a full packet takes this
/// time.
pub(super) const REQUEST_INITIAL: Nanos = MILLISECOND;

/// Maximum time between two probes for a missing packet. The maximum is longer if the configured
/// round trip time, or twice the measured one, is longer than this.
pub(super) const REQUEST_MAX: Nanos = 100 * MILLISECOND;

/// Maximum time that a packet waits in the receiver's port behind packets of other connections.
/// While such packets arrive, a probe is delayed by up to this time, or less if the port is fast.
pub(super) const PORT_DELAY: Nanos = 20 * MILLISECOND;

/// Minimum time between challenge ACKs, as in Linux (`tcp_invalid_ratelimit`), so that forged
/// frames cause no flood of challenge ACKs.
pub(super) const CHALLENGE_INTERVAL: Nanos = 500 * MILLISECOND;

/// An orphan whose own FIN is acknowledged waits this long for the peer's FIN.
pub(super) const ORPHAN_WAIT: Nanos = 10 * SECOND;

/// An orphan ends after this time if its peer answers and has room, but acknowledges nothing. This
/// is as long as thirty retransmissions take at the longest timeout, [`RETRANSMIT_MAX`].
pub(super) const ORPHAN_STUCK: Nanos = 60 * SECOND;

/// An orphan ends after this time if its peer answers but has no room. TCP probes an orphan's
/// closed window for about as long.
pub(super) const ORPHAN_HELD: Nanos = 300 * SECOND;

/// Converts a configured time in microseconds to [`Nanos`].
#[inline]
pub(super) fn from_micros(micros: u32) -> Nanos {
    Nanos::from(micros).saturating_mul(MICROSECOND)
}

/// Converts a configured time in milliseconds to [`Nanos`].
#[inline]
pub(super) fn from_millis(millis: u32) -> Nanos {
    Nanos::from(millis).saturating_mul(MILLISECOND)
}

/// Returns whether a timer has expired.
#[inline]
pub(super) fn is_due(at: Option<Nanos>, now: Nanos) -> bool {
    at.is_some_and(|at| at <= now)
}

/// Returns the earlier of two deadlines.
#[inline]
pub(super) fn earlier(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, None) => a,
        (None, b) => b,
    }
}

/// Minimum number of probe intervals before a peer that owes an answer counts as dead.
const LEAST_INTERVALS: Nanos = 15;

/// Time of silence before the first probe of a peer that owes no answer.
const IDLE_FIRST: Nanos = 30 * SECOND;

/// Lower bound of the patience: the time within which a peer must send an answer that it owes. With
/// this bound, the interval between probes is at least a millisecond.
const LEAST_PATIENCE: Nanos = 15 * MILLISECOND;

/// How often a silent peer is probed, and after how many probes it counts as dead.
struct Pace {
    /// Time between two probes.
    interval: Nanos,
    /// Maximum number of unanswered probes. One interval after the last of these, the peer counts
    /// as dead.
    limit: u32,
}

impl Pace {
    /// Returns the pace for a peer that owes an answer. After `patience` of silence, the peer
    /// counts as dead. With a patience of 15 s, it is probed every second.
    fn active(patience: Nanos) -> Self {
        let interval = Self::interval(patience);
        let intervals = patience.checked_div(interval).unwrap_or(LEAST_INTERVALS);
        Self {
            interval,
            limit: u32::try_from(intervals)
                .unwrap_or(u32::MAX)
                .saturating_sub(1),
        }
    }

    #[inline]
    fn interval(patience: Nanos) -> Nanos {
        (patience.max(LEAST_PATIENCE) / LEAST_INTERVALS).min(SECOND)
    }

    /// Returns the pace for a peer that owes no answer. Such a peer is probed half as often as a
    /// peer that owes an answer. With a patience of 15 s, the peer counts as dead after 50 s of
    /// silence: 30 s before the first probe, and 20 s after it.
    fn idle(patience: Nanos) -> Self {
        let active = Self::active(patience);
        Self {
            interval: active.interval.saturating_mul(2),
            limit: active.limit.saturating_add(1).saturating_mul(2) / 3,
        }
    }
}

/// Distinguishes a dead peer from a slow one.
///
/// Retransmission cannot do this, because an end may wait for its peer without sending anything.
/// Examples are a sender with a full window, and a receiver between two packets. So the time of
/// silence itself is measured, and the peer is probed after [`Pace::interval`]. The limit is a
/// number of probes rather than a time, because after a suspend the first timers see a long
/// silence. A peer that answers is alive, however long it keeps its window closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Liveness {
    /// The time when the silence began.
    since: Nanos,
    /// Number of probes since the silence began.
    probes: u32,
    /// The time when the last probe was due.
    probed: Nanos,
    /// Whether a probe is due.
    probe: bool,
}

impl Liveness {
    /// Restarts the measurement of silence, because a packet of the peer has arrived or the peer
    /// begins to owe an answer.
    #[inline]
    pub(super) fn restart(&mut self, now: Nanos) {
        self.since = now;
        self.probes = 0;
        self.probe = false;
    }

    /// Returns whether a probe is due.
    #[inline]
    pub(super) fn has_probe(&self) -> bool {
        self.probe
    }

    /// Clears the pending probe, and returns whether there was one.
    #[inline]
    pub(super) fn take_probe(&mut self) -> bool {
        core::mem::take(&mut self.probe)
    }

    fn pace(active: bool, patience: Nanos) -> Pace {
        if active {
            Pace::active(patience)
        } else {
            Pace::idle(patience)
        }
    }

    /// Returns the time at which the next probe is due, or the peer counts as dead. `active` is set
    /// if the peer owes an answer.
    #[inline]
    pub(super) fn deadline(&self, active: bool, patience: Nanos) -> Nanos {
        if self.probes > 0 {
            let pace = Self::pace(active, patience);
            return self.probed.saturating_add(pace.interval);
        }
        self.since.saturating_add(if active {
            Pace::interval(patience)
        } else {
            IDLE_FIRST
        })
    }

    /// Handles an expired deadline. Returns whether the peer counts as dead.
    pub(super) fn expire(&mut self, active: bool, patience: Nanos, now: Nanos) -> bool {
        if self.probes >= Self::pace(active, patience).limit {
            return true;
        }
        self.probes = self.probes.saturating_add(1);
        self.probed = now;
        self.probe = true;
        false
    }
}
